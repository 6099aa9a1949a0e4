"""Decides what pages show of a tenant's namespaces: its own, those of share groups, and why two share nothing.

Called by `pages`. Any two can be compared: by id or digest whatever the caller may see, by label those of the tenant.
"""

from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse

from frontend import formats
from frontend.tenancy import lists
from frontend.tenancy.wording import SPACE_ACTS
from kvconsole.infra.access import Principal, rule_for
from tenants import reading
from tenants.directory import NamespaceView, TenantView, namespaces_named


class Choice(NamedTuple):
    """One of several namespaces that a label could mean. `side`: of which of the two fields."""

    side: str
    space: NamespaceView
    link: str


def spaces(now: datetime, view: TenantView, query: QueryDict) -> dict[str, Any]:
    """Namespaces of the tenant and of groups that it may use now, a page of each, and a comparison if one is asked."""
    own = lists.namespaces(query, now, tenant_id=view.id)
    shared = lists.namespaces(query, now, tenant_id=view.id, shared=True)
    return {
        "namespaces": own,
        "shared": shared,
        "group_names": reading.group_names({n.share_group for n in shared.items}),
        "comparable": [(n.digest, named(n)) for n in (*own.items, *shared.items)],
        **explained(now, view, query),
    }


def space_acts(principal: Principal | None) -> list[dict[str, Any]]:
    """What may be begun with a namespace: the forms that take one, where the caller may send them."""
    rules = {route: rule_for(route, "POST") for route in SPACE_ACTS}
    return [
        {"url": reverse(route), "word": SPACE_ACTS[route]}
        for route, rule in rules.items()
        if rule and rule.allows(principal)
    ]


def named(space: NamespaceView) -> str:
    """A namespace in a list of suggestions."""
    return f"{space.label or formats.DASH} · {space.model}·{space.model_epoch}"


def explained(now: datetime, view: TenantView, query: QueryDict) -> dict[str, Any]:
    """Why two namespaces do not share: "unknown" where one is not there for the caller, None if it was not asked.

    `choices`: what a label that several have could mean.
    """
    a, b = (query.get(side, "").strip()[:200].replace("\0", "") for side in ("a", "b"))
    found: dict[str, Any] = {"a": a, "b": b, "explained": None, "choices": []}
    if not a or not b:
        return found
    sides = {side: namespaces_named(tenant_id=view.id, text=text, now=now) for side, text in (("a", a), ("b", b))}
    if not all(sides.values()):
        return found | {"explained": "unknown"}
    if any(len(items) > 1 for items in sides.values()):
        found["choices"] = [
            Choice(side, n, f"?{urlencode({'a': a, 'b': b} | {side: n.digest})}#why")
            for side, items in sides.items()
            for n in items
            if len(items) > 1
        ]
        return found
    one, two = (items[0].digest for items in sides.values())
    return found | {"explained": reading.explanation(one, two) or "unknown"}
