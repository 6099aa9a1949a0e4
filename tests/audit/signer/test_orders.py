"""Which destructive commands are signed: one way in, and every way that is not."""

import random

import msgspec
import pytest

from audit.signer.heads import Head
from audit.signer.orders import PERIOD_SECONDS, refusal
from kvcore.messages import Command
from tests.audit.signer import making
from tests.audit.signer.making import APPROVAL, ASKER, DECIDER, NODE, NOW, Log, decision_body, order_body

PERSON = {"risk": "R3", "approval": APPROVAL}


def asked(order=None, decision=None, *, order_leaf=None, decision_leaf=None, command=None, now=NOW, later=5):
    """What is said of a command: `order` and `decision` change the bodies' data, the rest leaves and command."""
    log = Log().fill(9)
    body = order if isinstance(order, bytes) else order_body(**(order or {}))
    at = log.add(body, **{"event_type": 0x0501, **(order_leaf or {})})
    log.fill(3)
    approved = None
    if decision is not None:
        body = decision if isinstance(decision, bytes) else decision_body(**decision)
        where = log.add(body, **{"event_type": 0x0230, "actor_ref": DECIDER, "flags": 16, **(decision_leaf or {})})
    log.fill(later)
    if decision is not None:
        approved = log.evidence(where)
    told = msgspec.convert(making.command(log, at, **(command or {})), Command)
    return refusal(told, log.evidence(at), approved, head=Head(log.size, log.root()), now=now)


@pytest.mark.parametrize("risk", ["R0", "R1", "R2"])
def test_an_order_in_the_log_is_enough_for_little_risk(risk):
    assert asked({"risk": risk}) is None
    assert asked({"risk": risk, "nodes": ["another", NODE], "kinds": ["verify", "purge"]}) is None


def test_with_much_risk_a_second_person_must_be_in_the_log_too():
    assert asked(PERSON, {}) is None
    assert asked(PERSON) == "approval-missing"
    assert asked({"risk": "R3"}, {}) == "approval-of-another-order", "an order that names no approval has none"


@pytest.mark.parametrize("kind", ["overwrite-media", "destroy-keys", "zap"])
def test_what_an_order_says_of_its_own_risk_is_not_believed(kind):
    told = {"risk": "R0", "kinds": [kind]}
    assert asked(told, command={"kind": kind}) == "approval-missing"
    assert asked({"risk": "R2", "kinds": ["purge", kind]}) == "approval-missing", "one of its kinds is enough"
    named = told | {"approval": APPROVAL}
    assert asked(named, {"risk": "R0"}, command={"kind": kind}) == "approval-of-another-risk"
    assert asked(named, {"risk": "R3"}, command={"kind": kind}) is None
    assert asked({"risk": "R3", "kinds": ["verify"], "approval": APPROVAL}, command={"kind": "verify"}) == (
        "approval-missing"
    ), "and it may ask for more"


def test_what_is_erased_behind_a_fence_and_its_keys_need_no_more_than_the_order_says():
    """One's own session is R0 and a namespace R1: who asks for more than one may says R3, and the second person too."""
    both = {"kinds": ["erase", "shred"], **making.bound()}
    args = making.reach()
    for kind in both["kinds"]:
        assert asked(both | {"risk": "R0"}, command={"kind": kind, "args": args}) is None
        assert asked(both | {"risk": "R2"}, command={"kind": kind, "args": args}) is None
        assert asked(both | {"risk": "R3"}, command={"kind": kind, "args": args}) == "approval-missing"
        assert asked(both | PERSON, {}, command={"kind": kind, "args": args}) is None
    low, erase = both | {"risk": "R0", "approval": APPROVAL}, {"kind": "erase", "args": args}
    assert asked(low, {"risk": "R0"}, command=erase) == "approval-of-another-risk", "keys are worth R1"
    assert asked(low, {"risk": "R1"}, command=erase) is None
    for kind in ("verify", "probe"):
        assert asked({"risk": "R0", "kinds": [kind]}, command={"kind": kind}) is None


