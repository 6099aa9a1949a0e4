"""Fixtures of the plumbing's tests."""

import pytest

from kvconsole.management.commands.commander import command_key


@pytest.fixture
def command_key_file(tmp_path, settings):
    """The site has a command key (its public half is in a file); no commander runs."""
    settings.COMMAND_KEY_FILE = str(tmp_path / "command.key")
    settings.COMMANDER_URL = "http://127.0.0.1:1"
    return command_key(tmp_path / "command.key", make=True)
