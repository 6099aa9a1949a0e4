"""The log, seen from outside: who has taken over `web` and `worker` gets no signature that the log knows nothing of.

On a console of its own, with the real processes and all that they were given.
"""

import base64
import itertools
import json
import os
import random
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
import rfc8785

from audit.asked import Evidence
from kvconsole.embedded import Postgres
from kvcore.leaf import parse_leaf
from tests.accept.conftest import a_console
from tests.accept.fleet import say, until
from tests.accept.intruder import NODE, Intruder, command
from tests.accept.trail import Apart, Trail, a_trail
from tests.audit.signer import making
from tests.audit.signer.test_orders import mutated
from tests.audit.verifier.mutants import Bundle

pytestmark = [pytest.mark.accept, pytest.mark.walk]
SPOILED = 10_000 if os.environ.get("KVC_ACCEPT") == "full" else 100
ORDER, DECISION = 0x0501, 0x0230
MAKE = """
import json, uuid
from datetime import UTC, datetime, timedelta
from django.db import connection, transaction
from audit.models import Approval
from audit.services import APPROVAL, record
from kvconsole.infra.sql import PLATFORM
from tests.audit.beside import ROW, values
from kvconsole.infra.access import Principal, system
person = lambda n: Principal(kind="user", id=str(uuid.UUID(int=n)), roles=frozenset({"destructive-operator"}))
def order(actor, risk, approval=None, seconds=3600, operation=None):
    operation = operation or str(uuid.uuid4())
    with connection.cursor() as cursor:
        cursor.execute(ROW, values(operation, risk=risk, approval=approval))
    return record(event_type="order.approved", outcome="success", actor=actor, tenant_id=None,
        object_kind="operation", object_id=operation, body=dict(operation=operation, kinds=["purge"], nodes=[NODE],
        plan_hash=bytes(32), selector_hash=bytes(32), risk=risk, approval=approval,
        not_after=datetime.now(UTC) + timedelta(seconds=seconds)))
def decide(actor, approval, operation, decision="approved"):
    now = datetime.now(UTC)
    row = Approval.objects.create(id=approval, tenant_id=PLATFORM, kind="operation", object_id=operation, what={},
        risk="R3", requested_by=person(8).subject, requested_at=now, expires_at=now + timedelta(hours=1))
    row.state, row.decided_by, row.decided_at = decision, person(9).subject, now
    row.save(update_fields=["state", "decided_by", "decided_at"])
    return record(event_type="approval.decided", outcome="success", actor=actor, tenant_id=None,
        object_kind="approval", object_id=approval, flags=APPROVAL,
        body=dict(kind="operation", object=operation, decision=decision, risk="R3", reason=""))
a, b, c = (str(uuid.uuid4()) for _ in range(3))
one, two, three = (str(uuid.uuid4()) for _ in range(3))
with transaction.atomic():
    made = dict(decided=decide(person(9), a, one), order=order(person(8), "R3", a, operation=one),
                own=decide(person(8), b, two), of_own=order(person(8), "R3", b, operation=two),
                denied=decide(person(9), c, three, "denied"),
                small=order(system("worker"), "R1"), brief=order(system("worker"), "R1", seconds=SECONDS))
print(json.dumps({name: str(event.event_id) for name, event in made.items()}))
"""


@pytest.fixture(scope="module")
def trail(postgres: Postgres, template: str, service_base: Path) -> Iterator[Trail]:
    """A console with a log that is signed; its people are there."""
    with a_console(postgres, template, service_base) as console, a_trail(console) as made:
        made.signed()
        yield made


@pytest.fixture(scope="module")
def events(trail: Trail) -> dict[str, str]:
    """Orders and decisions as the console records them, under the signed head; name → id."""
    code = MAKE.replace("NODE", repr(NODE)).replace("SECONDS", "1.0")
    made: dict[str, str] = json.loads(trail.console.manage("shell", "-v", "0", "-c", code))
    trail.signed()
    return made


