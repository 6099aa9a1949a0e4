"""What one order lets a command reach: its own targets on its nodes, its own fences, leases when their time is over."""

import random

import msgspec
import pytest

from tests.audit.signer import making
from tests.audit.signer.making import NOW, TARGETS, bound, reach
from tests.audit.signer.test_orders import asked

KINDS = ["erase", "shred", "fence"]
ORDER = {"kinds": KINDS, "risk": "R1"}
FORCE_AFTER = NOW + 60


def said(kind="erase", order=None, **args):
    return asked(ORDER | bound() | (order or {}), command={"kind": kind, "args": reach(**args)})


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_order_names_is_signed(kind):
    assert said(kind) is None
    assert said(kind, fencing=True) is None


@pytest.mark.parametrize("kind", KINDS)
def test_targets_of_its_own_choice_are_not(kind):
    """A worker that was taken over has one order, and wants something else to go on the same node."""
    stranger = making.EraseTarget(ns="ff" * 32, gen_upto="2")
    assert said(kind, targets=(stranger,)) == "order-of-other-targets"
    assert said(kind, targets=(*TARGETS[:3], stranger)) == "order-of-other-targets"
    assert said(kind, targets=TARGETS[:2]) == "order-of-other-targets", "nor fewer, as if they were all"
    later = making.EraseTarget(ns=TARGETS[0].ns, gen_upto="9")
    assert said(kind, targets=(later, *TARGETS[1:3])) == "order-of-other-targets", "nor a later generation"
    wider = making.EraseTarget(ns=TARGETS[0].ns, gen_upto="2", keys=["ab" * 16])
    assert asked(ORDER | bound((wider,)), command={"kind": kind, "args": reach(TARGETS[:1])}) == (
        "order-of-other-targets"
    ), "nor the whole namespace where keys were ordered"
    below = making.EraseTarget(ns=TARGETS[0].ns, gen_upto="2", keys=["ab" * 16], below=True)
    assert asked(ORDER | bound((wider,)), command={"kind": kind, "args": reach((below,))}) == "order-of-other-targets"


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_that_names_no_targets_destroys_none(kind):
    assert asked(ORDER, command={"kind": kind, "args": reach()}) == "order-without-targets"
    assert asked(ORDER, command={"kind": kind}) == "order-without-targets"
    assert said(kind, order={"targets_root": ""}) == "order-of-other-targets"


def test_a_command_of_any_other_kind_names_the_targets_of_its_order_too():
    moves = {"kinds": ["purge"], "risk": "R1"} | bound()
    assert asked(moves, command={"kind": "purge"}) == "targets-malformed"
    assert asked(moves, command={"kind": "purge", "args": reach(TARGETS[5:6])}) == "order-of-other-targets"
    assert asked(moves, command={"kind": "purge", "args": reach()}) is None


def test_each_part_of_many_targets_is_signed_by_itself():
    order = ORDER | bound(TARGETS)
    parts = making.Bound(TARGETS).parts()
    assert [(one.first, one.length) for one in parts] == [(0, 500), (500, 500), (1000, 200)]
    for number in range(len(parts)):
        assert asked(order, command={"kind": "erase", "args": reach(TARGETS, number)}) is None
    swapped = reach(TARGETS, 1) | {"targets": reach(TARGETS, 0)["targets"]}
    assert asked(order, command={"kind": "erase", "args": swapped}) == "order-of-other-targets"
    whole = reach(TARGETS, 0) | {
        "targets": [{"ns": one.ns, "gen_upto": "2"} for one in making.Bound(TARGETS).targets],
        "part": {"first": 0, "length": 1200, "count": 1200},
    }
    assert asked(order, command={"kind": "erase", "args": whole}) == "order-of-other-targets", "at most 500 at a time"


def test_leases_are_broken_when_the_order_says_and_not_before():
    assert said(force=True, deadline=FORCE_AFTER) is None
    assert said(force=True, deadline=FORCE_AFTER + 100) is None
    assert said(force=True, deadline=FORCE_AFTER - 1) == "force-not-ordered"
    assert said(force=True) == "force-not-ordered"
    assert said(force=True, deadline=FORCE_AFTER, order={"force_after": None}) == "force-not-ordered"
    assert said(deadline=0.0) is None, "who does not break any may wait as he likes"


def test_fences_are_raised_where_the_order_raises_them():
    """One order to take away single blocks, or to trim a quota, is none to close a namespace for ever."""
    assert said("fence", order={"fencing": False}) == "fence-not-ordered"
    assert said("erase", order={"fencing": False}, fencing=True) == "fence-not-ordered"
    assert said("erase", order={"fencing": False}) is None
    assert asked({"risk": "R1", "kinds": ["erase"]} | bound(), command={"kind": "fence", "args": reach()}) == (
        "order-of-another-kind"
    )


def test_an_order_of_another_operation_is_not_borrowed():
    assert said(operation="op-2") == "order-of-another-operation"


@pytest.mark.parametrize(
    "args",
    [
        {}, {"targets": []}, {"targets": "all"}, {"part": {}}, {"targets": [{"ns": 7}]}, {"part": None},
        {"targets": [{"ns": "00", "gen_upto": "2", "keys": ["xx"]}]}, {"deadline": "soon"}, {"force": 1},
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_not_signed(args):
    given = (reach() | args) if args else {}
    assert asked(ORDER | bound(), command={"kind": "erase", "args": given}) == "targets-malformed"


def test_no_flipped_digit_of_a_command_is_signed_for_another_target():
    rng = random.Random(5)
    told = reach(TARGETS, 1)
    for _ in range(60):
        args = msgspec.json.decode(msgspec.json.encode(told))
        which = rng.randrange(3)
        if which == 0:
            one = args["targets"][rng.randrange(500)]
            one["ns"] = _flip(rng, one["ns"])
        elif which == 1:
            side = args["part"][rng.choice(["left", "right"])]
            at = rng.randrange(len(side))
            side[at] = _flip(rng, side[at])
        else:
            args["part"]["first"] += rng.choice([-1, 1, 500])
        code = asked(ORDER | bound(TARGETS), command={"kind": "erase", "args": args})
        assert code in ("order-of-other-targets", "targets-malformed")


def _flip(rng, digits):
    at = rng.randrange(len(digits))
    return digits[:at] + rng.choice([d for d in "0123456789abcdef" if d != digits[at]]) + digits[at + 1 :]
