"""Decides what the pages of tenants show: the list, one tenant, its quotas, and the portal of its own people.

One function a page; each returns the template's context. What a tenant's own people see is what the same selectors
answer on their plane, without nodes, addresses or totals of the fleet. Called by `views`.
"""

from datetime import datetime, timedelta
from typing import Any

from django.http import QueryDict

from catalog.classes import class_rules_view
from catalog.dedication import nodes_dedicated
from catalog.quotas import QuotaView, quota_view
from catalog.rates import rates_left
from catalog.standing import Standing, standings
from catalog.usage import UsageView, usage_view
from frontend import formats, wording
from frontend.tenancy import lists, pictures, sentences
from frontend.tenancy.spaces import space_acts, spaces
from frontend.tenancy.wording import SPANS, USAGE_UNITS
from kvconsole.infra.access import Principal, rule_for
from tenants import reading
from tenants.directory import TenantView, tenants_page
from tenants.placing import tenant_place


def may(principal: Principal | None, *routes: str, method: str = "POST") -> dict[str, bool]:
    """Which of these acts the registry allows; `page-tenant-new` is asked for as `tenant_new`."""
    found = {name: rule_for(name, method) for name in routes}
    return {
        name.removeprefix("page-").replace("-", "_"): rule is not None and rule.allows(principal)
        for name, rule in found.items()
    }


def tenants(now: datetime, query: QueryDict, principal: Principal | None) -> dict[str, Any]:
    """A page of the list of tenants."""
    search = query.get("q", "").strip()[:200].replace("\0", "")
    page = tenants_page(search=search, after=query.get("after", "")[:63], before=query.get("before", "")[:63])
    found = standings(tenants=[t.id for t in page.items], now=now)
    lines = [line(t, found[t.id]) for t in page.items]
    full = {
        one["tenant"].slug: tiers
        for one in lines
        if (tiers := [c["tier"] for c in one["cells"] if c["state"] == "full"])
    }
    return {
        "lines": lines,
        "page": page,
        "search": search,
        "tiers": wording.TIERS,
        "filtered": bool(search),
        "answer": sentences.tenants(page.items, full, search, not page.after and not page.before),
        "may": may(principal, "page-tenant-new"),
    }


def line(tenant: TenantView, standing: Standing) -> dict[str, Any]:
    """One row: per tier what is used of the quota, and how much of today's prompts the cache answered."""
    cells = []
    for tier in wording.TIERS:
        used, limit = None if standing.used is None else standing.used[tier], standing.limits[tier]
        cells.append({"tier": tier, "used": used, "limit": limit, "state": pictures.tier_state(used, limit)})
    hits, prompt = standing.hit_tokens, standing.prompt_tokens
    ratio = hits / prompt if hits is not None and prompt else None
    return {"tenant": tenant, "cells": cells, "hits": hits, "ratio": ratio}


def body(now: datetime, view: TenantView, query: QueryDict) -> dict[str, Any]:
    """What the page of a tenant and its portal have in common."""
    span = query.get("range", "") if query.get("range", "") in SPANS else "7d"
    unit = query.get("unit", "") if query.get("unit", "") in USAGE_UNITS else "tokens"
    days = SPANS[span][0]
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    use = usage_view(tenant=view.id, since=midnight - timedelta(days=days - 1), until=now, now=now)
    quotas = quota_view(tenant=view.id, now=now)
    steps = pictures.steps(quotas)
    place = tenant_place(view.slug)
    return {
        "tenant": view,
        "quotas": quotas,
        "steps": steps,
        "use": use,
        "unit": unit,
        "units": USAGE_UNITS,
        "span": span,
        "spans": SPANS,
        "chart": pictures.usage(use, unit),
        "kpis": kpis(use, quotas, steps),
        "rules": class_rules_view(tenant=place) if place else {},
        "answer": sentences.tenant(view, steps, use, days),
        "people": lists.people(query, "people", tenant_id=view.id),
        "tokens": lists.tokens(query, now, tenant_id=view.id),
        "groups": lists.groups(query, now, tenant_id=view.id),
        **rates(now, view),
        **spaces(now, view, query),
    }


def rates(now: datetime, view: TenantView) -> dict[str, Any]:
    """How often the tenant may ask and delete, and what is left of it now."""
    whole, left = rates_left(view.id, now=now)
    return {"tenant": view, "rates": whole, "left": left}


def kpis(use: UsageView, quotas: QuotaView, steps: list[pictures.Step]) -> list[dict[str, Any]]:
    """The number strip: what was read and saved in the time shown, and what is held now."""
    hits, bound = use.hits, not use.complete
    ratio = hits.tokens / hits.prompt_tokens if hits and hits.prompt_tokens else None
    held = None if any(s.used_bytes is None for s in steps) else sum(s.used_bytes or 0 for s in steps)
    tokens, prefix = formats.short(hits.tokens) if hits else (None, "")
    size, unit = formats.iec(hits.bytes) if hits else (None, "")
    saved = str(formats.milliseconds(hits.saved_prefill_ms)) if hits else None
    now_held, held_unit = formats.iec(held) if held is not None else (None, "")
    return [
        {"name": "ratio", "value": None if ratio is None else f"{100 * ratio:.1f}", "unit": "%", "bound": False},
        {"name": "tokens", "value": tokens, "unit": prefix, "bound": bound},
        {"name": "bytes", "value": size, "unit": unit, "bound": bound},
        {"name": "saved", "value": saved, "unit": "", "bound": bound},
        {"name": "held", "value": now_held, "unit": held_unit, "bound": False},
    ]


def tenant(now: datetime, view: TenantView, query: QueryDict, principal: Principal | None) -> dict[str, Any]:
    """One tenant, as staff of the fleet sees it."""
    acts = may(
        principal, "page-tenant-quotas", "page-tenant-change", "page-tenant-classes", "page-tenant-nodes",
        "page-tenant-close", "page-person-new", "page-share-new",
    )  # fmt: skip
    more = {"may": acts, "acts": space_acts(principal), "nodes": nodes_dedicated(tenant=view.id), "fleet_view": True}
    return {**body(now, view, query), **more}


def portal(now: datetime, view: TenantView, query: QueryDict, principal: Principal | None) -> dict[str, Any]:
    """One tenant, as its own people see it."""
    acts = may(principal, "page-person-new", "page-token-new", "page-adapter-new")
    own = principal is not None and principal.tenant_id == view.id
    more = {"may": acts, "acts": space_acts(principal) if own else [], "adapters": reading.adapters_of(view.id)}
    return {**body(now, view, query), **more, "own": own, "fleet_view": False}
