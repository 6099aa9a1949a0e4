"""Decides what the forms of tenants do: how fields become a service's arguments, and what a rehearsal shows.

Each function takes the form as it was typed and answers what would be, or was, done; None = the form says why not.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.http import Http404, QueryDict

from catalog.closing import tenant_delete
from catalog.quotas import QuotaView, quota_set, quota_view, quotas_lock
from frontend import wording
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.wording import ERASURE_MEANS, ERASURE_SCOPES, ISOLATION_MEANS, ISOLATIONS
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem, etag
from tenants import services
from tenants.bodies import TenantIn, TenantPatch
from tenants.directory import TenantView, tenant_seen, tenant_view
from tenants.placing import tenant_place

TENANT_FIELDS = ("slug", "name", "residency", "isolation", "classes", "erasure_scope", "retention")
RATES = ("requests_per_second", "deletions_per_hour")
CHOICES = {
    "isolation": [(code, word, ISOLATION_MEANS[code]) for code, word in ISOLATIONS.items()],
    "erasure_scope": [(code, word, ERASURE_MEANS[code]) for code, word in ERASURE_SCOPES.items()],
}
QUOTA_FIELDS = (*(f"{t}_{w}" for t in wording.TIERS for w in ("limit", "guaranteed")), *RATES)


def tenant_form(data: QueryDict, present: TenantView | None = None) -> Form:
    """What was typed; where nothing was, what the tenant is now, or what is usual."""
    if "name" in data:
        return forms.typed(data, *TENANT_FIELDS, "seen")
    if present is None:
        return Form({"isolation": "shared", "erasure_scope": "label", **dict.fromkeys(("slug", "name", "classes"), "")})
    lines = "\n".join(f"{of}: {seconds}" for of, seconds in sorted(present.retention.items()))
    shown = msgspec.structs.asdict(present)
    given = {n: shown[n] for n in TENANT_FIELDS}
    return Form({**given, "classes": ", ".join(present.classes), "retention": lines, "seen": tenant_tag(present)})


def _fields(form: Form) -> dict[str, Any]:
    given = {name: form.given[name] for name in TENANT_FIELDS}
    return {**given, "classes": forms.words(given["classes"]), "retention": forms.retention(form, "retention")}


def tenant_make(form: Form, actor: Principal | None, *, rehearse: bool = False) -> TenantView | None:
    """The tenant, made or as it would be."""
    fields = forms.checked(TenantIn, form, _fields(form))

    def act() -> TenantView | None:
        services.tenant_create(**fields, actor=actor)
        return tenant_view(fields["slug"])

    return forms.attempt(form, act, rehearse=rehearse)


def tenant_change(form: Form, slug: str, actor: Principal | None, *, rehearse: bool = False) -> TenantView | None:
    """The tenant, changed or as it would be; `seen` of the form is the state that the person saw."""
    fields = _fields(form)
    fields.pop("slug")
    fields = forms.checked(TenantPatch, form, fields)
    seen = form.given.get("seen", "")

    def act() -> TenantView | None:
        services.tenant_change(
            slug=slug,
            changes=fields,
            unless=lambda row: (bool(seen) or not rehearse) and seen != tenant_tag(tenant_seen(row)),
            actor=actor,
        )
        return tenant_view(slug)

    return forms.attempt(form, act, rehearse=rehearse)


def tenant_plan(before: TenantView, after: TenantView | None) -> list[tuple[str, Any, Any]] | None:
    """What the change changes, as (field, before, after); None = nothing was checked."""
    if after is None:
        return None
    changed = [name for name in TENANT_FIELDS if getattr(before, name) != getattr(after, name)]
    return [(name, getattr(before, name), getattr(after, name)) for name in changed]


def tenant_tag(view: TenantView) -> str:
    """What changes whenever the tenant does."""
    return etag(msgspec.to_builtins(view)).strip('"')


def tenant_close(view: TenantView, actor: Principal | None, now: datetime, *, rehearse: bool = False) -> Form:
    """The tenant is closed, or the form says why it cannot be."""
    form, place = Form(), tenant_place(view.slug)
    if place is None:
        raise Http404
    forms.attempt(form, lambda: tenant_delete(tenant=place, actor=actor, now=now), rehearse=rehearse)
    return form


# --- quotas -----------------------------------------------------------------------------------------------------------


def quota_form(data: QueryDict, present: QuotaView) -> Form:
    """What was typed, else the present quotas."""
    if "seen" in data:
        return forms.typed(data, *QUOTA_FIELDS, "seen")
    given: dict[str, Any] = {"seen": etag(present.intent()).strip('"')}
    for tier, quota in present.tiers.items():
        given[f"{tier}_limit"] = forms.written(quota.limit_bytes)
        given[f"{tier}_guaranteed"] = forms.written(quota.guaranteed_bytes or None)
    for name in RATES:
        rate = getattr(present, name)
        given[name] = "" if rate is None else str(rate)
    return Form(given)


def quotas_set(
    form: Form, view: TenantView, actor: Principal | None, now: datetime, *, evict: bool = False, rehearse: bool = False
) -> QuotaView | None:
    """The quotas, set or as they would be. `evict`: what is above is meant to leave."""
    tiers = {
        tier: {
            "limit_bytes": forms.size(form, f"{tier}_limit"),
            "guaranteed_bytes": forms.size(form, f"{tier}_guaranteed") or 0,
        }
        for tier in wording.TIERS
    }
    rates = {name: forms.whole(form, name) for name in RATES}

    def act() -> QuotaView:
        quotas_lock()
        if form.given["seen"] != etag(quota_view(tenant=view.id, now=now).intent()).strip('"'):
            raise Problem("etag-mismatch")
        return quota_set(tenant=view.id, tiers=tiers, **rates, evict=evict, actor=actor, now=now)

    return forms.attempt(form, act, rehearse=rehearse)


def quota_plan(before: QuotaView, after: QuotaView) -> list[dict[str, Any]]:
    """What the change means, tier by tier and rate by rate; what stays as it is, is left out.

    `evicts` = bytes that are held above the new limit: nodes evict them, least value first.
    """
    lines: list[dict[str, Any]] = []
    for tier in wording.TIERS:
        old, new = before.tiers[tier], after.tiers[tier]
        if _intent(old) == _intent(new) and old.effective_guaranteed_bytes == new.effective_guaranteed_bytes:
            continue
        over = (
            max(0, new.used_bytes - new.limit_bytes)
            if new.used_bytes is not None and new.limit_bytes is not None
            else 0
        )
        lines.append({"tier": tier, "old": old, "new": new, "evicts": over, "scaled": _scaled(new)})
    for name in RATES:
        if getattr(before, name) != getattr(after, name):
            lines.append({"rate": name, "old": getattr(before, name), "new": getattr(after, name)})
    return lines


def _intent(quota: Any) -> tuple[Any, Any]:
    return quota.limit_bytes, quota.guaranteed_bytes


def _scaled(quota: Any) -> bool:
    return bool(quota.effective_guaranteed_bytes < quota.guaranteed_bytes)


def evicted(plan: Sequence[Mapping[str, Any]]) -> int:
    """Bytes that leave because of the change."""
    return sum(line.get("evicts", 0) for line in plan)
