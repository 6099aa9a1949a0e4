"""The rule of retention: what lies longer than its data class is kept goes, wherever it lies.

How long a block lies is known from its placement: since when it has been where it is. A namespace is looked at again
when the oldest that it held then can be due, so nothing is read in vain. Called by `due`.
"""

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from catalog.models import Operation
from catalog.rules.opening import TTL, Matter, rule_open
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import named
from kvconsole.infra.statements import fetch
from tenants.erasing import Retained, namespaces_retained, namespaces_selected

MOST_KEPT = 200_000
_lock = threading.Lock()
_next: dict[UUID, tuple[int, int, datetime]] = {}
"""Namespace → (its generation and retention when it was looked at, when something of it can be due)."""


def forget() -> None:
    """Everything is looked at again."""
    with _lock:
        _next.clear()


def retention_due(*, now: datetime) -> list[Operation]:
    """Operations that were opened now, for what lies longer than it may."""
    rows = [row for row in namespaces_retained() if _may_be_due(row, now)]
    oldest = _oldest(rows)
    late: dict[tuple[UUID, str, str, int], list[Retained]] = {}
    for row in rows:
        born = oldest.get(row.namespace)
        due = (born or now) + timedelta(seconds=row.seconds)
        if born is not None and due <= now:
            late.setdefault((row.tenant_id, row.tenant, row.class_named, row.seconds), []).append(row)
            due = now
        with _lock:
            if len(_next) >= MOST_KEPT:
                _next.clear()
            _next[row.namespace] = row.min_gen, row.seconds, due
    return [made for key, some in late.items() for made in _open(*key, some, now)]


def _may_be_due(row: Retained, now: datetime) -> bool:
    known = _next.get(row.namespace)
    return known is None or known[:2] != (row.min_gen, row.seconds) or known[2] <= now


def _oldest(rows: Sequence[Retained]) -> dict[UUID, datetime]:
    """Namespace → since when the oldest of its blocks that is not fenced has lain where it is."""
    if not rows:
        return {}
    columns = ([row.namespace for row in rows], [row.min_gen for row in rows])
    return dict(fetch(named("catalog", "rules.sql")["oldest"], columns, using=FLEET_PLANE))


def _open(
    tenant_id: UUID, tenant: str, data_class: str, seconds: int, rows: Sequence[Retained], now: datetime
) -> list[Operation]:
    """One operation for the class; where namespaces keep several classes together, one for each of them."""
    older = {"older_than": now.timestamp() - seconds}
    whole: dict[str, object] = {"tenant": tenant, **({"class": data_class} if data_class else {})}
    selectors = [(f"class/{data_class}", whole)]
    if not data_class or not _separable(tenant, data_class):
        selectors = [(f"namespace/{r.digest.hex()}", {"tenant": tenant, "namespace": r.digest.hex()}) for r in rows]
    found = [
        rule_open(
            Matter(
                trigger=TTL, about=about, kind="deletion", tenant=tenant_id, selector={**selector, **older},
                options={"collateral": "none"}, reason=f"kept for {seconds} seconds",
            ),
            now=now,
        )
        for about, selector in selectors
    ]  # fmt: skip
    return [one for one in found if one is not None]


def _separable(tenant: str, data_class: str) -> bool:
    try:
        namespaces_selected(tenant=tenant, data_class=data_class, shared=False)
    except Problem:
        return False
    return True
