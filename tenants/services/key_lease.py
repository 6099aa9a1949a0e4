"""Decides who gets which subkeys for how long, and takes the acknowledgement of fences that comes with the asking.

Nodes get `blk` and `enc` of the namespaces they may hold and the tag of each generation's salt; gateways get `blk` and
`salt`. Five minutes, in memory only: who is not renewed can do nothing with a namespace after that.
"""

import hashlib
import hmac
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import connections, transaction
from django.utils.module_loading import import_string

from audit.services import record
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.keystore import KeyMissing, KeyStore, keystore, namespace_name, node_name
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import PLATFORM, named
from kvcore.keys import engine_salt, salt_tag, subkey
from tenants import selectors
from tenants.models import FenceAck
from tenants.selectors import NamespaceRow
from tenants.whole import need_fences

LEASE_SECONDS = 300
SUBKEYS = {"node": ("blk", "enc"), "gateway": ("blk", "salt")}


class KeyLeases(msgspec.Struct, frozen=True):
    """The answer to a holder: hex in JSON."""

    leases: list[dict[str, Any]]
    fence_seq: int
    fences_after: list[dict[str, Any]]
    ticket_key: str = ""
    denied: list[dict[str, Any]] = []
    """Nodes only: namespaces that may not be there, whose they are, and why."""


def key_leases_renew(
    *, principal: Principal, held: dict[str, int], fence_seq: int, everything: bool, now: datetime
) -> KeyLeases:
    """The holder may use what is in the answer until `until`, has acknowledged fences to `fence_seq`, hears newer ones.

    Args:
        principal: of kind node or gateway.
        held: digest (hex) → generation, of what it holds; what is fenced since is not renewed.
        fence_seq: up to where it has applied fences.
        everything: all namespaces it may hold, not only those of `held`.

    Raises:
        Problem: forbidden: it is no holder; token-invalid or node-fenced: it is not one any more. Nothing was leased
            and no fence was acknowledged.
    """
    kind = principal.kind
    if kind not in SUBKEYS:
        raise Problem("forbidden")
    need_fences()
    holder, until = principal.holder or principal.id, now + timedelta(seconds=LEASE_SECONDS)
    _require_standing(kind, holder)
    rows, policies = _allowed(principal)
    chosen = rows if everything or not held else [r for r in rows if r.digest.hex() in held]
    store = keystore()
    with transaction.atomic(using=plane()):
        fence_acknowledge(
            holder_kind=kind, holder=holder, seq=fence_seq, tenant_id=principal.tenant_id or PLATFORM, now=now
        )
        leases = [lease for row in chosen if (lease := _lease(store, row, kind, until))]
        for lease in leases:
            lease.update(policies.get(lease["namespace"], {}))
        new = _remember(leases, chosen, kind=kind, holder=holder, tenant_id=principal.tenant_id, now=now, until=until)
        latest, fences = selectors.fences_after(fence_seq)
        _record_leases(principal, kind, holder, leases, new, fence_seq)
    return KeyLeases(
        leases=leases,
        fence_seq=latest,
        fences_after=[{"namespace": f.ns.hex(), "min_gen": f.min_gen} for f in fences],
        ticket_key=ticket_key(holder, now).hex() if kind == "node" else "",
        denied=[
            {"namespace": ns, "tenant": policy["tenant"], "reason": policy["denied"]}
            for ns, policy in policies.items()
            if "denied" in policy
        ],
    )


def _require_standing(kind: str, holder: str) -> None:
    """Passes if the room that knows such holders has nothing against this one.

    Nodes are the catalog's, which is above this room: it is named in settings, as the task sender is.
    """
    named_in_settings = settings.KEY_HOLDERS.get(kind)
    refusal = import_string(named_in_settings)(holder) if named_in_settings else None
    if refusal:
        raise Problem(refusal)


def fence_acknowledge(*, holder_kind: str, holder: str, seq: int, now: datetime, tenant_id: UUID = PLATFORM) -> None:
    """The holder (node, gateway, router) has applied the fences up to `seq`; it never goes back."""
    latest, _ = selectors.fences_after(2**62)
    with connections[plane()].cursor() as cursor:
        cursor.execute(
            named("tenants")["fence_acknowledge"], (tenant_id, holder_kind, holder, max(0, min(seq, latest)), now)
        )


