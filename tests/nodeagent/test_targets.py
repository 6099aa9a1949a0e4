import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.messages import Command
from kvcore.receipts import EraseTarget
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
