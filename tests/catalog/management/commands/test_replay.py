"""`replay` refuses what it cannot replay before anything runs, and says that nothing was replayed."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

LINE = '{"timestamp": 0, "input_length": 9, "output_length": 0, "hash_ids": [1]}\n'


@pytest.mark.parametrize(
    ("content", "options", "why"),
    [
        (None, (), "No such file"),
        ("", (), "no requests"),
        ("{}", (), "line 1"),
        (LINE, ("--speed", "0"), "--speed"),
        (LINE, ("--speed", "fast"), "--speed"),
        (LINE, ("--tenant", "nobody"), "tenant nobody"),
    ],
)
@pytest.mark.django_db
def test_bad_input_is_refused_and_nothing_is_replayed(tmp_path: Path, content, options, why) -> None:
    path = tmp_path / "trace.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CommandError, match="nothing was replayed") as error:
        call_command("replay", str(path), *options)
    assert why in str(error.value)