def test_an_order_that_names_an_approval_needs_it_whatever_its_risk():
    assert asked({"risk": "R1", "approval": APPROVAL}) == "approval-missing"
    assert asked({"risk": "R1", "approval": APPROVAL}, {"risk": "R1"}) is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"command": {"kind": "erase"}}, "order-of-another-kind"),
        ({"command": {"node": "another"}}, "order-of-another-node"),
        ({"order": {"nodes": []}}, "order-of-another-node"),
        ({"order": {"nodes": [NODE + "0"]}}, "order-of-another-node"),
        ({"command": {"order_hash": "00" * 32}}, "order-of-another-command"),
        ({"command": {"order_hash": ""}}, "order-of-another-command"),
        ({"order": {"not_after": "2026-05-28T20:27:00Z"}}, "order-expired"),
        ({"order": {"not_after": "2026-05-28T20:00:00Z"}}, "order-expired"),
        ({"order": {"not_after": "2026-05-28T23:00:00"}}, "order-malformed"),
        ({"order": {"not_after": "2026-05-28T23:00:00+02:00"}}, "order-malformed"),
        ({"order": {"not_after": "tomorrow Z"}}, "order-malformed"),
        ({"order": {"not_after": 2e9}}, "order-malformed"),
        ({"order": {"risk": "R4"}}, "order-malformed"),
        ({"order": {"risk": "r2"}}, "order-malformed"),
        ({"order": {"risk": ""}}, "order-malformed"),
        ({"order": {"kinds": "purge"}}, "order-malformed"),
        ({"order": {"nodes": NODE}}, "order-malformed"),
        ({"order": {"action": "approval.decided"}}, "order-malformed"),
        ({"order": {"result": "denied"}}, "order-malformed"),
        ({"order": b"{}"}, "order-malformed"),
        ({"order": b'{"action":"order.approved","action":"x"}'}, "order-malformed"),
        ({"order": b'{"b":1,"a":1}'}, "order-malformed"),
        ({"order": b"[]"}, "order-malformed"),
        ({"order_leaf": {"event_type": 0x0502}}, "order-of-another-type"),
        ({"order_leaf": {"event_type": 0x0410}}, "order-of-another-type"),
        ({"order_leaf": {"outcome": 3}}, "order-not-success"),
        ({"order_leaf": {"outcome": 0}}, "order-not-success"),
        ({"order_leaf": {"flags": 8}}, "order-not-of-the-console"),
        ({"order_leaf": {"producer_id": 64}}, "order-not-of-the-console"),
        ({"order_leaf": {"producer_id": 127}}, "order-not-of-the-console"),
        ({"order_leaf": {"index": 8}}, "order-malformed"),
        ({"order_leaf": {"body_hash": bytes(32)}}, "order-body"),
        ({"order_leaf": {"time_us": int((NOW + 100) * 1e6)}}, "order-of-the-future"),
    ],
)
def test_no_other_order_is(change, code):
    assert asked(**change) == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"decision_leaf": {"actor_ref": ASKER}}, "approval-own"),
        ({"decision_leaf": {"actor_ref": bytes(16)}}, "approval-without-persons"),
        ({"order_leaf": {"actor_ref": bytes(16)}}, "approval-without-persons"),
        ({"decision": {"actor_kind": "system"}}, "approval-without-persons"),
        ({"order": PERSON | {"actor_kind": "system"}}, "approval-without-persons"),
        ({"order": PERSON | {"actor_kind": "token"}}, "approval-without-persons"),
        ({"decision": {"decision": "denied"}}, "approval-denied"),
        ({"decision": {"decision": "Approved"}}, "approval-denied"),
        ({"decision": {"object": "op-2"}}, "approval-of-another-order"),
        ({"decision": {"object_id": "another"}}, "approval-of-another-order"),
        ({"order": PERSON | {"approval": "another"}}, "approval-of-another-order"),
        ({"order": PERSON | {"operation": "op-2"}}, "approval-of-another-order"),
        ({"decision": {"risk": "R1"}}, "approval-of-another-risk"),
        ({"decision_leaf": {"event_type": 0x0501}}, "approval-of-another-type"),
        ({"decision_leaf": {"outcome": 2}}, "approval-not-success"),
        ({"decision_leaf": {"flags": 24}}, "approval-not-of-the-console"),
        ({"decision_leaf": {"producer_id": 64}}, "approval-not-of-the-console"),
        ({"decision_leaf": {"time_us": int((NOW - PERIOD_SECONDS) * 1e6)}}, "approval-too-old"),
        ({"decision_leaf": {"time_us": int(228 * PERIOD_SECONDS * 1e6) + 30_000_000}}, "approval-too-old"),
        ({"decision": b"{}"}, "approval-malformed"),
        ({"decision": b" {}"}, "approval-malformed"),
    ],
)
def test_no_other_approval_is(change, code):
    assert asked(**({"order": PERSON, "decision": {}} | change)) == code


