"""Plants what plans, operations, nodes and two persons would have left: one of each state, as rows of a database."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg
from django.db import models
from psycopg.types.json import Jsonb

from audit.models import Approval, Certificate
from catalog.models import DenyWindow, Hold, Operation, OperationTarget, Pin, Plan, Step
from catalog.operation_owners import place_number
from kvconsole.infra.sql import PLATFORM, uuid7
from kvcore.certificates import FORMAT, VERSION, CopyReceipts, body_bytes, complete, copy_row
from kvcore.erasure import CopyEvidence
from kvcore.messages import Receipt, Signed
from kvcore.plans import Blocker, Cell, Options, PlanInput, Requester, Selector, Target, plan_freeze, plan_to_json
from kvcore.receipts import CertificateBody
from kvcore.told import told_of
from tests.frontend.plant import TIERS, _insert

SOMEBODY = "user:0190aaaa-0000-7000-8000-000000000001"
ASKED = {"kind": "user", "id": "0190aaaa-0000-7000-8000-000000000001", "roles": ["destructive-operator"],
         "user_id": "0190aaaa-0000-7000-8000-000000000001", "holder": "", "tenant": "", "slug": ""}  # fmt: skip
FAR = timedelta(days=2)
"""Nobody looks at them meanwhile."""
KEY = "ab" * 16


def put(cx: psycopg.Connection, model: type[models.Model], **given: object) -> None:
    """A row of this table; what is not given is what the model says."""
    row = {}
    for field in model._meta.concrete_fields:
        if field.get_internal_type() == "CompositePrimaryKey":
            continue
        value = given.get(field.attname, given.get(field.name, field.get_default()))
        row[field.column] = Jsonb(value) if isinstance(field, models.JSONField) else value
    assert set(given) <= {name for field in model._meta.concrete_fields for name in (field.attname, field.name)}, given
    _insert(cx, model._meta.db_table, **row)


def cells(nodes: dict[str, UUID], blocks: int) -> tuple[Cell, ...]:
    """So many blocks in every node and tier; `fra-d2` does not answer."""
    return tuple(
        Cell(
            owner=place_number(node, "reference", 0, tier), node=name, source="reference", tier=tier,
            reachable=name != "fra-d2", boot="b", stream="s", seq=9, blocks=blocks * at, bytes=blocks * at * 16384,
        )
        for name, node in nodes.items()
        for at, tier in enumerate(TIERS, 1)
    )  # fmt: skip


def plan(
    cx: psycopg.Connection, nodes: dict[str, UUID], now: datetime, *, by: str = SOMEBODY, wide: bool = False,
    old: bool = False, kind: str = "deletion", **options: object,
) -> UUID:  # fmt: skip
    """A plan of a label of acme-code, or of the whole tenant, with all that can stand in its way."""
    selector = Selector(tenant="acme-code", **({} if wide else {"label": "contracts"}))
    ns = "11" * 32
    mine = Target(ns=ns, gen_upto="2", tenant="acme-code", label="contracts", cells=cells(nodes, 1_204))
    shared = Target(ns="22" * 32, gen_upto="2", tenant="acme-code", shared_with=("cobalt-support",),
                    share_group=str(uuid7()), cells=cells(nodes, 3))  # fmt: skip
    at = (now - timedelta(hours=1) if old else now).timestamp()
    blockers = {
        "pins": (Blocker(kind="pin", ref=str(uuid7()), ns=ns, node="fra-p1", tier="dram", blocks=12),),
        "holds": (Blocker(kind="hold", ref=str(uuid7()), ns=ns, reason="Az. 7 K 1/26"),),
        "leases": (Blocker(kind="key_lease", ref="node", ns=ns, reason="4"),),
    }
    frozen = plan_freeze(
        PlanInput(
            kind=kind, selector=selector, targets=(mine, shared), requester=Requester(ref=by),
            options=Options(**options), totals={tier: 2**40 for tier in TIERS},
            sample=tuple(hashlib.sha256(bytes([n])).hexdigest()[:32] for n in range(100)), **blockers,
        ),
        at,
    )  # fmt: skip
    pk = uuid7()
    put(
        cx, Plan, id=pk, kind=kind, tenant_id=tenant_of(cx), requested_by=by, selector=msgspec.to_builtins(selector),
        options=msgspec.to_builtins(frozen.options), body=json.loads(msgspec.json.encode(plan_to_json(frozen))),
        plan_hash=bytes.fromhex(frozen.plan_hash), risk=frozen.risk, created_at=now,
        expires_at=datetime.fromtimestamp(frozen.expires_at, UTC),
    )  # fmt: skip
    return pk


def tenant_of(cx: psycopg.Connection, slug: str = "acme-code") -> UUID:
    """The id of a tenant that is there."""
    return cx.execute("SELECT id FROM tenants_tenant WHERE slug = %s", (slug,)).fetchone()[0]


def operation(cx: psycopg.Connection, now: datetime, **given: object) -> UUID:
    """An operation on a label of acme-code, asked for two minutes ago."""
    pk = uuid7()
    at = now - timedelta(minutes=2)
    fenced = given.get("fenced_at", at + timedelta(milliseconds=12))
    put(
        cx, Operation, **{
            "id": pk, "tenant_id": tenant_of(cx), "kind": "deletion", "plan_hash": bytes(32), "risk": "R1",
            "selector": {"tenant": "acme-code", "label": "contracts"}, "requested_by": SOMEBODY, "requester": ASKED,
            "deadline": now + FAR, "not_after": now + FAR, "due_at": now + FAR, "created_at": at, "fenced_at": fenced,
            **given,
        },
    )  # fmt: skip
    if fenced:
        put(cx, OperationTarget, operation=pk, tenant_id=tenant_of(cx), digest=hashlib.sha256(pk.bytes).digest(),
            min_gen=2, fence_seq=1)  # fmt: skip
    return pk


def logged(cx: psycopg.Connection) -> int:
    """An event that stands under the signed head, by its number; there is no such event."""
    number = 9_000_000_000
    cx.execute("INSERT INTO audit_leaf (idx, event, time_us, hash, data) VALUES (41, %s, 1, %s, %s)"
               " ON CONFLICT DO NOTHING", (number, bytes(32), bytes(148)))  # fmt: skip
    cx.execute("UPDATE audit_signing SET size = greatest(size, 42), signed_at = now(), signer = 'ok'")
    return number


def receipt(node: UUID, step: UUID, kind: str, tier: str, blocks: int, at: float) -> Signed:
    """What the node answered; nobody signed it."""
    position = {"boot": "b", "stream": "s", "seq": 12}
    medium = {"type": "flash" if tier == "ssd" else "memory", "encrypted": tier in ("ssd", "remote"),
              "emulated": tier == "hbm"}  # fmt: skip
    readback = {"method": "readback", "sampled": 8, "clean": 8, "evidence": ""}
    detail = {
        "erase": {
            "objects_root": "00" * 32, "objects": blocks, "blocks": blocks, "bytes": blocks * 16384,
            "technique": "memset", "readback": readback, "medium": medium, "class_claimed": 3, "stream_pos": position,
            "started_us": 1, "finished_us": 2, "residual": [], "remaining": {"blocks": 0, "leased_until": None},
        },
        "verify": {
            "found_blocks": 0, "found_bytes": 0, "listed_at_us": 3, "counters": {"used_bytes": 0, "blocks": 0},
            "readback": readback, "medium": medium, "stream_pos": position,
        },
    }[kind]  # fmt: skip
    said = Receipt(v=1, outcome="done", at=at, prev="0" * 64, step=str(step), kind=kind, node=str(node),
                   detail=detail)  # fmt: skip
    return Signed(body=msgspec.to_builtins(said), key=KEY, signature="cd" * 64)


def steps(cx: psycopg.Connection, pk: UUID, nodes: dict[str, UUID], now: datetime, kinds: dict[str, str]) -> UUID:
    """Steps in every node and tier: of each kind in this state; `fra-d2` has answered nothing. One with a receipt."""
    last = pk
    for name, node in nodes.items():
        for at, tier in enumerate(TIERS, 1):
            for kind, state in kinds.items():
                step, silent = uuid7(), name == "fra-d2"
                answer = None if silent or state != "done" else receipt(node, step, kind, tier, at, now.timestamp())
                put(
                    cx, Step, id=step, operation=pk, tenant_id=tenant_of(cx), intent_generation=1, node=node,
                    source="reference", tier=tier, owner=place_number(node, "reference", 0, tier), kind=kind,
                    args={}, state="waiting" if silent else state, created_at=now, due_at=now + FAR,
                    sent_at=now, done_at=now if answer else None, total_bytes=at * 16384, total_blocks=at,
                    done_bytes=at * 16384 if answer else 0, done_blocks=at if answer else 0,
                    receipt=msgspec.to_builtins(answer) if answer else None,
                    told=told_of(msgspec.convert(answer.body, Receipt)) if answer else {},
                    receipt_hash=hashlib.sha256(step.bytes).hexdigest() if answer else "",
                )  # fmt: skip
                last = step if answer else last
    return last


def certificate(cx: psycopg.Connection, pk: UUID, nodes: dict[str, UUID], now: datetime, *, odd: bool) -> UUID:
    """The certificate of an operation; `odd`: a node did not answer."""
    rows, kept = [], []
    for name, node in nodes.items():
        for at, tier in enumerate(TIERS, 1):
            silent = odd and name == "fra-d2"
            signed = {k: receipt(node, uuid7(), k, tier, at, now.timestamp()) for k in ("erase", "verify")}
            of = {k: (msgspec.convert(one.body, Receipt), "b", 0) for k, one in signed.items()}
            kept += [] if silent else list(signed.values())
            told = CopyEvidence(fenced=True, unroutable=True, salt_honoured=True, reachable=not silent, believed=at,
                                encrypted=tier in ("ssd", "remote"), emulated=tier == "hbm")  # fmt: skip
            answers = CopyReceipts() if silent else CopyReceipts(erased=of["erase"], verified=of["verify"])
            owner = place_number(node, "reference", 0, tier)
            rows.append(copy_row(node=str(node), source="reference", dp_rank=0, tier=tier, owner=owner,
                                 receipts=answers, told=told))  # fmt: skip
    times = {name: (now - timedelta(seconds=s)).isoformat().replace("+00:00", "Z")
             for name, s in (("request", 90), ("fence", 89), ("erase", 40), ("verify", 10))}  # fmt: skip
    body = complete(
        CertificateBody(
            v=VERSION, format=FORMAT, origin="demo.invalid/log", operation=str(pk), kind="deletion", generation=1,
            selector={"tenant": "acme-code", "label": "sha256:" + "12" * 32}, tenant_ref="34" * 16,
            targets=[{"namespace_ref": "11" * 32, "gen_upto": "2"}], plan_hash="56" * 32,
            order={"event_id": str(uuid7()), "index": 41, "body_hash": "78" * 32}, times=times, copies=rows, cls=0,
            flags=[], exceptions=[], requester_ref="9a" * 16, approver_refs=[], receipts_root="", receipts=[],
            node_keys={}, seal=False, issued_at=times["verify"],
        ),
        receipts=kept, production=False,
    )  # fmt: skip
    raw, at = body_bytes(body), uuid7()
    put(
        cx, Certificate, id=at, tenant_id=tenant_of(cx), operation=pk, body=raw, body_hash=hashlib.sha256(raw).digest(),
        note="export\nsha256\n\n\u2014 demo.invalid/export AAAA\n", erasure=int(body.cls), flags=list(body.flags),
        seal=False, exceptions=len(body.exceptions), event=1, issued_at=now,
    )  # fmt: skip
    cx.execute("UPDATE catalog_operation SET certificate = %s WHERE id = %s", (at, pk))
    return at


def approval(
    cx: psycopg.Connection, now: datetime, kind: str, named: str, what: dict, by: str = SOMEBODY, **given: object
) -> UUID:
    """Something that waits for a second person."""
    pk = uuid7()
    put(cx, Approval, id=pk, tenant_id=PLATFORM, kind=kind, object_id=named, what=what, risk="R3", requested_by=by,
        requested_at=now, expires_at=now + timedelta(hours=24), **given)  # fmt: skip
    return pk


def hold(cx: psycopg.Connection, now: datetime, state: str) -> UUID:
    """A legal hold on a label of acme-code that nobody caches anything of."""
    pk = uuid7()
    put(cx, Hold, id=pk, tenant_id=tenant_of(cx), selector={"tenant": "acme-code", "label": "matter-7"},
        namespaces=[uuid7()], authority="Amtsgericht, 7 K 1/26", reason="Rechtsstreit", state=state,
        review_at=now + timedelta(days=200), requested_by=SOMEBODY, requested_at=now)  # fmt: skip
    return pk


def drain(cx: psycopg.Connection, now: datetime, nodes: dict[str, UUID], order: int) -> UUID:
    """`fra-p2` is being emptied into `fra-p1`."""
    routes = [
        {"source": place_number(nodes["fra-p2"], "reference", 0, tier),
         "target": place_number(nodes["fra-p1"], "reference", 0, tier)} for tier in TIERS
    ]  # fmt: skip
    places = sorted({number for route in routes for number in route.values()})
    return operation(
        cx, now, kind="drain", tenant_id=PLATFORM, selector={"node": "fra-p2"}, risk="R0", finalizers=["catalog"],
        order_event=order, options={"routes": routes, "places": places, "tenants": {}, "node": str(nodes["fra-p2"])},
    )  # fmt: skip


def rules(cx: psycopg.Connection, now: datetime) -> dict[str, UUID]:
    """A window of the fleet that is open, one of a tenant that a cron line says, and a pin."""
    made = {name: uuid7() for name in ("window", "window-own", "pin")}
    said = {"requested_by": SOMEBODY, "created_at": now, "reason": "release week"}
    put(cx, DenyWindow, id=made["window"], tenant_id=PLATFORM, cron="0 0 * * *", minutes=1440, from_risk="R2", **said)
    put(cx, DenyWindow, id=made["window-own"], tenant_id=tenant_of(cx), cron="30 8 1 */3 *", minutes=90,
        from_risk="R1", **said)  # fmt: skip
    put(cx, Pin, id=made["pin"], tenant_id=tenant_of(cx), namespace=uuid7(), digest=bytes(32), until=now + FAR,
        keys=["ab" * 32], **said)  # fmt: skip
    return made


def operations(dsn: str, by: str = SOMEBODY) -> dict[str, Any]:
    """One of each; answers their ids. `by`: who asked for the plans and for one of the approvals."""
    now, made = datetime.now(UTC), {}
    with psycopg.connect(dsn) as cx:
        nodes = dict(cx.execute("SELECT name, id FROM catalog_node ORDER BY name").fetchall())
        made |= {"plan": plan(cx, nodes, now, by=by), "plan-R2": plan(cx, nodes, now, by=by, wide=True),
                 "plan-R3": plan(cx, nodes, now, by=by, crypto_erase=True),
                 "plan-old": plan(cx, nodes, now, by=by, old=True),
                 "plan-epoch": plan(cx, nodes, now, by=by, wide=True, kind="epoch")}  # fmt: skip
        ended = {"finalizers": [], "concluded_at": now}
        made["waiting"] = operation(cx, now, fenced_at=None, needs_approval=True, risk="R3", finalizers=["catalog"])
        what = {"kind": "deletion", "selector": {"tenant": "acme-code", "label": "contracts"}, "reason": "Art. 17",
                "blocks": 14_203, "bytes": 14_203 << 14, "tenants": ["acme-code"], "reasons": ["crypto-erase"],
                "plan_hash": "56" * 32}  # fmt: skip
        made["approval"] = approval(cx, now, "operation", str(made["waiting"]), what)
        made["own"] = approval(cx, now, "operation", str(uuid7()), what, by)
        cx.execute("UPDATE catalog_operation SET approval = %s WHERE id = %s", (made["approval"], made["waiting"]))
        made["fenced"] = operation(cx, now, grace_until=now + FAR, finalizers=["catalog", "keys"], throttle=64 << 20)
        order = logged(cx)
        made["erasing"] = operation(cx, now, finalizers=["catalog", "keys"], reason="Art. 17", order_event=order)
        made["receipt"] = steps(cx, made["erasing"], nodes, now, {"erase": "done", "verify": "waiting"})
        made |= {"node": "fra-p1", "drain": drain(cx, now, nodes, order), **rules(cx, now)}
        made["paused"] = operation(cx, now, finalizers=["catalog"], paused=True, order_event=order)
        steps(cx, made["paused"], nodes, now, {"erase": "done"})
        for outcome in ("stopped", "denied", "expired", "failed"):
            more = {"stopped_at": now} if outcome == "stopped" else {"fenced_at": None}
            problem = "plan-drifted" if outcome == "expired" else "targets-foreign" if outcome == "failed" else ""
            more |= {"plan": plan(cx, nodes, now, by=by, old=True)} if outcome == "expired" else {}
            made[outcome] = operation(cx, now, outcome=outcome, problem=problem, **more, **ended)
        for name, odd in (("completed", False), ("completed_with_exceptions", True)):
            made[name] = operation(cx, now, outcome=name, erased_at=now, verified_at=now, routed_at=now, **ended)
            steps(cx, made[name], nodes, now, {"erase": "done", "verify": "done"})
            made[f"certificate-{name}"] = certificate(cx, made[name], nodes, now, odd=odd)
        for state in ("awaiting_approval", "active", "releasing", "released", "denied"):
            made[f"hold-{state}"] = hold(cx, now, state)
        made["approval-hold"] = approval(
            cx,
            now,
            "hold",
            str(made["hold-awaiting_approval"]),
            {"authority": "7 K 1/26", "reason": "x", "selector": {"label": "matter-7"}},
        )
    return made
