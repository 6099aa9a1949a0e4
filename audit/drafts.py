"""Decides what the bytes of an event are before it is written: its body, what is sealed, and the names in its leaf.

Nothing is written here. A draft becomes one event, or a part of another one's body (`also`): what a call does is one
event, however many things follow from it.
"""

import hmac
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

from audit.registry import EventType
from kvconsole.infra import keystore
from kvconsole.infra.access import Principal
from kvconsole.infra.sql import PLATFORM
from kvcore.canonical import SAFE_INTEGER, canonical
from kvcore.keys import subkey
from kvcore.leaf import NO_PII, NOBODY, OUTCOMES, PII, body_hash, pii_commitment

_AS_IT_IS = frozenset({type(None), str, bool, float})
MOST_BYTES = 1 << 20
"""Of a body; a request is no larger."""


class EventRefused(ValueError):
    """The event is not of a registered type or has fields that type does not have; a bug of the caller."""


class Draft(msgspec.Struct, frozen=True):
    """An event that is not written yet. `data` and `pii` are portable."""

    kind: EventType
    event_id: UUID
    outcome: str
    actor: Principal | None
    tenant: UUID
    object_kind: str
    object_id: str
    data: Mapping[str, Any]
    pii: Mapping[str, Any]
    request_id: str
    flags: int
    happened_at: datetime | None = None
    cause: UUID | None = None
    """The event of the call that this one followed from."""

    @property
    def subject(self) -> str:
        """Whose key seals its personal data: the person's it is about, else the actor's, else the tenant's."""
        if self.object_kind == "user" and self.object_id:
            return f"user:{self.object_id}"
        return self.actor.subject if self.actor else f"tenant:{self.tenant}"

    def columns(self, also: Sequence["Draft"] = ()) -> dict[str, Any]:
        """The columns of the event that a session writes itself, with what else the call did in its body.

        Raises:
            EventRefused: the body is larger than `MOST_BYTES`.
            KeyStoreUnavailable: actor or tenant cannot be named.
        """
        raw = canonical(self._body(also))
        if len(raw) > MOST_BYTES:
            raise EventRefused(f"{self.kind.name}: a body of {len(raw)} bytes")
        pii = self._personal(also)
        ciphered, commitment, key = _seal(pii, self.subject, self.event_id) if pii else (None, NO_PII, None)
        flags = self.flags | (PII if pii else 0)
        for one in also:
            flags |= one.flags
        return {
            **self.names(),
            "event_id": self.event_id,
            "event_type": self.kind.number,
            "tenant_id": self.tenant,
            "outcome": OUTCOMES.index(self.outcome),
            "flags": flags,
            "body": raw,
            "body_hash": body_hash(raw),
            "pii_ct": ciphered,
            "pii_commit": commitment,
            "pii_key": key,
            "object_kind": self.object_kind,
            "object_id": self.object_id,
            "request_id": self.request_id,
        }

    def names(self) -> dict[str, bytes]:
        """Who did it and whose it is, as the leaf says it.

        Raises:
            KeyStoreUnavailable: they cannot be named.
        """
        actor = actor_ref(self.actor.subject, now=time.time()) if self.actor else NOBODY
        return {"tenant_ref": tenant_ref(self.tenant), "actor_ref": actor}

    def _body(self, also: Sequence["Draft"]) -> dict[str, Any]:
        found: dict[str, Any] = {**self._part(), "actor": _who(self.actor), "request_id": self.request_id}
        if also:
            found["also"] = [
                one._part() if one.actor == self.actor else {**one._part(), "actor": _who(one.actor)} for one in also
            ]
        if self.cause is not None:
            found["cause"] = str(self.cause)
        if self.happened_at is not None:
            found["happened_at"] = portable(self.happened_at)
        return found

    def _part(self) -> dict[str, Any]:
        return {
            "action": self.kind.name,
            "data": self.data,
            "object": {"id": self.object_id, "kind": self.object_kind},
            "outcome": self.outcome,
        }

    def _personal(self, also: Sequence["Draft"]) -> dict[str, Any]:
        found = dict(self.pii)
        if parts := {str(i): one.pii for i, one in enumerate(also) if one.pii}:
            found["also"] = parts
        return found


def _who(actor: Principal | None) -> dict[str, Any]:
    return {"kind": actor.kind if actor else "nobody", "roles": sorted(actor.roles) if actor else []}


# --- names in the log ---------------------------------------------------------------------


def tenant_ref(tenant_id: UUID) -> bytes:
    """16 bytes that name a tenant in the log to who holds its key; zeros = the platform."""
    if tenant_id == PLATFORM:
        return NOBODY
    if keystore.rehearsing():
        return _tenant_ref(tenant_id)
    return _kept_tenant_ref(settings.KEYSTORE_DIR, _minute(), tenant_id)


def actor_ref(subject: str, *, now: float) -> bytes:
    """16 bytes that name an actor in the log, of one 90-day period; without its key nobody can link them to it."""
    period = int(now // keystore.PERIOD_SECONDS)
    if keystore.rehearsing():
        return _actor_ref(subject, period)
    return _kept_actor_ref(settings.KEYSTORE_DIR, _minute(), subject, period)


def _minute() -> int:
    return int(time.monotonic() // 60)


@lru_cache(maxsize=4096)
def _kept_tenant_ref(directory: str, minute: int, tenant_id: UUID) -> bytes:
    """Kept for a minute: an event costs no file access, and a destroyed key is not used for longer."""
    return _tenant_ref(tenant_id)


@lru_cache(maxsize=4096)
def _kept_actor_ref(directory: str, minute: int, subject: str, period: int) -> bytes:
    """The same of an actor. What a rehearsal was given is never kept: its key is forgotten."""
    return _actor_ref(subject, period)


def _tenant_ref(tenant_id: UUID) -> bytes:
    key = subkey(keystore.keystore().ensure(keystore.tenant_name(tenant_id)), "ref")
    return hmac.digest(key, b"kvconsole/ref/tenant/v1\0" + tenant_id.bytes, "sha256")[:16]


def _actor_ref(subject: str, period: int) -> bytes:
    name = keystore.subject_name(subject, now=period * keystore.PERIOD_SECONDS)
    key = subkey(keystore.keystore().ensure(name), "ref")
    return hmac.digest(key, b"kvconsole/ref/actor/v1\0" + _identity(subject), "sha256")[:16]


def _identity(subject: str) -> bytes:
    text = subject.partition(":")[2]
    try:
        return UUID(text).bytes
    except ValueError:
        return text.encode()


def forget_keys() -> None:
    """Names that this process remembers are made again: keys of some were destroyed."""
    _kept_tenant_ref.cache_clear()
    _kept_actor_ref.cache_clear()


def _seal(pii: Mapping[str, Any], subject: str, event_id: UUID) -> tuple[bytes, bytes, bytes]:
    name = keystore.subject_name(subject, now=time.time())
    key = subkey(keystore.keystore().ensure(name), "pii")
    salt, nonce, plain = os.urandom(32), os.urandom(12), canonical(pii)
    sealed = nonce + AESGCM(key).encrypt(nonce, salt + plain, event_id.bytes)
    return sealed, pii_commitment(salt, plain), bytes.fromhex(name.rpartition("-")[2])


# --- values -------------------------------------------------------------------------------


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
