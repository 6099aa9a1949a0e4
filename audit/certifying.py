"""Decides how a certificate is kept: signed bytes and their event in one transaction, and never changed.

What it says is the catalog's matter (`catalog.operations.certificate`); here it is signed, kept, shown and checked
against itself. Called by the catalog's engine and REST.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import IntegrityError, transaction

from audit import signing
from audit.models import Certificate
from audit.services import record
from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.sql import uuid7


class Drafted(NamedTuple):
    """A certificate that is signed and not kept yet."""

    body: bytes
    body_hash: bytes
    note: str


class Shown(NamedTuple):
    """A certificate as it is given away."""

    id: UUID
    tenant_id: UUID
    operation: UUID
    body: bytes
    body_hash: bytes
    note: str
    erasure: int
    flags: list[str]
    seal: bool
    exceptions: int
    supplements: UUID | None
    event: int
    issued_at: datetime


def certificate_sign(body: bytes) -> Drafted | signing.NotAnswered:
    """The canonical body under the export key; no transaction should be open meanwhile."""
    digest = hashlib.sha256(body).digest()
    note = signing.sign_export(digest)
    return note if isinstance(note, signing.NotAnswered) else Drafted(body, digest, note)


def certificate_issue(
    *,
    draft: Drafted,
    operation: UUID,
    tenant_id: UUID,
    erasure: int,
    flags: Sequence[str],
    seal: bool,
    exceptions: int,
    receipts: int,
    supplements: UUID | None,
    actor: Principal,
    now: datetime,
) -> UUID | None:
    """The certificate is kept and the trail says so, with the caller's transaction; its id.

    None: the operation has one already, whoever issued it.
    """
    body = {
        "operation": str(operation),
        "body_hash": draft.body_hash,
        "class": erasure,
        "flags": list(flags),
        "seal": seal,
        "exceptions": exceptions,
        "receipts": receipts,
        "supplements": str(supplements or ""),
    }
    certificate = uuid7()
    try:
        with transaction.atomic(using=plane()):
            event = record(
                event_type="certificate.issued",
                outcome="success",
                actor=actor,
                tenant_id=tenant_id,
                object_kind="certificate",
                object_id=str(certificate),
                body=body,
            )
            Certificate.objects.create(
                id=certificate,
                tenant_id=tenant_id,
                operation=operation,
                body=draft.body,
                body_hash=draft.body_hash,
                note=draft.note,
                erasure=erasure,
                flags=list(flags),
                seal=seal,
                exceptions=exceptions,
                supplements=supplements,
                event=event.id,
                issued_at=now,
            )
    except IntegrityError:
        return None
    return certificate


def certificate_of(certificate: UUID) -> Shown | None:
    """The certificate of this id, where the current plane shows it."""
    return _shown(Certificate.objects.filter(id=certificate).values_list(*Shown._fields).first())


def certificate_of_operation(operation: UUID) -> Shown | None:
    """The certificate of this operation, where the current plane shows it."""
    return _shown(Certificate.objects.filter(operation=operation).values_list(*Shown._fields).first())


def _shown(row: tuple[object, ...] | None) -> Shown | None:
    if row is None:
        return None
    found = Shown(*row)  # type: ignore[arg-type]
    return found._replace(body=bytes(found.body), body_hash=bytes(found.body_hash))


def is_issued(body_hash: bytes) -> bool:
    """Whether a certificate of these bytes was issued here, whoever's it is: who has the bytes knows what they say."""
    return Certificate.objects.using(FLEET_PLANE).filter(body_hash=body_hash).exists()
