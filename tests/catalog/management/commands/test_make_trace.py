"""`make_trace` writes the same bytes for the same arguments."""

from pathlib import Path

from django.core.management import call_command

from catalog.trace import trace_read


def test_same_arguments_same_bytes(tmp_path: Path, capsys) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for path in (one, two):
        call_command("make_trace", str(path), "--seconds", "40", "--tenants", "a,b", "--seed", "5")
    assert one.read_bytes() == two.read_bytes()
    made = trace_read(one)
    assert {r.tenant for r in made} <= {"a", "b"}
    assert f"{len(made)} requests over 40 s" in capsys.readouterr().out
