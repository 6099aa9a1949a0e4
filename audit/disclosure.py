"""Decides whether the personal data of an event can still be read, and by which names of the log a person is found.

Both need keys of the key store. A key that was destroyed is an answer, not an error: what it sealed is shredded, and
nobody finds the events of a person by a name that nobody can make any more. No key is made here.
"""

import contextlib
import hmac
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from audit.models import Event
from kvconsole.infra import keystore, sql
from kvcore.keys import subkey
from kvcore.leaf import PII

SHREDDED, SEALED, ALTERED, RETIRED = "shredded", "sealed", "altered", "retired"
"""In the place of personal data: nobody can read it any more; the reader may not; it is not what was sealed; it went
with its body."""
SALT_BYTES, NONCE_BYTES = 32, 12
_SEALED = (
    "SELECT id, pii_ct, pii_key, time_us FROM audit_event"
    " WHERE id = ANY(%s) AND time_us BETWEEN %s AND %s AND pii_ct IS NOT NULL"
)
MOST_PERIODS = 80
"""Of a person's names; twenty years."""


class Sealed(NamedTuple):
    """Personal data as it is kept, and which key it needs."""

    blob: bytes
    key: bytes


class Disclosed(NamedTuple):
    """Personal data, and the salt with which its commitment in the leaf can be checked."""

    salt: bytes
    text: bytes
    """RFC 8785 JSON, as it was committed to."""


def sealed_of(places: Mapping[int, int], connection: psycopg.Connection[Any] | None = None) -> dict[int, Sealed]:
    """What is sealed in these events (id → time), where there is something.

    Read as kv_audit: the roles that serve people and tenants cannot see these columns.

    Args:
        places: events that their reader has seen already.
        connection: as kv_audit; a new one if none is given.
    """
    if not places:
        return {}
    values = [list(places), min(places.values()), max(places.values())]
    with contextlib.ExitStack() as stack:
        held = connection or stack.enter_context(sql.connect("audit"))
        rows = held.execute(_SEALED, values, binary=True).fetchall()
    return {event: Sealed(bytes(blob), bytes(key)) for event, blob, key, at in rows if places[event] == at}


def disclosed(event: Event) -> Disclosed | str | None:
    """The personal data of an event with all its columns, or why it cannot be read; None: there is none.

    Raises:
        KeyStoreUnavailable: nobody can tell now.
    """
    if event.pii_ct is None or event.pii_key is None:
        return None
    return unsealed(Sealed(bytes(event.pii_ct), bytes(event.pii_key)), event.event_id)


def unsealed(sealed: Sealed, event_id: UUID) -> Disclosed | str:
    """The personal data, or why it cannot be read.

    Raises:
        KeyStoreUnavailable: nobody can tell now.
    """
    try:
        secret = keystore.keystore().secret(f"subject-{sealed.key.hex()}")
    except keystore.KeyMissing:
        return SHREDDED
    nonce, blob = sealed.blob[:NONCE_BYTES], sealed.blob[NONCE_BYTES:]
    try:
        plain = AESGCM(subkey(secret, "pii")).decrypt(nonce, blob, event_id.bytes)
    except InvalidTag:
        return ALTERED
    return Disclosed(plain[:SALT_BYTES], plain[SALT_BYTES:])


def shown(event: Event, sealed: Sealed | None, *, opened: bool) -> Any:
    """The personal data of the event as its readers see it: a mapping, one of the words above, or None.

    Args:
        event: of which `flags` say whether it has any.
        sealed: what it has, as far as it was asked for.
        opened: whether the reader may see it, and so `sealed` was asked for.
    """
    if not event.flags & PII:
        return None
    if not opened:
        return SEALED
    if sealed is None:
        return RETIRED if not bytes(event.body or b"") else SHREDDED
    found = unsealed(sealed, event.event_id)
    return json.loads(found.text) if isinstance(found, Disclosed) else found


def actor_refs(subject: str, since: datetime, until: datetime) -> list[bytes]:
    """The names that the log has for a subject in the periods of this time, as far as they can still be made.

    Args:
        subject: as `Principal.subject`.
        since: when the first event may have been.
        until: when the last one.
    """
    found = (_ref(subject, name) for name in _period_names(subject, since, until))
    return [ref for ref in found if ref is not None]


def _period_names(subject: str, since: datetime, until: datetime) -> Iterator[str]:
    at, last = since.timestamp(), until.timestamp()
    first = max(at, last - MOST_PERIODS * keystore.PERIOD_SECONDS) // keystore.PERIOD_SECONDS
    for period in range(int(first), int(last // keystore.PERIOD_SECONDS) + 1):
        yield keystore.subject_name(subject, now=period * keystore.PERIOD_SECONDS)


def _ref(subject: str, name: str) -> bytes | None:
    try:
        secret = keystore.keystore().secret(name)
    except keystore.KeyMissing:
        return None
    return hmac.digest(subkey(secret, "ref"), b"kvconsole/ref/actor/v1\0" + identity(subject), "sha256")[:16]


def identity(subject: str) -> bytes:
    """What of a subject its name in the log is made of."""
    text = subject.partition(":")[2]
    try:
        return UUID(text).bytes
    except ValueError:
        return text.encode()
