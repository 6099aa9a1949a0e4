"""Decides what an audit event is made of, and appends it in the transaction of what it tells.

The only writer of `audit_event`; callers are the services of all apps, in the transaction of their change. There is
no `try` around it: a change whose event cannot be written does not happen.
"""

import hashlib
import hmac
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal
from uuid import UUID

import rfc8785
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import connections
from django.db.transaction import TransactionManagementError

from audit.models import Event
from audit.registry import TYPES
from kvconsole.infra import keystore, rest
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.sql import PLATFORM, uuid7
from kvcore.keys import subkey

Outcome = Literal["unknown", "success", "failure", "denied"]
OUTCOMES: dict[Outcome, int] = {"unknown": 0, "success": 1, "failure": 2, "denied": 3}
PII, AGENT_SIGNED, BREAK_GLASS, LATE, APPROVAL, RESTORE = 1, 2, 4, 8, 16, 32
NOBODY = bytes(16)
NO_PII = bytes(32)
SAFE_INTEGER = 2**53
_AS_IT_IS = frozenset({type(None), str, bool, float})

_COLUMNS = (
    *("event_id", "event_type", "tenant_id", "tenant_ref", "actor_ref", "outcome", "flags", "body", "body_hash"),
    *("pii_ct", "pii_commit", "pii_key", "object_kind", "object_id", "request_id"),
)
_INSERT = (
    f"INSERT INTO audit_event ({', '.join(_COLUMNS)}) VALUES ({', '.join(['%s'] * len(_COLUMNS))})"  # noqa: S608
    " RETURNING id, time_us, producer_id, producer_seq"
)


class EventRefused(ValueError):
    """The event is not of a registered type or has fields that type does not have; a bug of the caller."""


def record(
    *,
    event_type: str,
    outcome: Outcome,
    actor: Principal | None,
    tenant_id: UUID | None,
    object_kind: str,
    object_id: str,
    body: Mapping[str, Any],
    pii: Mapping[str, Any] | None = None,
    request_id: str = "",
    flags: int = 0,
) -> Event:
    """The event is in the trail, and on its way into the log, if and only if the current transaction commits.

    Args:
        event_type: a name of `audit.registry.TYPES`.
        outcome: how it ended.
        actor: who did it; None = nobody that is known.
        tenant_id: whose matter it is; None = the platform's.
        object_kind, object_id: what it was done to.
        body: the data, with the type's fields only and without personal data.
        pii: personal data, sealed under the actor's key (else the tenant's), which can be destroyed.
        request_id: of the request; the current one if not given.
        flags: of `AGENT_SIGNED` … `RESTORE`.

    Raises:
        TransactionManagementError: outside a transaction.
        EventRefused: unknown type or field.
        KeyStoreUnavailable: actor and tenant cannot be named; nothing was written, the caller's change must not be.
    """
    connection = connections[plane()]
    if not connection.in_atomic_block:
        raise TransactionManagementError("an audit event needs the transaction of what it tells")
    kind = TYPES.get(event_type)
    if kind is None or not kind.fields.issuperset(body):
        raise EventRefused(
            f"{event_type}: unknown type or fields {sorted(set(body) - (kind.fields if kind else set()))}"
        )
    request_id = request_id or rest.request_id()
    raw = rfc8785.dumps(
        {
            "action": event_type,
            "actor": {"kind": actor.kind if actor else "nobody", "roles": sorted(actor.roles) if actor else []},
            "data": portable(body),
            "object": {"id": object_id, "kind": object_kind},
            "outcome": outcome,
            "request_id": request_id,
        }
    )
    event_id, tenant = uuid7(), tenant_id or PLATFORM
    sealed = _seal(pii, actor.subject if actor else f"tenant:{tenant}", event_id) if pii else (None, NO_PII, None)
    values: dict[str, Any] = {
        "event_id": event_id,
        "event_type": kind.number,
        "tenant_id": tenant,
        "tenant_ref": tenant_ref(tenant),
        "actor_ref": actor_ref(actor.subject, now=time.time()) if actor else NOBODY,
        "outcome": OUTCOMES[outcome],
        "flags": flags | (PII if pii else 0),
        "body": raw,
        "body_hash": body_hash(raw),
        "pii_ct": sealed[0],
        "pii_commit": sealed[1],
        "pii_key": sealed[2],
        "object_kind": object_kind,
        "object_id": object_id,
        "request_id": request_id,
    }
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [values[name] for name in _COLUMNS])
        given = dict(zip(("id", "time_us", "producer_id", "producer_seq"), cursor.fetchone(), strict=True))
    return Event(**values, **given)


