"""What every tier promises, whatever its medium."""

import struct

import msgspec
import pytest

from kvcore.blocks import VOLATILE, Tier
from nodeagent.tiers.base import HEADER, BlockRefused, Look, TierFull, content, verify_run
from tests.nodeagent.tiers.conftest import CAPACITY, SLOT, run

FIELDS = ("magic", "done", "digest", "layout", "group", "length", "generation", "version", "key")


def test_what_was_written_is_read(tier):
    runs = [run(1), run(4), run(32)]
    places = tier.write(runs)
    for (meta, raw), place in zip(runs, places, strict=True):
        assert tier.read(meta, place) == raw
        assert content(meta, raw, 0) == meta.keys[:32] * 8
    assert tier.used_bytes == 37 * SLOT


def test_says_what_it_is(tier, name):
    assert tier.name is name
    assert tier.emulated is (name is Tier.HBM)
    assert tier.encrypted is (name in (Tier.SSD, Tier.REMOTE))
    assert tier.persistent is (name not in VOLATILE)


def test_the_cap_holds_and_nothing_of_a_refused_batch_is_kept(tier):
    tier.write([run(60)])
    used = tier.used_bytes
    with pytest.raises(TierFull):
        tier.write([run(2), run(3)])
    assert tier.used_bytes == used <= CAPACITY
    tier.write([run(4)])
    with pytest.raises(TierFull):
        tier.write([run(1)])


def test_room_comes_back_and_is_used_again(tier):
    for _ in range(5):
        runs = [run(20), run(20), run(20)]
        places = tier.write(runs)
        keep, raw = runs[1]
        tier.free([(runs[0][0], places[0]), (runs[2][0], places[2])])
        assert tier.used_bytes == 20 * SLOT
        more = run(40)
        (place,) = tier.write([more])
        assert tier.read(keep, places[1]) == raw
        assert tier.read(more[0], place) == more[1]
        tier.free([(keep, places[1]), (more[0], place)])
        assert tier.used_bytes == 0


def test_what_was_freed_is_never_read_again(tier):
    meta, raw = run(3)
    (place,) = tier.write([(meta, raw)])
    tier.free([(meta, place)])
    with pytest.raises(BlockRefused):
        tier.read(meta, place)
    tier.write([run(3)])  # the place may have another tenant now
    with pytest.raises(BlockRefused):
        tier.read(meta, place)


@pytest.mark.parametrize("field", FIELDS)
def test_a_read_checks_every_field_of_the_header(tier, field):
    meta, raw = run(3)
    values = list(HEADER.unpack_from(raw, SLOT))
    at = FIELDS.index(field)
    wrong = {"magic": b"KVB0", "done": 0, "digest": bytes(16), "key": bytes(32)}
    values[at] = wrong.get(field, values[at] + 1 if isinstance(values[at], int) else b"")
    spoiled = bytearray(raw)
    HEADER.pack_into(spoiled, SLOT, *values)
    (place,) = tier.write([(meta, bytes(spoiled))])
    with pytest.raises(BlockRefused) as refusal:
        tier.read(meta, place)
    assert (refusal.value.code, refusal.value.index) == (field, 1)


def test_a_flipped_bit_of_content_is_found(tier):
    meta, raw = run(3)
    spoiled = bytearray(raw)
    spoiled[-1] ^= 1
    (place,) = tier.write([(meta, bytes(spoiled))])
    with pytest.raises(BlockRefused) as refusal:
        tier.read(meta, place)
    assert (refusal.value.code, refusal.value.index) == ("digest", 2)


