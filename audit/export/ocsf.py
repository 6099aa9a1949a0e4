"""Decides what records are in OCSF 1.8.0, one JSON line each: class, activity, and what the class requires.

`MAPPED` is the whole mapping. Where OCSF wants what the log does not say in clear (an address, a person's name), the
pseudonymous names of the log stand; what has no place there, and the proof's coordinates, are under `unmapped`.

Source: OCSF schema 1.8.0, https://schema.ocsf.io/1.8.0.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from audit.contents import UNREADABLE, Actor, Content, content_of
from audit.export.records import Record
from audit.selectors import NAMES, OUTCOMES, flags_of

VERSION = "1.8.0"
PRODUCT = {"name": "KV Console", "vendor_name": "KV Console", "uid": "kv-console"}
OTHER = 99
ACCOUNT, AUTHENTICATION, SESSION, ENTITY, ACCESS, GROUP = 3001, 3002, 3003, 3004, 3005, 3006
COMPLIANCE, DATA_FINDING, LIFECYCLE, API, DATASTORE = 2003, 2006, 6002, 6003, 6005
CLASS_NAMES = {
    ACCOUNT: "Account Change", AUTHENTICATION: "Authentication", SESSION: "Authorize Session",
    ENTITY: "Entity Management", ACCESS: "User Access Management", GROUP: "Group Management",
    COMPLIANCE: "Compliance Finding", DATA_FINDING: "Data Security Finding", LIFECYCLE: "Application Lifecycle",
    API: "API Activity", DATASTORE: "Datastore Activity",
}  # fmt: skip
CATEGORY_NAMES = {2: "Findings", 3: "Identity & Access Management", 6: "Application Activity"}
INFORMATIONAL, LOW, MEDIUM, HIGH, CRITICAL = 1, 2, 3, 4, 5
SEVERITIES = {1: "Informational", 2: "Low", 3: "Medium", 4: "High", 5: "Critical"}
STATUSES = {"unknown": (0, "Unknown"), "success": (1, "Success"), "failure": (2, "Failure"), "denied": (2, "Failure")}
Data = Mapping[str, Any]


class Kind(NamedTuple):
    """What events of one type are in OCSF. `severity` 0: by their outcome."""

    class_uid: int
    activity: int
    severity: int = 0


MAPPED: dict[str, Kind] = {
    "tenant.created": Kind(ENTITY, 1),
    "tenant.changed": Kind(ENTITY, 3),
    "tenant.closed": Kind(ENTITY, 4),
    "user.created": Kind(ACCOUNT, 1),
    "user.changed": Kind(ACCOUNT, OTHER),
    "user.logged_in": Kind(AUTHENTICATION, 1),
    "user.login_refused": Kind(AUTHENTICATION, 1, MEDIUM),
    "user.logged_out": Kind(AUTHENTICATION, 2),
    "user.removed": Kind(ACCOUNT, 6),
    "user.stepped_up": Kind(AUTHENTICATION, OTHER),
    "token.issued": Kind(ACCESS, 1),
    "token.revoked": Kind(ACCESS, 2),
    "token.rotated": Kind(ACCESS, 1),
    "model.registered": Kind(ENTITY, 1),
    "epoch.created": Kind(ENTITY, 1),
    "epoch.retired": Kind(ENTITY, 3),
    "epoch.reopened": Kind(ENTITY, 3, LOW),
    "adapter.registered": Kind(ENTITY, 1),
    "namespace.created": Kind(ENTITY, 1),
    "namespace.generation_bumped": Kind(ENTITY, 3),
    "namespaces.fenced": Kind(ENTITY, 3),
    "fences.replayed": Kind(ENTITY, 3),
    "rollout.changed": Kind(ENTITY, 3),
    "sharing.requested": Kind(GROUP, OTHER),
    "sharing.approved": Kind(GROUP, 1, LOW),
    "sharing.denied": Kind(GROUP, OTHER),
    "sharing.revoked": Kind(GROUP, 2),
    "sharing.expired": Kind(GROUP, 2),
    "sharing.left": Kind(GROUP, 4),
    "approval.decided": Kind(API, 3),
    "quota.changed": Kind(ENTITY, 3),
    "classes.changed": Kind(ENTITY, 3),
    "policy.changed": Kind(ENTITY, 3),
    "access.refused": Kind(API, OTHER, MEDIUM),
    "call.unchanged": Kind(API, OTHER),
    "placement.refused": Kind(DATASTORE, 5, MEDIUM),
    "placement.violated": Kind(DATA_FINDING, 1, HIGH),
    "source.state_changed": Kind(LIFECYCLE, OTHER),
    "source.reset": Kind(LIFECYCLE, 5),
    "node.created": Kind(ENTITY, 1),
    "node.enrolled": Kind(ENTITY, 6),
    "node.state_changed": Kind(ENTITY, 3),
    "node.changed": Kind(ENTITY, 3),
    "node.dedicated": Kind(ENTITY, 3),
    "command.ordered": Kind(DATASTORE, OTHER),
    "command.concluded": Kind(DATASTORE, OTHER),
    "order.approved": Kind(DATASTORE, 7, LOW),
    "operation.requested": Kind(DATASTORE, 7, LOW),
    "operation.fenced": Kind(DATASTORE, 7, LOW),
    "operation.changed": Kind(DATASTORE, 2),
    "operation.stopped": Kind(DATASTORE, 2, LOW),
    "operation.concluded": Kind(DATASTORE, 7),
    "receipt.accepted": Kind(DATASTORE, 7),
    "receipt.refused": Kind(COMPLIANCE, 1, HIGH),
    "certificate.issued": Kind(COMPLIANCE, 1),
    "hold.requested": Kind(API, 1, LOW),
    "hold.placed": Kind(ENTITY, 1, LOW),
    "hold.release_requested": Kind(API, 1, LOW),
    "hold.released": Kind(ENTITY, 4, LOW),
    "hold.denied": Kind(API, 3),
    "window.created": Kind(ENTITY, 1, LOW),
    "window.removed": Kind(ENTITY, 4, LOW),
    "session.ended": Kind(ENTITY, 3),
    "pin.created": Kind(ENTITY, 1),
    "pin.removed": Kind(ENTITY, 4),
    "key.leased": Kind(SESSION, 1),
    "key.destroyed": Kind(DATASTORE, 7, LOW),
    "export.made": Kind(DATASTORE, 1),
    "export.downloaded": Kind(DATASTORE, 1),
    "export.requested": Kind(DATASTORE, 4),
    "verification.requested": Kind(DATASTORE, 4),
    "job.cancelled": Kind(API, 3),
    "log.verified": Kind(COMPLIANCE, 1),
    "log.searched": Kind(DATASTORE, 4),
    "retention.requested": Kind(API, 1, LOW),
    "epoch.requested": Kind(API, 1, HIGH),
    "finding.acknowledged": Kind(API, 3),
    "webhook.created": Kind(ENTITY, 1),
    "webhook.changed": Kind(ENTITY, 3),
    "webhook.removed": Kind(ENTITY, 4),
    "log.note": Kind(API, 1),
    "log.gap_found": Kind(COMPLIANCE, 1, CRITICAL),
    "log.divergence_found": Kind(COMPLIANCE, 1, CRITICAL),
    "log.scrubbed": Kind(COMPLIANCE, 1),
    "log.refused_by_signer": Kind(COMPLIANCE, 1, CRITICAL),
    "log.bodies_retired": Kind(DATASTORE, 7, LOW),
    "spool.imported": Kind(DATASTORE, 5),
    "log.finding_settled": Kind(COMPLIANCE, 3),
    "log.restored": Kind(LIFECYCLE, 5, HIGH),
}
UNMAPPED = Kind(API, OTHER)
"""What the table has no row for yet: a type of event that is newer than it."""
_METHODS = {"POST": 1, "GET": 2, "PUT": 3, "PATCH": 3, "DELETE": 4}
_ACTIVITIES = {
    ENTITY: {1: "Create", 2: "Read", 3: "Update", 4: "Delete", 6: "Enroll", 7: "Unenroll"},
    ACCOUNT: {1: "Create", 2: "Enable", 5: "Disable", 6: "Delete"},
    AUTHENTICATION: {1: "Logon", 2: "Logoff"},
    SESSION: {1: "Assign Privileges"},
    ACCESS: {1: "Assign Privileges", 2: "Revoke Privileges"},
    GROUP: {1: "Assign Privileges", 2: "Revoke Privileges", 4: "Remove User"},
    COMPLIANCE: {1: "Create", 2: "Update", 3: "Close"},
    DATA_FINDING: {1: "Create"},
    LIFECYCLE: {3: "Start", 4: "Stop", 5: "Restart", 8: "Update"},
    API: {1: "Create", 2: "Read", 3: "Update", 4: "Delete"},
    DATASTORE: {1: "Read", 2: "Update", 4: "Query", 5: "Write", 6: "Create", 7: "Delete", 8: "List"},
}
_ERASING = ("delete", "clear", "purge", "erase", "drop")
_encode = msgspec.json.Encoder().encode


def lines(records: Iterable[Record], *, origin: str) -> bytes:
    """One JSON line a record."""
    return b"".join(_encode(event(record, origin=origin)) + b"\n" for record in records)


def event(record: Record, *, origin: str) -> dict[str, Any]:
    """The record as an OCSF event.

    Args:
        record: with its body, or without one where it was retired.
        origin: of the log.
    """
    said, outcome = content_of(record.body), OUTCOMES[record.outcome]
    try:
        return _event(record, said, outcome, origin)
    except (TypeError, ValueError, AttributeError, KeyError):  # fields that are not what the type's are
        return _event(record, UNREADABLE, outcome, origin)


def _event(record: Record, said: Content, outcome: str, origin: str) -> dict[str, Any]:
    action, data = NAMES.get(record.event_type, f"0x{record.event_type:04x}"), said.data
    kind = _kind(action, data)
    status_id, status = STATUSES[outcome]
    severity = kind.severity or {"success": INFORMATIONAL, "unknown": INFORMATIONAL}.get(outcome, MEDIUM)
    category = kind.class_uid // 1000
    found = {
        "activity_id": kind.activity,
        "activity_name": _ACTIVITIES[kind.class_uid].get(kind.activity, action),
        "category_uid": category,
        "category_name": CATEGORY_NAMES[category],
        "class_uid": kind.class_uid,
        "class_name": CLASS_NAMES[kind.class_uid],
        "type_uid": kind.class_uid * 100 + kind.activity,
        "type_name": f"{CLASS_NAMES[kind.class_uid]}: {_ACTIVITIES[kind.class_uid].get(kind.activity, 'Other')}",
        "severity_id": severity,
        "severity": SEVERITIES[severity],
        "time": record.time_us // 1000,
        "status_id": status_id,
        "status": status,
        "status_detail": outcome,
        "metadata": {
            "version": VERSION,
            "product": PRODUCT,
            "uid": str(record.event_id),
            "event_code": action,
            "tenant_uid": record.tenant_ref.hex(),
            "correlation_uid": record.request_id,
            "sequence": record.index,
        },
        "actor": _actor(record, said.actor),
    }
    found |= _OWN[kind.class_uid](record, action, data)
    found["unmapped"] = {
        "kvconsole": {
            "origin": origin,
            "leaf_index": record.index,
            "leaf_hash": record.hash.hex(),
            "time_us": record.time_us,
            "flags": flags_of(record.flags, said),
            "producer": [record.producer_id, record.producer_seq],
            "object": {"kind": record.object_kind, "id": record.object_id},
            "data": data,
        }
    }
    return found


def _kind(action: str, data: Data) -> Kind:
    kind = MAPPED.get(action, UNMAPPED)
    if action == "user.changed" and "roles" in data.get("changed", []):
        return Kind(ACCESS, 1, LOW)
    if action in ("access.refused", "call.unchanged"):
        return kind._replace(activity=_METHODS.get(str(data.get("method", "")), OTHER))
    if action.startswith("command.") and any(word in str(data.get("kind", "")) for word in _ERASING):
        return kind._replace(activity=7)
    return kind


def _user(record: Record) -> dict[str, Any]:
    return {"uid": record.actor_ref.hex()}


def _actor(record: Record, said: Actor) -> dict[str, Any]:
    kind = said.kind or "unknown"
    user = _user(record) | {"type_id": {"user": 1, "system": 3}.get(kind, OTHER), "type": kind}
    groups = [{"name": role} for role in said.roles]
    return {"user": user | ({"groups": groups} if groups else {}), "app_name": "KV Console"}


def _endpoint(record: Record) -> dict[str, Any]:
    """Whence it came: the log has no address in clear, so the endpoint goes by the name of who called."""
    return {"uid": record.actor_ref.hex(), "name": "sealed"}


def _object(record: Record) -> dict[str, Any]:
    return {"name": record.object_kind, "uid": record.object_id or record.object_kind}


def _target(record: Record) -> dict[str, Any]:
    return {"user": {"uid": record.object_id or record.actor_ref.hex()}}


def _entity(record: Record, action: str, data: Data) -> dict[str, Any]:
    return {"entity": _object(record) | {"type": record.object_kind}}


def _account(record: Record, action: str, data: Data) -> dict[str, Any]:
    return _target(record)


def _authentication(record: Record, action: str, data: Data) -> dict[str, Any]:
    return {"user": _user(record), "service": {"name": "KV Console", "uid": "kv-console"}, "is_remote": True}


def _privileges(data: Data) -> list[str]:
    named = [*data.get("roles", []), *data.get("scopes", [])]
    return [str(one) for one in named] or [str(data.get("kind") or data.get("holder_kind") or "access")]


def _access(record: Record, action: str, data: Data) -> dict[str, Any]:
    return _target(record) | {"privileges": _privileges(data), "resources": [_object(record)]}


def _session(record: Record, action: str, data: Data) -> dict[str, Any]:
    return {"user": _user(record), "privileges": _privileges(data)}


def _group(record: Record, action: str, data: Data) -> dict[str, Any]:
    name = "/".join(str(data[part]) for part in ("owner", "name") if data.get(part))
    group = {"uid": record.object_id or name or "share group", "name": name or record.object_kind}
    return {"group": group, "privileges": ["share"], "resource": _object(record)}


def _lifecycle(record: Record, action: str, data: Data) -> dict[str, Any]:
    name = str(data.get("source") or record.object_kind)
    return {"app": {"name": name, "uid": record.object_id or name, "vendor_name": "KV Console"}}


def _api(record: Record, action: str, data: Data) -> dict[str, Any]:
    method, route = str(data.get("method", "")), str(data.get("route", ""))
    api = {"operation": f"{method} {route}".strip() or action, "request": {"uid": record.request_id}}
    if data.get("status"):
        api["response"] = {"code": data["status"], "error": str(data.get("code", ""))}
    return {"api": api, "src_endpoint": _endpoint(record), "resources": [_object(record)]}


def _datastore(record: Record, action: str, data: Data) -> dict[str, Any]:
    bucket = {"name": record.object_kind, "uid": record.object_id or record.object_kind, "type_id": OTHER}
    return {"src_endpoint": _endpoint(record), "type_id": OTHER, "type": "KV cache", "databucket": bucket}


def _finding(record: Record, action: str) -> dict[str, Any]:
    return {"finding_info": {"uid": str(record.event_id), "title": action, "created_time": record.time_us // 1000}}


def _compliance(record: Record, action: str, data: Data) -> dict[str, Any]:
    failed = record.outcome != 1 or action in ("log.gap_found", "log.divergence_found", "log.refused_by_signer")
    verdict = {"status_id": 3 if failed else 1, "status": "Fail" if failed else "Pass"}
    compliance = {"control": "integrity of the audit log", "standards": ["RFC 6962"], **verdict}
    return _finding(record, action) | {"compliance": compliance, "resources": [_object(record)]}


def _data_finding(record: Record, action: str, data: Data) -> dict[str, Any]:
    return _finding(record, action) | {"resources": [_object(record)], "databucket": _object(record)}


_OWN: dict[int, Callable[[Record, str, Data], dict[str, Any]]] = {
    ENTITY: _entity, ACCOUNT: _account, AUTHENTICATION: _authentication, SESSION: _session, ACCESS: _access,
    GROUP: _group, LIFECYCLE: _lifecycle, API: _api, DATASTORE: _datastore, COMPLIANCE: _compliance,
    DATA_FINDING: _data_finding,
}  # fmt: skip