def body_hash(body: bytes) -> bytes:
    """What the leaf says of a body."""
    return hashlib.sha256(b"kvconsole/audit-body/v1\0" + body).digest()


def tenant_ref(tenant_id: UUID) -> bytes:
    """16 bytes that name a tenant in the log to who holds its key; zeros = the platform."""
    if tenant_id == PLATFORM:
        return NOBODY
    key = _ref_key(keystore.tenant_name(tenant_id))
    return hmac.digest(key, b"kvconsole/ref/tenant/v1\0" + tenant_id.bytes, "sha256")[:16]


def actor_ref(subject: str, *, now: float) -> bytes:
    """16 bytes that name an actor in the log, of one 90-day period; without its key nobody can link them to it."""
    key = _ref_key(keystore.subject_name(subject, now=now))
    return hmac.digest(key, b"kvconsole/ref/actor/v1\0" + _identity(subject), "sha256")[:16]


def pii_commitment(salt: bytes, pii: bytes) -> bytes:
    """What the leaf says of personal data: cannot be tested by guessing without the salt, which is sealed with it."""
    return hmac.digest(salt, b"kvconsole/audit-pii/v1\0" + pii, "sha256")


def pii_open(event: Event, *, subject: str) -> dict[str, Any] | None:
    """The personal data of an event, or None: there is none, or the subject's key was destroyed.

    Args:
        event: with all its columns.
        subject: whose data it is, as `Principal.subject`.

    Raises:
        cryptography.exceptions.InvalidTag: the data was altered, or is another subject's.
    """
    if event.pii_ct is None or event.pii_key is None:
        return None
    name = keystore.subject_name(subject, now=event.time_us / 1e6)
    try:
        secret = keystore.keystore().secret(name)
    except keystore.KeyMissing:
        return None
    blob = bytes(event.pii_ct)
    plain = AESGCM(subkey(secret, "pii")).decrypt(blob[:12], blob[12:], event.event_id.bytes)
    found: dict[str, Any] = json.loads(plain[32:])
    return found


def portable(value: Any) -> Any:
    """The value as RFC 8785 takes it: integers from 2^53 as strings, bytes as hex, times as RFC 3339 in UTC."""
    kind = type(value)  # what most values are is found first: the rest of these questions costs more
    if kind in _AS_IT_IS or (kind is int and -SAFE_INTEGER < value < SAFE_INTEGER):
        return value
    if kind is dict:
        return {str(k): v if type(v) in _AS_IT_IS else portable(v) for k, v in value.items()}
    if kind is list:
        return [portable(v) for v in value]
    if isinstance(value, str | float):
        return value
    if isinstance(value, int):
        return value if -SAFE_INTEGER < value < SAFE_INTEGER else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(k): portable(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(portable(v) for v in value)
    if isinstance(value, list | tuple):
        return [portable(v) for v in value]
    return str(value)


def _seal(pii: Mapping[str, Any], subject: str, event_id: UUID) -> tuple[bytes, bytes, bytes]:
    name = keystore.subject_name(subject, now=time.time())
    key = subkey(keystore.keystore().ensure(name), "pii")
    salt, nonce, plain = os.urandom(32), os.urandom(12), rfc8785.dumps(portable(pii))
    sealed = nonce + AESGCM(key).encrypt(nonce, salt + plain, event_id.bytes)
    return sealed, pii_commitment(salt, plain), bytes.fromhex(name.rpartition("-")[2])


def _identity(subject: str) -> bytes:
    text = subject.partition(":")[2]
    try:
        return UUID(text).bytes
    except ValueError:
        return text.encode()


def _ref_key(name: str) -> bytes:
    store = keystore.keystore()
    return _cached_ref_key(str(store.directory), name, int(time.monotonic() // 60))


@lru_cache(maxsize=4096)
def _cached_ref_key(directory: str, name: str, minute: int) -> bytes:
    """Kept for a minute: an event costs no file access, and a destroyed key is not used for longer."""
    return subkey(keystore.keystore().ensure(name), "ref")