@pytest.mark.timeout(900)
def test_a_worker_and_a_web_process_in_an_attackers_hands_get_no_signature_without_an_approved_logged_order(
    trail: Trail, events: dict[str, str], tmp_path: Path
) -> None:
    """All that the two have is used. What they can still do is record a false order: then it is in the log."""
    intruder = Intruder(trail.console, "web", "worker")
    assert {"operator", "tenant", "audit"} <= set(intruder.roles)
    assert not {"seq", "migrate", "superuser"} & set(intruder.roles)
    site = trail.console.site.env("signer")
    private = {site[name] for name in site if name.endswith("_KEY_FILE") or name.startswith("KVC_SIGNER_STATE")}
    assert not (private | {site["KVC_SIGNER_LOG_TOKEN"]}) & set(intruder.env.values())
    assert "signer-on-this-host" in trail.auditor.get("/audit/state")["doubts"], "root here could read the keys"

    nothing = _without_an_order(intruder)
    another = _with_anothers_order(intruder, events)
    spoiled = _spoiled(intruder, events)
    tables = _tables(intruder)
    assert not intruder.signed
    assert intruder.follow(events["order"], events["decided"]) == intruder.follow(events["small"]) == ""
    honest = len(intruder.signed)
    bound = bool(intruder.follow(events["order"], events["decided"], args={"namespaces": ["another"]}))
    forged = _false_orders(trail, intruder)
    unlogged = _unlogged(trail, intruder, tmp_path)
    say("audit-attackers", tries=intruder.refused.total() + len(intruder.signed), refused=intruder.refused,
        ways={"nothing": nothing, "another order": another, "spoiled": spoiled, "tables": tables},
        signed_for_true_orders=honest, arguments_are_bound_to_the_order=bound,
        signed_for_false_orders_that_were_logged_first=forged,
        signed_without_a_logged_order=len(unlogged))  # fmt: skip
    assert not unlogged


def _without_an_order(intruder: Intruder) -> int:
    """No order, one in a tree of the attacker's own, and every secret in the place of the one that signs heads."""
    before = intruder.refused.total()
    own = making.Log().fill(20)
    risk = {"risk": "R3", "approval": making.APPROVAL, "not_after": "2199-01-01T00:00:00Z", "nodes": [NODE]}
    order = own.add(making.order_body(**risk), event_type=ORDER, time_us=int(time.time() * 1e6))
    decision = own.add(making.decision_body(), event_type=DECISION, actor_ref=making.DECIDER)
    proved = msgspec.to_builtins({"order": own.evidence(order), "approval": own.evidence(decision)})
    told = command(own.leaves[order][84:116].hex())
    for kind in ("purge", "erase", "clear", "drop", "Purge", "purge ", "PING", "ping\n", "ping,purge", "", "x" * 40):
        assert intruder.wants({"command": told | {"kind": kind}}), kind
        assert intruder.wants({"command": told | {"kind": kind}, **proved}), kind
    for size in (own.size, intruder.size()):
        assert intruder.wants({"command": told, **proved, "size": size}) in ("stale-size", "order-not-in-log")
    raw = json.dumps({"command": told | {"kind": "ping"}})
    twice = raw.replace('"kind": "ping"', '"kind": "ping", "kind": "purge"')
    assert intruder.wants(twice.encode()) == "command-malformed"
    head, size = own.head(0), own.size
    for token in intruder.loot():
        if "\n" not in token:
            for asked in (head, head | {"old_size": size}, {**head, "new_size": size + 1, "old_size": size}):
                assert intruder.ask("/v1/checkpoint", asked, token)[0] in (401, 403)
            assert intruder.wants({"command": told, **proved}, token)
    assert intruder.ask("/v1/public-keys")[1]["root"] != own.root().hex()
    for path, body in (("/v1/prove", told), ("/v1/export", {"manifest_sha256": told["order_hash"], "command": told})):
        assert intruder.ask(path, body)[0] == 400, "no other signature is one of a command"
    return intruder.refused.total() - before


