"""Decides how a page shows lists that do not fit on it: one page of each, and where the neighbours are."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.http import QueryDict

from tenants import reading
from tenants.accounts import selectors as accounts
from tenants.directory import namespaces_page
from tenants.listing import ACTIVE_FIRST, BY_NAME, Keys, Listing, listing


class Page(NamedTuple):
    """Some of a list; `after` and `before` are addresses, "" = there is none. The whole is not counted."""

    items: list[Any]
    after: str
    before: str

    @property
    def more(self) -> bool:
        """Whether there is more than what is shown."""
        return bool(self.after or self.before)


def people(query: QueryDict, name: str, *, kind: str = "", tenant_id: UUID | None = None, fleet: bool = False) -> Page:
    """People and service accounts by name."""
    rows = accounts.people(tenant_id=tenant_id, fleet=fleet, kind=kind)
    return _page(query, name, rows, BY_NAME, lambda found: list(accounts.person_views(found)))


def tokens(query: QueryDict, now: datetime, *, tenant_id: UUID, owner_id: UUID | None = None) -> Page:
    """Tokens: those that are good first, then those that are over, each the newest first."""
    rows = accounts.ranked(accounts.tokens_of(tenant_id=tenant_id, owner_id=owner_id), now)
    return _page(query, "tokens", rows, ACTIVE_FIRST, lambda found: [accounts.token_view(t, now) for t in found])


def groups(query: QueryDict, now: datetime, *, tenant_id: UUID | None = None) -> Page:
    """Share groups, the newest first."""
    after, before = _asked(query, "groups")
    return _addressed(
        query, "groups", reading.share_groups_page(now=now, tenant_id=tenant_id, after=after, before=before)
    )


def namespaces(query: QueryDict, now: datetime, *, tenant_id: UUID, shared: bool = False) -> Page:
    """A tenant's own namespaces, or those of share groups that it may use now; the newest first."""
    name = "shared" if shared else "spaces"
    after, before = _asked(query, name)
    found = namespaces_page(tenant_id=tenant_id, now=now, shared=shared, after=after, before=before)
    return _addressed(query, name, found)


def _page(query: QueryDict, name: str, rows: Any, keys: Keys, shown: Callable[[list[Any]], list[Any]]) -> Page:
    after, before = _asked(query, name)
    found = listing(rows, keys=keys, after=after, before=before)
    return _addressed(query, name, Listing(shown(found.items), found.after, found.before))


def _asked(query: QueryDict, name: str) -> tuple[str, str]:
    return query.get(f"{name}_after", ""), query.get(f"{name}_before", "")


def _addressed(query: QueryDict, name: str, found: Listing) -> Page:
    return Page(found.items, _at(query, name, after=found.after), _at(query, name, before=found.before))


def _at(query: QueryDict, name: str, **place: str) -> str:
    """The address of this page with another part of one list; the others stay where they are."""
    ((way, mark),) = place.items()
    if not mark:
        return ""
    kept = query.copy()
    for other in ("after", "before"):
        kept.pop(f"{name}_{other}", None)
    kept[f"{name}_{way}"] = mark
    return f"?{kept.urlencode()}#{name}"