def ticket_key(node: str, day: datetime) -> bytes:
    """The key of a node's tickets on a day (UTC)."""
    secret = keystore().ensure(node_name(node))
    label = b"kvconsole/ticket-key/v1\0" + day.strftime("%Y-%m-%d").encode() + b"\x01"
    return hmac.digest(secret, label, "sha256")


def ticket_day(node: str, now: datetime) -> datetime:
    """The day whose ticket key the node has: that of its last renewal."""
    last = FenceAck.objects.filter(tenant_id=PLATFORM, holder_kind="node", holder=node).values_list("at", flat=True)
    return last.first() or now


def ticket_keys(nodes: Collection[str], now: datetime) -> dict[str, bytes]:
    """The present ticket keys of nodes, each of the day that the node has one of; routers keep them for a moment.

    Raises:
        KeyMissing: a node's secret was destroyed.
        KeyStoreUnavailable: it cannot be read.
    """
    rows = FenceAck.objects.filter(tenant_id=PLATFORM, holder_kind="node", holder__in=list(nodes))
    last = dict(rows.values_list("holder", "at"))
    return {node: ticket_key(node, last.get(node, now)) for node in nodes}


def _allowed(principal: Principal) -> tuple[list[NamespaceRow], dict[str, dict[str, Any]]]:
    """The namespaces that the holder may lease, and what a node is told of each (digest in hex) and of the others."""
    rows = selectors.namespaces_active(resolved=principal.kind == "gateway")
    if principal.kind == "gateway":
        return rows, {}
    region = next((s.removeprefix("region:") for s in principal.scopes if s.startswith("region:")), "")
    ask = import_string(settings.NAMESPACE_POLICY)
    told = ask(node=principal.holder, region=region, digests=[row.digest for row in rows])
    policies: dict[str, dict[str, Any]] = {}
    for digest, policy in told.items():
        line = {"tenant": policy.tenant, "barred": policy.barred, "metered": policy.metered,
                "pins": policy.pins}  # fmt: skip
        policies[digest.hex()] = {"tenant": policy.tenant, "denied": policy.shut} if policy.shut else line
    return [row for row in rows if "denied" not in policies.get(row.digest.hex(), {})], policies


def _lease(store: KeyStore, row: NamespaceRow, kind: str, until: datetime) -> dict[str, Any] | None:
    """None: the generation's key was destroyed."""
    try:
        secret = store.secret(namespace_name(row.digest, row.generation))
    except KeyMissing:
        return None
    lease: dict[str, Any] = {
        "namespace": row.digest.hex(),
        "generation": row.generation,
        "block_tokens": row.block_tokens,
        "subkeys": {label: subkey(secret, label).hex() for label in SUBKEYS[kind]},
        "until": until.isoformat().replace("+00:00", "Z"),
    }
    if kind == "node":
        lease["salt_tag"] = salt_tag(engine_salt(subkey(secret, "salt"))).hex()
    return lease


def _remember(
    leases: list[dict[str, Any]],
    rows: list[NamespaceRow],
    *,
    kind: str,
    holder: str,
    tenant_id: UUID | None,
    now: datetime,
    until: datetime,
) -> int:
    """How many leases are new. A tenant's gateway holds leases as the tenant's, also of shared namespaces."""
    by_digest = {row.digest.hex(): row for row in rows}
    held = [by_digest[lease["namespace"]] for lease in leases]
    values: dict[str, Any] = {
        "kind": kind,
        "holder": holder,
        "now": now,
        "until": until,
        "tenants": [tenant_id or row.tenant_id for row in held],
        "namespaces": [row.id for row in held],
        "generations": [row.generation for row in held],
    }
    with connections[plane()].cursor() as cursor:
        cursor.execute(named("tenants")["lease_renew"], values)
        return sum(new for _, new in cursor)


def _record_leases(
    principal: Principal, kind: str, holder: str, leases: list[dict[str, Any]], new: int, fence_seq: int
) -> None:
    listed = hashlib.sha256()
    for lease in leases:
        listed.update(bytes.fromhex(lease["namespace"]) + lease["generation"].to_bytes(8, "big"))
    record(
        event_type="key.leased",
        outcome="success",
        actor=principal,
        tenant_id=principal.tenant_id,
        object_kind=kind,
        object_id=holder,
        body={
            "holder_kind": kind,
            "holder": holder,
            "leases": len(leases),
            "new": new,
            "fence_seq": fence_seq,
            "leases_hash": listed.hexdigest(),
        },
    )