def _with_anothers_order(intruder: Intruder, events: dict[str, str]) -> int:
    """Orders of the log for what they do not say: over, of another kind, node, approval or person."""
    before, now = intruder.refused.total(), time.time()
    assert intruder.follow(events["brief"]) == "order-expired"
    approved = (events["order"], events["decided"])
    for change, code in (({"kind": "erase"}, "kind"), ({"node": str(uuid.uuid4())}, "node"),
                         ({"order_hash": "00" * 32}, "command")):  # fmt: skip
        assert intruder.follow(*approved, **change) == f"order-of-another-{code}"
    assert intruder.follow(*approved, expires_at=now + 3600) == "command-expired"
    assert intruder.follow(events["order"]) == "approval-missing"
    assert intruder.follow(events["order"], events["denied"]) == "approval-of-another-order"
    assert intruder.follow(events["of_own"], events["own"]) == "approval-own"
    assert intruder.follow(events["order"], events["own"]) == "approval-of-another-order"
    for order, decision in itertools.product(("decided", "own", "denied"), events.values()):
        assert intruder.follow(events[order], decision) == "order-of-another-type"
    return intruder.refused.total() - before


def _spoiled(intruder: Intruder, events: dict[str, str]) -> int:
    """One thing is wrong with a good order or its approval."""
    supply, before = random.Random(4), intruder.refused.total()
    good = intruder.request(events["order"], events["decided"])
    for _ in range(SPOILED):
        which = supply.choice(("order", "approval"))
        bad = msgspec.to_builtins(mutated(supply, msgspec.convert(good[which], Evidence)))
        assert intruder.wants(good | {which: bad, "size": None})
    return intruder.refused.total() - before


def _tables(intruder: Intruder) -> int:
    """With every role: a leaf, a head, another history; an order as a tenant, a router or a reader of the log."""
    order = rfc8785.dumps(making.order_body(risk="R0", nodes=[NODE]))
    statements = (
        "INSERT INTO audit_leaf VALUES (99999, 1, 1, sha256(''), sha256(''))",
        "INSERT INTO audit_checkpoint VALUES (99999, sha256(''), '', now())",
        "UPDATE audit_tree SET root = sha256('')",
        "UPDATE audit_signing SET size = 99999, root = sha256('')",
        "UPDATE audit_leaf SET data = data",
        "UPDATE audit_event SET outcome = 1",
        "DELETE FROM audit_pending",
        "UPDATE audit_producer SET seq = 0",
    )
    refused = 0
    for role in intruder.roles:
        with intruder.connect(role) as c:
            for statement in statements:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    c.execute(statement)
                refused += 1
        if role != "operator":
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                intruder.plant(order, event_type=ORDER, role=role)
            refused += 1
    return refused


def _false_orders(trail: Trail, intruder: Intruder) -> int:
    """Orders that nobody gave, as `web` can write them. Once they are sealed everybody sees them, the signer too.

    Of which producer an event is, at what time and place: that the database says, and not who writes it.
    """
    risk = {"risk": "R3", "approval": making.APPROVAL, "nodes": [NODE], "not_after": "2199-01-01T00:00:00Z"}

    def order(**data: Any) -> bytes:
        said = {**risk, "risk": "R0", "approval": None, "operation": str(uuid.uuid4()), **data}
        return rfc8785.dumps(making.order_body(**said))

    for column, value in (("producer_id", 99), ("time_us", int(time.time() * 1e6)), ("id", 7)):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            intruder.plant(order(), event_type=ORDER, **{column: value})
    decision, bare = rfc8785.dumps(making.decision_body()), order(**risk | {"approval": None})
    for body, kind in ((order(**risk), ORDER), (bare, ORDER), (decision, DECISION)):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):  # no row says so, and none may
            intruder.plant(body, event_type=kind, actor=making.DECIDER)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):  # nobody asked for such an operation
        intruder.plant(order(), event_type=ORDER, row=False)
    named = str(uuid.uuid4())
    planted = {
        "keys": intruder.plant(order(kinds=["sanitise"]), event_type=ORDER),
        "named": intruder.plant(order(kinds=["erase"], operation=named, **making.bound()), event_type=ORDER),
        "wide": intruder.plant(order(kinds=["erase"]), event_type=ORDER),
        "small": intruder.plant(order(), event_type=ORDER),
    }
    trail.signed()
    assert intruder.follow(planted["keys"], kind="sanitise") == "approval-missing", (
        "its own word for its risk is not enough"
    )
    assert intruder.follow(planted["wide"], kind="erase", args=making.reach()) == "order-without-targets"
    other = making.reach((making.EraseTarget(ns="ff" * 32, gen_upto="2"),), operation=named)
    assert intruder.follow(planted["named"], kind="erase", args=other) == "order-of-other-targets"
    assert intruder.follow(planted["small"]) == ""
    seen = {event["id"]: event for event in trail.events(action="order.approved")}
    assert set(planted.values()) <= set(seen)
    assert all(event["producer_id"] < 64 and event["index"] is not None for event in seen.values())
    return 1


