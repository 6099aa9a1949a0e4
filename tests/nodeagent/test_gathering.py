"""An agent takes an order that reaches blocks only whole, every part proved to be of it, with all keys it names."""

import msgspec
import pytest

from kvcore.messages import Command
from kvcore.receipts import EraseArgs, EraseTarget
from kvcore.targets import Bound, keys_hash, packed
from nodeagent import gathering
from nodeagent.gathering import Gatherer

TARGETS = [EraseTarget(ns=f"{n:064x}", gen_upto="2") for n in range(25)]
KEYS = packed(bytes([n]) * 32 for n in range(7))
NAMED = EraseTarget(ns="ab" * 32, gen_upto="2", attached=keys_hash(KEYS), count=7)


def command(args, *, step="s", kind="erase"):
    return Command(v=1, step=step, kind=kind, node="n", order_hash="", issued_at=0, expires_at=2e10, args=args)


def sent(targets=TARGETS, number=0, most=10, **more):
    bound = Bound(targets)
    part = bound.parts(most)[number]
    mine = bound.targets[part.first : part.first + part.length]
    args = {"targets": msgspec.to_builtins(mine), "part": msgspec.to_builtins(part), "targets_root": bound.root}
    return command(args, **more)


def test_what_has_come_in_whatever_order_is_put_together():
    gatherer = Gatherer()
    assert gatherer.take(sent(number=2), {}) == 0
    assert gatherer.take(sent(number=0), {}) == 10
    assert gatherer.take(sent(number=0), {}) == 10
    assert gatherer.take(sent(number=0, step="other"), {}) == 10
    whole = gatherer.take(sent(number=1), {})
    assert isinstance(whole, Command)
    assert whole.args["targets"] == msgspec.to_builtins(list(Bound(TARGETS).targets))
    assert gatherer.take(sent(number=1), {}) == 0, "it is forgotten: the step has begun"


@pytest.mark.parametrize("kind", sorted(gathering.BOUND))
def test_what_is_not_proved_is_refused(kind):
    gatherer, good = Gatherer(), sent(kind=kind).args
    assert gatherer.take(command({"targets": good["targets"]}, kind=kind), {}) == "targets-unproven"
    assert gatherer.take(command({**good, "part": None}, kind=kind), {}) == "targets-unproven"
    assert gatherer.take(command({**good, "targets": good["targets"][:9]}, kind=kind), {}) == "targets-unproven"
    assert gatherer.take(command({**good, "targets_root": "00" * 32}, kind=kind), {}) == "targets-unproven"
    assert gatherer.take(command({**good, "targets": [{"ns": "x"}]}, kind=kind), {}) == "targets-unproven"
    many = [EraseTarget(ns=f"{n:064x}", gen_upto="2") for n in range(501)]
    assert gatherer.take(sent(many, most=501, kind=kind), {}) == "targets-unproven"


def test_parts_of_two_orders_are_never_mixed():
    gatherer = Gatherer()
    assert gatherer.take(sent(number=0), {}) == 10
    assert gatherer.take(sent(TARGETS[1:], number=1), {}) == 0
    assert gatherer.take(sent(TARGETS[1:], number=0), {}) == 20


def test_keys_come_with_their_targets_or_nothing_is_done():
    gatherer = Gatherer()
    assert gatherer.take(sent([NAMED]), {}) == "keys-missing"
    assert gatherer.take(sent([NAMED]), {NAMED.attached: KEYS[16:]}) == "keys-missing"
    forged = sent([NAMED])
    forged.args["keys"] = {NAMED.attached: "AAAA"}
    whole = gatherer.take(forged, {NAMED.attached: KEYS, "00" * 32: b"more"})
    assert whole.args["keys"] == {NAMED.attached: KEYS}
    given = {"operation": "o", "generation": 1, "source": "s", "dp_rank": 0, "tier": "hbm", "owner": 1}
    assert msgspec.convert({**given, **whole.args}, EraseArgs).keys == {NAMED.attached: KEYS}


def test_other_commands_are_as_they_are():
    other = command({"targets": "what they like"}, kind="inventory")
    assert Gatherer().take(other, {}) is other


def test_what_is_never_completed_gives_way(monkeypatch):
    monkeypatch.setattr(gathering, "MOST_AT_ONCE", 2)
    gatherer = Gatherer()
    for step in ("a", "b", "c"):
        assert gatherer.take(sent(number=0, step=step), {}) == 10
    assert gatherer.take(sent(number=1, step="a"), {}) == 0
    assert gatherer.take(sent(number=1, step="c"), {}) == 20