@pytest.mark.parametrize(
    "other",
    [{"gen": 2}, {"version": 2**40}, {"keys": bytes(96)}, {"keys": bytes(32)}, {"group": 1}, {"block_bytes": 255}],
    ids=lambda x: next(iter(x)),
)
def test_what_is_not_asked_for_is_refused(tier, name, other):
    meta, raw = run(3)
    (place,) = tier.write([(meta, raw)])
    asked = msgspec.structs.replace(meta, **other)
    if other.get("gen") == 2 and name not in VOLATILE:
        with pytest.raises(KeyError):  # no such key, so nothing to open it with
            tier.read(asked, place)
        return
    with pytest.raises(BlockRefused):
        tier.read(asked, place)


def test_a_short_run_is_refused():
    meta, raw = run(2)
    with pytest.raises(BlockRefused):
        verify_run(meta, raw[:-1])
    assert struct.calcsize("<4sB3x16sHHIQQ32s") == HEADER.size


def test_persistent_tiers_are_found_again_and_memory_is_not(tier, name, again):
    runs = [run(5, depth=5), run(5, depth=0)]
    places = tier.write(runs)
    found = list(again(name).stored())
    if name in VOLATILE:
        assert found == []
        return
    assert [x.meta.depth for x in found] == [0, 5]
    back = again(name)
    list(back.stored())
    assert back.used_bytes == 10 * SLOT
    for (meta, raw), place in zip(runs, places, strict=True):
        entry = next(x for x in found if x.meta.version == meta.version)
        assert (entry.meta.keys, entry.meta.parent, entry.meta.gen, entry.place) == (meta.keys, None, 1, place)
        assert back.read(entry.meta, entry.place) == raw


def test_what_is_erased_is_read_back_and_nothing_of_it_is_left(tier, again, name):
    runs = [run(3), run(5), run(2)]
    places = tier.write(runs)
    look = Look()
    tier.erase([(runs[0][0], places[0]), (runs[2][0], places[2])], look)
    assert look.clean == look.sampled == (5 if name in VOLATILE else 2)
    assert tier.used_bytes == 5 * SLOT
    assert tier.read(runs[1][0], places[1]) == runs[1][1]
    for gone in (0, 2):
        with pytest.raises(BlockRefused):
            tier.read(runs[gone][0], places[gone])
    lying = [x.place for x in tier.lying()]
    assert lying == (sorted(places[1]) if name in VOLATILE else [places[1]])
    other = Look()
    tier.erase([(runs[1][0], places[1])], other)
    assert list(tier.lying()) == []
    assert other.evidence != look.evidence
    assert tier.used_bytes == 0
    assert again(name).stored() == (() if name in VOLATILE else [])
    more = run(20)
    (place,) = tier.write([more])
    assert tier.read(more[0], place) == more[1]


def test_what_lies_there_is_found_by_looking_at_the_medium_and_scoured(tier, again, name):
    runs = [run(3), run(5, gen=1)]
    places = tier.write(runs)
    stranger = tier if name in VOLATILE else again(name)  # it was told of nothing
    found = list(stranger.lying())
    if name in VOLATILE:
        assert [x.place for x in found] == sorted(places[0] + places[1])
        assert {x.meta for x in found} == {None}
    else:
        assert {x.place: x.meta.keys for x in found} == {p: m.keys for (m, _), p in zip(runs, places, strict=True)}
    look = Look()
    assert stranger.remains([x.place for x in found]) == [x.place for x in found]
    stranger.scour([x.place for x in found], look)
    assert stranger.remains([x.place for x in found]) == []
    assert look.clean == look.sampled == len(found)
    assert list(tier.lying()) == []
    assert tier.used_bytes == 8 * SLOT  # whoever counted them has to know
    again_look = Look()
    stranger.scour([x.place for x in found], again_look)  # nothing is there: that is clean
    assert again_look.clean == again_look.sampled == len(found)


def test_a_free_leaves_nothing_in_memory(tier, name):
    if name not in VOLATILE:
        return
    meta, raw = run(4)
    (place,) = tier.write([(meta, raw)])
    assert len(list(tier.lying())) == 4
    tier.free([(meta, place)])
    assert list(tier.lying()) == []
    assert tier.unused == CAPACITY // SLOT
