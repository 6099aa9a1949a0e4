"""Decides that a POST repeated with the same Idempotency-Key has one effect and one answer.

The row is written in the transaction of the effect. Its key is hashed and its answer encrypted under that key, as
answers may hold tokens that are shown once. A key holds for 24 hours; then it is as new, and its row goes (`sweep`).
"""

import os
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.db import connections, transaction
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from kvconsole.infra import keystore, rest
from kvconsole.infra.access import FLEET_PLANE, Principal, plane, principal_of
from kvconsole.infra.sql import PLATFORM

KEPT = timedelta(hours=24)
AT_ONCE = 5_000
"""Rows that one statement of the sweep deletes."""
_LOCK = "SELECT pg_try_advisory_xact_lock(%s)"
_CLAIM = (
    "INSERT INTO audit_idempotency (tenant_id, key_hash, fingerprint, created_at) VALUES (%s, %s, %s, %s)"
    " ON CONFLICT (tenant_id, key_hash) DO UPDATE SET fingerprint = excluded.fingerprint, status = NULL,"
    " response = NULL, created_at = excluded.created_at WHERE audit_idempotency.created_at <= %s RETURNING 1"
)
_READ = (
    "SELECT fingerprint, status, response FROM audit_idempotency"
    " WHERE tenant_id = %s AND key_hash = %s AND created_at > %s"
)
_FINISH = "UPDATE audit_idempotency SET status = %s, response = %s WHERE tenant_id = %s AND key_hash = %s"
_SWEEP = (
    "DELETE FROM audit_idempotency WHERE (tenant_id, key_hash) IN"
    " (SELECT tenant_id, key_hash FROM audit_idempotency WHERE created_at <= %s LIMIT %s)"
)


def once(request: Request, respond: Callable[[], Response], *, required: bool = False) -> Response:
    """The answer of `respond`, or of the first call with this key. A rehearsal (`validate_only`) has no effect at all.

    A refused call leaves no key behind. Inside another `once` of the same request it only responds.

    Args:
        request: of a caller who is known, in its `tenant_context`.
        respond: has the effect and makes the answer.
        required: the call must have a key.

    Raises:
        Problem: the key is missing or malformed, was used with another request, or its first call is still at work.
    """
    if getattr(request, "_once", False):
        return respond()
    request._once = True  # type: ignore[attr-defined]
    key = rest.idempotency_key(request, required=required)
    if rest.validate_only(request):
        with transaction.atomic(using=plane()), keystore.rehearsal():
            response = respond()
            transaction.set_rollback(True, using=plane())
        return response
    principal = principal_of(request)
    return _keyed(request, respond, key, principal) if key and principal else respond()


def _keyed(request: Request, respond: Callable[[], Response], key: str, principal: Principal) -> Response:
    tenant = principal.tenant_id or PLATFORM
    key_hash, print_ = rest.private("idempotency", str(tenant), key), rest.fingerprint(request, principal.subject)
    cipher = AESGCM(rest.private("idempotency-answer", str(tenant), key))
    with connections[plane()].cursor() as cursor:
        cursor.execute(_LOCK, (int.from_bytes(key_hash[:8], "big", signed=True),))
        if not cursor.fetchone()[0]:
            raise rest.Problem("idempotency-in-progress", retry_after_seconds=1)
        now = timezone.now()
        cursor.execute(_CLAIM, (tenant, key_hash, print_, now, now - KEPT))
        if cursor.fetchone() is None:
            cursor.execute(_READ, (tenant, key_hash, now - KEPT))
            return _again(cursor.fetchone(), print_, cipher, key_hash)
        response = respond()
        nonce, plain = os.urandom(12), msgspec.json.encode([response.data, dict(response.headers)])
        sealed = nonce + cipher.encrypt(nonce, plain, key_hash)
        cursor.execute(_FINISH, (response.status_code, sealed, tenant, key_hash))
    return response


def _again(row: tuple[bytes, int, bytes] | None, print_: bytes, cipher: AESGCM, bound: bytes) -> Response:
    if row is None or row[1] is None:
        raise rest.Problem("idempotency-in-progress", retry_after_seconds=1)
    if bytes(row[0]) != print_:
        raise rest.Problem("idempotency-mismatch")
    blob = bytes(row[2])
    data, headers = msgspec.json.decode(cipher.decrypt(blob[:12], blob[12:], bound))
    return Response(data, status=row[1], headers={**headers, "Idempotency-Replayed": "true"})


def sweep(*, now: datetime) -> int:
    """Answers older than `KEPT` are gone; how many. Index: audit_idempotency_age."""
    gone, last = 0, AT_ONCE
    with connections[FLEET_PLANE].cursor() as cursor:
        while last == AT_ONCE:
            cursor.execute(_SWEEP, (now - KEPT, AT_ONCE))
            last = cursor.rowcount
            gone += last
    return gone
