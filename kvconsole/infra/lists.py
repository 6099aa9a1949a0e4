"""Decides how lists are cut into pages: by keyset, with signed cursors, without counting big tables.

A cursor is bound to its list, its filters and the tenant that asked: elsewhere it is refused. About how long a list is,
is remembered for a moment, and for some seconds where it is long.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.core import signing
from django.db import connections
from django.db.models import QuerySet
from rest_framework.request import Request

from kvconsole.infra.access import FLEET_PLANE, current_principal, plane
from kvconsole.infra.rest import Problem
from kvconsole.infra.statements import Rows

DEFAULT, MOST = 50, 500
COUNTED = 1_000
"""Rows that are counted one by one, where the statistics say little or would tell of others."""
SHORT_SECONDS, LONG_SECONDS, REMEMBERED = 1.0, 10.0, 10_000
"""For so long the length of a list is remembered up to `COUNTED` and beyond, and of so many lists."""


@dataclass(frozen=True)
class Page:
    """One page of a list, the cursors of its neighbours, and about how many rows there are (None: not known)."""

    items: list[Any]
    next: str | None
    prev: str | None
    approximate_total: int | None = None


@dataclass(frozen=True)
class _Cursor:
    backwards: bool
    values: list[Any] = field(default_factory=list)


_lock = threading.Lock()
_lengths: dict[str, tuple[float, int | None]] = {}
"""List, filters and reader → until when, and about how many rows."""


def forget() -> None:
    """The length of every list is asked for anew."""
    with _lock:
        _lengths.clear()


def paginate(rows: Rows, request: Request, *, name: str, filters: Mapping[str, Any] | None = None) -> Page:
    """The page that `?limit=` and `?cursor=` ask for, by keyset: rows that come or go meanwhile shift nothing.

    Args:
        rows: what may be seen, and in which order.
        name: of the list; a cursor of another list is refused.
        filters: of the rows.

    Raises:
        Problem: out-of-range (limit) or cursor-invalid.
    """
    limit, salt, filters = _limit(request), _salt(request, name), filters or {}
    cursor = _read_cursor(request.query_params.get("cursor", ""), salt)
    if cursor.values and len(cursor.values) != len(rows.key):
        raise Problem("cursor-invalid")
    found = rows.page(filters, limit=limit + 1, backwards=cursor.backwards, behind=cursor.values)
    more, found = len(found) > limit, found[:limit]
    if cursor.backwards:
        found.reverse()
    before, after = (more, True) if cursor.backwards else (bool(cursor.values), more)

    def at(row: Any, backwards: bool) -> str:
        return _write_cursor(_Cursor(backwards, [_plain(getattr(row, k)) for k in rows.key]), salt)

    following = at(found[-1], False) if found and after else None
    earlier = at(found[0], True) if found and before else None
    whole = following is None and earlier is None
    return Page(found, following, earlier, len(found) if whole else _total(partial(rows.queryset, **filters), salt))


def _total(queryset: Callable[[], QuerySet[Any]], salt: str) -> int | None:
    """As `approximate_total`, a moment ago."""
    principal, now = current_principal(), time.monotonic()
    key = f"{salt}.{principal.subject if principal else ''}"
    known = _lengths.get(key)
    if known is not None and now < known[0]:
        return known[1]
    total = approximate_total(queryset())
    seconds = LONG_SECONDS if total is None or total > COUNTED else SHORT_SECONDS
    with _lock:
        if len(_lengths) >= REMEMBERED:
            _lengths.clear()
        _lengths[key] = now + seconds, total
    return total


def approximate_total(queryset: QuerySet[Any]) -> int | None:
    """About how many rows: exact up to `COUNTED`, beyond that what PostgreSQL's statistics say of the whole table.

    Where a filter or a tenant narrows the list, more than that is not known: statistics are of all tenants together.
    """
    using = plane()
    counted = queryset.using(using).order_by()[: COUNTED + 1].count()
    if counted <= COUNTED:
        return counted
    if using != FLEET_PLANE or queryset.query.where:
        return None
    with connections[using].cursor() as cursor:
        table = queryset.model._meta.db_table
        cursor.execute("SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass", [table])
        return max(counted, int(cursor.fetchone()[0]))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | str) else str(value)


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", str(DEFAULT))
    if not text.isascii() or not text.isdecimal() or len(text) > 4 or not 1 <= int(text) <= MOST:
        errors = [{"pointer": "/limit", "code": "out-of-range", "detail": f"A whole number from 1 to {MOST}."}]
        raise Problem("out-of-range", errors=errors)
    return int(text)


def _salt(request: Request, name: str) -> str:
    principal = current_principal()
    filters = sorted((k, v) for k, v in request.query_params.items() if k not in ("limit", "cursor"))
    return f"kvc.cursor.{name}.{principal.tenant_id if principal else ''}.{filters!r}"


def _write_cursor(cursor: _Cursor, salt: str) -> str:
    return signing.dumps([cursor.backwards, *cursor.values], salt=salt, compress=True)


def _read_cursor(text: str, salt: str) -> _Cursor:
    if not text:
        return _Cursor(False)
    try:
        backwards, *values = signing.loads(text, salt=salt)
    except (signing.BadSignature, ValueError):
        raise Problem("cursor-invalid") from None
    return _Cursor(bool(backwards), values)