def test_a_proof_holds_under_the_latest_head_of_this_log_alone():
    log = Log().fill(9)
    at = log.add(order_body(), event_type=0x0501)
    told, early = msgspec.convert(making.command(log, at), Command), log.evidence(at)
    log.fill(7)
    head = Head(log.size, log.root())
    assert refusal(told, log.evidence(at), None, head=head, now=NOW) is None
    assert refusal(told, early, None, head=head, now=NOW) == "order-not-in-log"
    foreign = Log().fill(8)
    foreign.add({"not": "this log's"})
    assert foreign.add(order_body(), event_type=0x0501) == at
    foreign.fill(7)
    assert foreign.leaves[at] == log.leaves[at]
    assert refusal(told, foreign.evidence(at), None, head=head, now=NOW) == "order-not-in-log"
    assert refusal(told, log.evidence(at), None, head=Head(9, log.root(9)), now=NOW) == "order-not-in-log"
    assert refusal(told, log.evidence(at), None, head=Head(0, bytes(32)), now=NOW) == "order-not-in-log"


def test_an_order_is_no_approval_and_an_approval_no_order():
    log = Log().fill(2)
    order = log.add(order_body(**PERSON), event_type=0x0501)
    approval = log.add(decision_body(), event_type=0x0230, actor_ref=DECIDER)
    head = Head(log.size, log.root())
    for first, second in ((order, order), (approval, approval), (approval, order)):
        told = msgspec.convert(making.command(log, first), Command)
        assert refusal(told, log.evidence(first), log.evidence(second), head=head, now=NOW)


def mutated(rng, evidence):
    """The evidence with one thing wrong in it."""
    parts = msgspec.to_builtins(evidence)
    where = rng.choice(["leaf", "index", "proof", "proof", "body", "cut", "swap"])
    if where in ("leaf", "body"):
        raw = bytearray(bytes.fromhex(parts["leaf"]) if where == "leaf" else parts["body"].encode())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(7)
        parts[where] = raw.hex() if where == "leaf" else raw.decode(errors="replace")
    elif where == "index":
        parts["index"] ^= 1 << rng.randrange(40)
    elif where == "cut":
        del parts["proof"][rng.randrange(len(parts["proof"]))]
    elif where == "swap":
        parts["proof"].insert(0, parts["proof"].pop())
    else:
        at = rng.randrange(len(parts["proof"]))
        parts["proof"][at] = f"{int(parts['proof'][at], 16) ^ (1 << rng.randrange(256)):064x}"
    return msgspec.convert(parts, type(evidence))


def test_of_ten_thousand_spoiled_orders_none_passes():
    log = Log().fill(21)
    order = log.add(order_body(**PERSON), event_type=0x0501)
    log.fill(6)
    approval = log.add(decision_body(), event_type=0x0230, actor_ref=DECIDER)
    log.fill(12)
    head, told = Head(log.size, log.root()), msgspec.convert(making.command(log, order), Command)
    good = [log.evidence(order), log.evidence(approval)]
    assert refusal(told, *good, head=head, now=NOW) is None
    rng, passed = random.Random(4), 0
    for _ in range(10_000):
        bad = list(good)
        which = rng.randrange(2)
        bad[which] = mutated(rng, bad[which])
        passed += refusal(told, *bad, head=head, now=NOW) is None
    assert passed == 0
