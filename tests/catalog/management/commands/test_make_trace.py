"""`make_trace` writes the same bytes for the same arguments."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from catalog.trace import trace_read


def test_same_arguments_same_bytes(tmp_path: Path, capsys) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for path in (one, two):
        call_command("make_trace", str(path), "--seconds", "40", "--tenants", "a,b", "--seed", "5")
    assert one.read_bytes() == two.read_bytes()
    made = trace_read(one)
    assert {r.tenant for r in made} <= {"a", "b"}
    assert f"{len(made)} requests over 40 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        *(f"--{name}={value}" for name in ("seconds", "rate", "repositories", "repository-ids")
          for value in ("0", "-1", "nan", "many", "1e300")),
        "--tenants=", "--tenants=,", "--seed=x", "--rate=inf",
    ],
)  # fmt: skip
def test_an_argument_that_gives_no_trace_is_refused_by_its_name(tmp_path: Path, words) -> None:
    with pytest.raises(CommandError, match=words.split("=")[0]):
        call_command("make_trace", str(tmp_path / "t.jsonl"), words)
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_written_nothing_is(tmp_path: Path) -> None:
    for wrong, why in ((tmp_path / "none" / "t", "no folder"), (tmp_path, "is a folder")):
        with pytest.raises(CommandError, match=why):
            call_command("make_trace", str(wrong), "--seconds", "5")
    (tmp_path / "t.part").mkdir()
    with pytest.raises(CommandError, match=r"cannot write .* nothing was written"):
        call_command("make_trace", str(tmp_path / "t"), "--seconds", "5")
    assert [p.name for p in tmp_path.iterdir()] == ["t.part"]