def _unlogged(trail: Trail, intruder: Intruder, tmp_path: Path) -> list[dict[str, Any]]:
    """Signatures over destructive commands whose order, and for R3 whose decision, no verified export shows."""
    apart = Apart(tmp_path / "apart")
    apart.put("keys.txt", "\n".join(trail.signed()["keys"]))
    made = Bundle(trail.export())
    apart.take_out(apart.put("all.zip", made.data), "verify.py")
    assert apart.verify("bundle", "all.zip", "--keys", "keys.txt").exit == 0
    orders, decided = dict[str, Any](), set[tuple[str, str]]()
    for line in made.files["events.jsonl"].splitlines():
        record = json.loads(line)
        leaf = parse_leaf(base64.b64decode(record["leaf"]))
        if leaf.event_type == ORDER:
            orders[leaf.body_hash.hex()] = record["body"]["data"]
        elif leaf.event_type == DECISION and record["body"]["data"]["decision"] == "approved":
            decided.add((record["body"]["object"]["id"], record["body"]["data"]["object"]))

    def is_logged(body: dict[str, Any]) -> bool:
        order = orders.get(body["order_hash"])
        named = order is not None and body["kind"] in order["kinds"] and body["node"] in order["nodes"]
        return named and (order["risk"] != "R3" or (order["approval"], order["operation"]) in decided)

    return [one for one in intruder.signed if not is_logged(one["body"])]


@pytest.mark.timeout(300)
def test_a_signer_whose_state_was_set_back_signs_no_order_that_it_has_not_seen_and_the_log_says_so(
    trail: Trail, events: dict[str, str], tmp_path: Path
) -> None:
    """The attacker of before, and somebody who puts yesterday's state file back."""
    console, state = trail.console, Path(trail.console.site.env("signer")["KVC_SIGNER_STATE"])
    shutil.copy(state, tmp_path / "yesterday")
    intruder = Intruder(console, "web", "worker")
    code = MAKE.replace("NODE", repr(NODE)).replace("SECONDS", "3600")
    order = json.loads(console.manage("shell", "-v", "0", "-c", code))["small"]
    size = trail.signed()["size"]
    findings = trail.auditor.get("/audit/state")["findings"]
    for name in ("sequencer", "signer"):
        console.kill(name)
    shutil.copy(tmp_path / "yesterday", state)
    console.start("signer")
    assert intruder.size() < size
    proof = intruder.evidence(order, size)
    assert proof is not None
    assert intruder.wants({"command": command(proof["leaf"][168:232]), "order": proof, "size": size}) == "stale-size"
    assert intruder.wants({"command": command(proof["leaf"][168:232]), "order": proof}) == "order-not-in-log"
    own = making.Log().fill(40)
    assert {intruder.ask("/v1/checkpoint", own.head(0), token)[0] for token in intruder.loot()} <= {401, 403}
    console.start("sequencer")
    until(lambda: intruder.size() >= size, 30, "the log is signed again")
    assert intruder.follow(order) == ""
    until(lambda: trail.auditor.get("/audit/state")["findings"] == findings + 1, 10, "it is a finding")
    (told,) = [one for one in trail.events(action="log.divergence_found") if one["data"]["kind"] == "signer-set-back"]
    assert told["data"]["index"] < size
    say("audit-set-back", signed=size, forgotten=size - told["data"]["index"], named=told["data"]["kind"])
