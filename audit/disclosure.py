"""Decides whether the personal data of an event can still be read, and by which names of the log a person is found.

Both need keys of the key store. A key that was destroyed is an answer, not an error: what it sealed is shredded, and
nobody finds the events of a person by a name that nobody can make any more. No key is made here.
"""

import hmac
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from audit.models import Event
from kvconsole.infra import keystore
from kvcore.keys import subkey
from kvcore.leaf import PII

SHREDDED, SEALED, ALTERED = "shredded", "sealed", "altered"
"""In the place of personal data: nobody can read it any more; the reader may not; it is not what was sealed."""
SALT_BYTES, NONCE_BYTES = 32, 12
MOST_PERIODS = 80
"""Of a person's names; twenty years."""


class Disclosed(NamedTuple):
    """Personal data, and the salt with which its commitment in the leaf can be checked."""

    salt: bytes
    text: bytes
    """RFC 8785 JSON, as it was committed to."""


def disclosed(event: Event) -> Disclosed | str | None:
    """The personal data of the event, or why it cannot be read; None: there is none.

    Raises:
        KeyStoreUnavailable: nobody can tell now.
    """
    if event.pii_ct is None or event.pii_key is None:
        return None
    name = f"subject-{bytes(event.pii_key).hex()}"
    try:
        secret = keystore.keystore().secret(name)
    except keystore.KeyMissing:
        return SHREDDED
    blob = bytes(event.pii_ct)
    try:
        plain = AESGCM(subkey(secret, "pii")).decrypt(blob[:NONCE_BYTES], blob[NONCE_BYTES:], event.event_id.bytes)
    except InvalidTag:
        return ALTERED
    return Disclosed(plain[:SALT_BYTES], plain[SALT_BYTES:])


def shown(event: Event, *, opened: bool) -> Any:
    """The personal data of the event as its readers see it: a mapping, one of the words above, or None.

    Args:
        opened: whether the reader may see it.
    """
    if event.pii_ct is None:
        return SHREDDED if event.flags & PII else None
    found = disclosed(event)
    if isinstance(found, Disclosed):
        return json.loads(found.text) if opened else SEALED
    return found


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
