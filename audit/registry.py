"""Decides which kinds of events there are: name, number, and the fields their data may have. It only grows.

The high byte of a number is its subject (1 identity, 2 policy, 3 catalog, 4 node, 5 deletion, 6 keys, 7 export,
8 break-glass, 15 the log itself), the low byte its verb. A number is never given twice, nor to another name. A field
keeps its type for ever; `name` alone is text, `name:type` another of `KINDS`, and with `?` it may also be null.

No field is made for personal data. What a person types (`free`) may be some, so `record` seals it and keeps it out of
the body.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

_TEXT, _BYTES = (str,), (str, bytes, bytearray, memoryview)
KINDS: dict[str, tuple[type, ...]] = {
    "text": _TEXT,
    "free": _TEXT,
    "int": (int,),
    "num": (int, float),
    "flag": (bool,),
    "hex": _BYTES,
    "time": (datetime, str),
    "list": (list, tuple, set, frozenset),
    "map": (Mapping,),
    "any": (str, int, float, list, Mapping),
}
"""Type of a field → what its value may be. `hex` are bytes, or their digits; a `list` is of texts or whole numbers."""
PERSONAL = frozenset(
    {
        *("username", "email", "mail", "phone", "password", "secret", "ip", "address", "addresses", "subject"),
        *("session", "prompt", "person", "people", "display_name", "first_name", "last_name", "full_name"),
        *("user_agent", "cookie"),
    }
)
"""Names that no field has: what they say belongs into the sealed part of an event."""
_LIST, _ITEMS = KINDS["list"], (str, int, UUID, Mapping, list)


@dataclass(frozen=True)
class EventType:
    """One kind of event."""

    number: int
    name: str
    fields: Mapping[str, str]
    """Field → its type as it is written in the table below, with `?` where it may be null."""
    takes: Mapping[str, tuple[tuple[type, ...], bool]]
    """Field → (types of its value, whether it may be null)."""
    free: frozenset[str]
    """Fields that are sealed."""

    def refusal(self, data: Mapping[str, Any]) -> str:
        """Why this cannot be the data of such an event, "" = it can be."""
        takes = self.takes
        for name, value in data.items():
            known = takes.get(name)
            if known is None:
                return f"there is no field {name!r}"
            types, nullable = known
            if value is None:
                if nullable:
                    continue
                return f"{name} is null"
            if not isinstance(value, types) or (type(value) is bool and bool not in types):
                return f"{name} is a {type(value).__name__}, not {self.fields[name]}"
            if types is _LIST and not all(isinstance(item, _ITEMS) for item in value):  # type: ignore[attr-defined]
                return f"{name} has items of other types"
        return ""


def _type(number: int, name: str, text: str) -> EventType:
    fields = dict(part.partition(":")[::2] if ":" in part else (part, "text") for part in text.split())
    takes = {field: (KINDS[kind.removesuffix("?")], kind.endswith("?")) for field, kind in fields.items()}
    if personal := PERSONAL & fields.keys():
        raise ValueError(f"{name}: {sorted(personal)} would be personal data in a body")
    if not 0x0100 <= number <= 0x0FFF:
        raise ValueError(f"{name}: {number:#06x} is no number of an event type")
    return EventType(number, name, fields, takes, frozenset(f for f, kind in fields.items() if kind == "free"))


def _types(*rows: tuple[int, str, str]) -> dict[str, EventType]:
    found = {name: _type(number, name, text) for number, name, text in rows}
    if len(found) != len(rows) or len({t.number for t in found.values()}) != len(rows):
        raise ValueError("an event type's name or number is given twice")
    return found


TYPES = _types(
    (0x0101, "tenant.created", "slug residency isolation classes:list erasure_scope retention:map"),
    (0x0102, "tenant.changed", "changed:list before:map after:map"),
    (0x0103, "tenant.closed", "slug namespaces:int share_groups:int"),
    (0x0110, "user.created", "roles:list tenant:text? kind"),
    (0x0111, "user.changed", "changed:list roles:list"),
    (0x0112, "user.logged_in", "method"),
    (0x0113, "user.login_refused", "reason repeated:int calls:int"),
    (0x0114, "user.logged_out", ""),
    (0x0115, "user.removed", ""),
    (0x0116, "user.stepped_up", "method"),
    (0x0120, "token.issued", "kind roles:list scopes:list expires_at:time holder"),
    (0x0121, "token.revoked", "kind reason"),
    (0x0122, "token.rotated", "kind replaced_by expires_at:time"),
    (
        0x0201, "model.registered",
        "name kv_dtype block_tokens:int tensor_parallel:int bytes_per_token:num config_hash base layout:map",
    ),
    (0x0202, "epoch.created", "model epoch:int weights_digest"),
    (0x0203, "epoch.retired", "model epoch:int policy"),
    (0x0204, "adapter.registered", "model name digest epoch:int"),
    (0x0205, "epoch.reopened", "model epoch:int operation"),
    (0x0210, "namespace.created", "digest:hex model model_epoch:int generation:int key_scheme share_group"),
    (0x0211, "namespace.generation_bumped", "digest:hex generation:int min_gen:int reason fence_seq:int"),
    (0x0212, "rollout.changed", "model shares:map before:map version:int horizon_seconds:int"),
    (0x0213, "namespaces.fenced", "namespaces:int fence_seq:int reason fences_hash:hex"),
    (0x0214, "fences.replayed", "namespaces:int fence_seq:int without:list"),
    (0x0220, "sharing.requested", "name owner audience:list expires_at:time reason:free approval residency"),
    (0x0221, "sharing.approved", "name owner audience:list approval decided_by"),
    (0x0222, "sharing.denied", "name owner approval decided_by reason:free"),
    (0x0223, "sharing.revoked", "name owner reason:free namespaces:int"),
    (0x0224, "sharing.expired", "name owner namespaces:int"),
    (0x0225, "sharing.left", "name owner member reason namespaces:int"),
    (0x0230, "approval.decided", "kind object decision risk reason:free"),
    (0x0240, "quota.changed", "tiers:map requests_per_second:int? deletions_per_hour:int? evict:flag"),
    (0x0241, "classes.changed", "rules:map"),
    (0x0242, "window.created", "cron minutes:int from_risk reason:free"),
    (0x0243, "window.removed", "cron minutes:int from_risk reason:free"),
    (0x0250, "policy.changed", "name version:int model kind params:map before:map"),
    (0x02F0, "access.refused", "route method status:int code repeated:int calls:int"),
    (0x02F1, "placement.refused", "namespace:hex node tier reason count:int"),
    (0x02F2, "placement.violated", "namespace:hex node tier reason count:int"),
    (0x02F3, "call.unchanged", "route method status:int why repeated:int calls:int"),
    (0x0301, "source.state_changed", "node source dp_rank:int state reason since:time"),
    (0x0302, "source.reset", "node source dp_rank:int boot reason"),
    (0x0401, "node.created", "name region zone rack role agent_url"),
    (0x0402, "node.enrolled", "name key agent_version agent_url tiers:map engine:map"),
    (0x0403, "node.state_changed", "name before after reason"),
    (0x0404, "node.changed", "name changed:list"),
    (0x0405, "node.dedicated", "name tenant evict:flag"),
    (0x0410, "command.ordered", "step kind node args:map"),
    (0x0411, "command.concluded", "step kind node state code receipt_hash"),
    (
        0x0501, "order.approved",
        "operation kinds:list nodes:list plan_hash:hex selector_hash:hex risk approval:text? not_after:time"
        " targets_root:hex? targets:int? force_after:time? fencing:flag",
    ),
    (
        0x0502, "operation.requested",
        "kind trigger plan_hash:hex selector_hash:hex risk namespaces:int fence_seq:int reason:free approval:text?"
        " grace_seconds:num",
    ),
    (0x0503, "operation.fenced", "namespaces:int fence_seq:int approval"),
    (0x0504, "operation.changed", "change generation:int bytes_per_second:int?"),
    (0x0505, "operation.stopped", "generation:int namespaces:int"),
    (0x0506, "operation.concluded", "state class:int? flags:list steps:int"),
    (
        0x0507, "receipt.accepted",
        "operation step node kind outcome receipt_hash:hex prev:hex blocks:int bytes:int found:int? refusal",
    ),
    (0x0508, "receipt.refused", "operation step node kind code receipt_hash:hex"),
    (
        0x0509, "certificate.issued",
        "operation body_hash:hex class:int flags:list seal:flag exceptions:int receipts:int supplements",
    ),
    (0x050A, "hold.requested", "authority review_at:time reason:free approval"),
    (0x050B, "hold.placed", "authority approval namespaces:int"),
    (0x050C, "hold.release_requested", "reason:free approval"),
    (0x050D, "hold.released", "approval"),
    (0x050E, "hold.denied", "approval"),
    (0x050F, "session.ended", "namespaces:int operation:text?"),
    (0x0520, "pin.created", "namespace blocks:int until:time reason:free"),
    (0x0521, "pin.removed", "namespace expired:flag"),
    (0x0601, "key.leased", "holder_kind holder leases:int new:int fence_seq:int leases_hash:hex"),
    (0x0602, "key.destroyed", "kind name keys:int"),
    (0x0701, "export.made", "range:map filters:map formats:list records:int manifest_sha256:hex"),
    (0x0702, "export.downloaded", "export format bytes:int"),
    (0x0703, "log.verified", "size:int root:hex first_divergent:int? verdict"),
    (0x0704, "log.searched", "range:map filters:map records:int"),
    (0x0705, "retention.requested", "class:int month approval"),
    (0x0706, "export.requested", "range:map filters:map formats:list proofs:flag personal_data:flag size:int"),
    (0x0707, "verification.requested", "size:int"),
    (0x0708, "job.cancelled", "kind"),
    (0x0709, "epoch.requested", "origin reason approval kept:int kept_root:hex note:free"),
    (0x070A, "finding.acknowledged", "finding:int kind about index:int? note:free"),
    (0x0710, "webhook.created", "events:list host state"),
    (0x0711, "webhook.changed", "events:list host state changed:list"),
    (0x0712, "webhook.removed", "host reason"),
    (0x0F01, "log.note", "note"),
    (0x0F02, "log.gap_found", "producer:int expected:int found:int?"),
    (0x0F03, "log.divergence_found", "kind index:int? detail:any"),
    (0x0F04, "log.scrubbed", "size:int leaves:int seconds:num verdict"),
    (0x0F05, "log.refused_by_signer", "code size:int signed_size:int?"),
    (0x0F06, "log.bodies_retired", "class:int month events:int first:int? last:int? digest:hex"),
    (0x0F07, "spool.imported", "events:int lost:int"),
    (0x0F08, "log.finding_settled", "finding:int kind about index:int? first_seen:time last_seen:time reason"),
    (
        0x0F09, "log.restored",
        "record old_origin old_size:int old_root:hex kept:int kept_root:hex approval approvers:list reason"
        " producers:map",
    ),
)  # fmt: skip
