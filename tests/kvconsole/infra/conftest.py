"""Fixtures of the plumbing's tests."""

import pytest

from audit.keyfiles import key_file


@pytest.fixture
def command_key_file(tmp_path, settings):
    """The site has a command key (its public half is in a file); no signer runs."""
    settings.COMMAND_KEY_FILE = str(tmp_path / "command.key")
    settings.SIGNER_URL = "http://127.0.0.1:1"
    return key_file(tmp_path / "command.key", make=True)
