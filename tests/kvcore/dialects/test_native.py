"""A frame of the console's own protocol, its items one by one."""

import msgspec
import pytest

from kvcore.dialects.native import read
from kvcore.events import Gap, Refused
from tests.golden.hostile import hostile_frames

pack = msgspec.msgpack.encode


def test_a_bad_item_costs_itself_only() -> None:
    gap = {"k": "gap", "since": 1.0, "reason": "ring"}
    frame = {"v": 1, "node": "n", "source": "s", "boot": "b", "stream": "t", "seq": 0, "ts": 1.0}
    result = read(pack({**frame, "items": [gap, {**gap, "reason": "x"}, 5, gap]}))
    assert [(i, type(item)) for i, item in result.items] == [(0, Gap), (3, Gap)]
    assert [(r.index, r.code) for r in result.rejected] == [(1, "wrong-type"), (2, "wrong-type")]


def test_a_thousand_hostile_frames() -> None:
    """Each is judged with its code, and every valid neighbour comes through exactly."""
    frames = list(hostile_frames(1000, seed=1))
    assert len(frames) == 1000
    seen = set()
    for hostile in frames:
        if hostile.frame_code is not None:
            with pytest.raises(Refused) as e:
                read(hostile.body)
            assert e.value.code == hostile.frame_code
            seen.add(e.value.code)
            continue
        result = read(hostile.body)
        codes = [None] * len(result.frame.items)
        for r in result.rejected:
            codes[r.index] = r.code
        assert codes == hostile.item_codes
        assert [item.keys for _, item in result.items if hasattr(item, "keys")] == hostile.neighbours
        seen |= set(codes) - {None}
    assert len(seen) >= 11
