"""Traces: reading says what is wrong and where; making repeats to the byte; placement moves only what must move."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.trace import TraceError, TraceShape, rendezvous, trace_make, trace_read, trace_write

LINE = '{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n'


def test_made_traces_repeat_and_survive_the_file(tmp_path: Path) -> None:
    made = trace_make(TraceShape(seconds=60))
    assert made == trace_make(TraceShape(seconds=60)) != trace_make(TraceShape(seconds=60, seed=2))
    assert trace_write(made, tmp_path / "t.jsonl") == len(made) > 20
    assert trace_read(tmp_path / "t.jsonl") == made
    assert {r.tenant for r in made} == set(TraceShape().tenants)


def test_sessions_of_one_repository_share_its_prefix_and_grow() -> None:
    shape = TraceShape(seconds=120)
    by_repo: dict[tuple[str | None, str | None], set[tuple[int, ...]]] = {}
    last: dict[str | None, list[int]] = {}
    for r in trace_make(shape):
        head = tuple(r.hash_ids[: shape.schema_ids + shape.repository_ids])
        by_repo.setdefault((r.tenant, r.label), set()).add(head)
        before = last.get(r.session, [])
        assert r.hash_ids[: len(before)] == before
        last[r.session] = r.hash_ids
    assert all(len(heads) == 1 for heads in by_repo.values())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2"),
        ('{"timestamp": -1, "input_length": 1, "output_length": 0, "hash_ids": [1]}', "negative"),
        ('{"timestamp": 0, "input_length": 513, "output_length": 0, "hash_ids": [1]}', "cannot cover"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 0, "hash_ids": [-1]}', "hash id"),
        ('{"timestamp": 0, "input_length": "x", "output_length": 0, "hash_ids": [1]}', "input_length"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_replayed(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(LINE + line + "\n")
    with pytest.raises(TraceError, match=why) as error:
        trace_read(path)
    assert "line 2" in str(error.value)
    assert "nothing was replayed" in str(error.value)


def test_limit_reads_no_further(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(LINE * 3 + "{")
    assert len(trace_read(path, limit=3)) == 3


@given(st.binary(min_size=1), st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=9, unique=True))
def test_a_node_that_leaves_moves_only_its_own_keys(key: bytes, names: list[str]) -> None:
    order = rendezvous(key, names)
    without = [n for n in names if n != order[-1]]
    assert rendezvous(key, without) == order[:-1]
