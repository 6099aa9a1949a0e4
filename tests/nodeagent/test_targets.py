import hashlib
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.messages import Command
from kvcore.receipts import EraseTarget
from kvcore.targets import keys_hash, packed
from nodeagent.targets import Malformed, Targets, arguments, pieces
from nodeagent.tiers.base import RunMeta

NS, KEYS = bytes(range(32)), [secrets.token_bytes(32) for _ in range(4)]


def meta(gen=1, group=0, ns=NS):
    return RunMeta(ns, gen, group, 0, None, b"".join(KEYS), 1, 16, 1024)


def targets(**more):
    fields = {"ns": NS.hex(), "gen_upto": "3"} | more
    return Targets([EraseTarget(**fields)])


def test_all_generations_below_are_meant_and_nothing_else():
    wanted = targets()
    assert wanted.meant(meta(0)) == wanted.meant(meta(2, 7)) == [True] * 4
    assert wanted.meant(meta(3)) is None
    assert wanted.meant(meta(ns=bytes(32))) is None
    assert wanted.whole(NS, 2, 0)
    assert not wanted.whole(NS, 3, 0)
    assert wanted.upto() == [(NS, 3)]
    assert targets(gen_upto=str(2**63)).upto() == [(NS, 2**63)]


def test_a_group_and_single_keys_are_finer():
    group = targets(group=1)
    assert group.meant(meta(1, 1)) == [True] * 4
    assert group.meant(meta(1, 0)) is None
    assert group.upto() == []
    keys = targets(keys=[KEYS[1].hex(), "00" * 32])
    assert keys.meant(meta()) == [False, True, False, False]
    assert not keys.whole(NS, 1, 0)
    assert keys.upto() == []
    assert targets(keys=["00" * 32]).meant(meta()) is None


def test_several_targets_of_one_namespace_add_up():
    both = Targets(
        [
            EraseTarget(ns=NS.hex(), gen_upto="2", keys=[KEYS[0].hex()]),
            EraseTarget(ns=NS.hex(), gen_upto="2", keys=[KEYS[3].hex()]),
        ]
    )
    assert both.meant(meta()) == [True, False, False, True]
    assert both.namespaces == [NS]


@pytest.mark.parametrize(
    "fields",
    [{"ns": "00"}, {"ns": "x"}, {"gen_upto": "-1"}, {"gen_upto": str(2**63 + 1)}, {"gen_upto": "x"}, {"keys": ["00"]},
     {"keys": ["zz"]}],
)  # fmt: skip
def test_what_cannot_be_read_is_no_target(fields):
    with pytest.raises(Malformed):
        targets(**fields)


def test_arguments_have_one_form():
    command = Command(
        v=1, step="s", kind="erase", node="n", order_hash="", issued_at=0, expires_at=0, args={"tier": "hbm"}
    )
    with pytest.raises(Malformed):
        arguments(command)


@given(st.lists(st.booleans(), max_size=40))
def test_pieces_are_the_stretches_that_stay(marks):
    kept = [i for a, b in pieces(marks) for i in range(a, b)]
    assert kept == [i for i, meant in enumerate(marks) if not meant]
    assert all(a < b for a, b in pieces(marks))
    ends = [b for _, b in pieces(marks)]
    assert all(b < len(marks) and marks[b] for b in ends if b < len(marks))


def run_of(*keys, parent=None, gen=1, ns=bytes(32)):
    packed = b"".join(keys)
    return RunMeta(ns=ns, gen=gen, group=0, depth=0, parent=parent, keys=packed, version=1, block_tokens=16,
                   block_bytes=64)  # fmt: skip


def test_what_continues_a_key_goes_with_it_however_far():
    key = [hashlib.sha256(bytes([n])).digest() for n in range(12)]
    head, tail = run_of(*key[:4]), run_of(*key[4:6], parent=key[3])
    leaf, side = run_of(*key[6:8], parent=key[5]), run_of(*key[8:10], parent=key[0])
    far = run_of(*key[10:12], parent=key[7], gen=2)
    runs = [far, leaf, side, tail, head]
    one = EraseTarget(ns=bytes(32).hex(), gen_upto="2", keys=[key[1][:16].hex()], below=True)
    found = Targets([one])
    assert found.meant(head) == [False, True, True, True]
    assert found.meant(leaf) is None, "nobody has said yet what it continues"
    found.grow(runs)
    assert found.meant(tail) == found.meant(leaf) == [True, True]
    assert found.meant(side) is None
    assert found.meant(far) is None, "of a later generation"
    plain = Targets([EraseTarget(ns=bytes(32).hex(), gen_upto="2", keys=[key[1].hex()])])
    plain.grow(runs)
    assert plain.meant(head) == [False, True, False, False]
    assert plain.meant(tail) is None
    assert (found.finer, plain.finer, Targets([EraseTarget(ns=bytes(32).hex(), gen_upto="2")]).finer) == (
        True, True, False,
    )  # fmt: skip
    assert found.upto() == []


def test_a_million_keys_are_looked_up_where_they_lie():
    keys = packed(hashlib.sha256(n.to_bytes(4, "big")).digest() for n in range(1000))
    name = keys_hash(keys)
    found = Targets([EraseTarget(ns=bytes(32).hex(), gen_upto="2", attached=name, count=1000)], {name: keys})
    there = [hashlib.sha256(n.to_bytes(4, "big")).digest() for n in (0, 999, 5000)]
    assert found.meant(run_of(*there)) == [True, True, False]
    with pytest.raises(Malformed):
        Targets([EraseTarget(ns=bytes(32).hex(), gen_upto="2", attached=name, count=1000)], {})
