"""Decides what the page of deny windows shows and does: times in which nothing destructive starts.

People say a time of the day and days of the week; who wants more types the cron line itself. What a window holds back
is decided by the same service as REST.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, QueryDict

from catalog.api_windows import RISKS, WindowIn, window_tenant
from catalog.operation_reads import window_row, window_rows
from catalog.windows import denied, window_create, window_remove
from frontend.operations import sentences
from frontend.operations.lists import NEWEST
from frontend.operations.names import people_of
from frontend.operations.wording import DAYS, FROM_RISKS
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.lists import Page
from frontend.tenancy.pages import may
from kvconsole.infra.access import Principal
from kvconsole.infra.sql import PLATFORM
from tenants.listing import listing
from tenants.selectors import tenant_slugs

ROWS = 25
TYPED = ("begin", "minutes", "cron", "from_risk", "tenant", "reason")
SIMPLE = re.compile(r"(\d{1,2}) (\d{1,2}) \* \* (\*|[0-6](?:,[0-6])*)")
"""A cron line that says a time of the day and days of the week, as the form writes it."""


def window_form(data: QueryDict) -> Form:
    """What was typed, or what a link brought along."""
    form = forms.typed(data, *TYPED, many=("days",))
    form.given["from_risk"] = form.given["from_risk"] or RISKS[0]
    return form


def window_list(now: datetime, data: QueryDict, principal: Principal) -> dict[str, Any]:
    """Deny windows, newest first, and which of them are open now."""
    found = listing(window_rows(), keys=NEWEST, after=data.get("after", ""), before=data.get("before", ""), limit=ROWS)
    at = {way: f"?{way}={mark}" if mark else "" for way, mark in (("after", found.after), ("before", found.before))}
    slugs = tenant_slugs({one.tenant_id for one in found.items})
    lines = [line(one, slugs.get(one.tenant_id, ""), now) for one in found.items]
    return {
        "lines": lines,
        "page": Page(found.items, at["after"], at["before"]),
        "answer": sentences.windows(sum(1 for one in lines if one["until"]), bool(lines), principal.tenant_slug),
        "names": people_of(one.requested_by for one in found.items),
        "own": principal.tenant_slug,
        "days": [(code, word) for code, word in DAYS.items()],
        "risks": [(code, FROM_RISKS[code], "") for code in RISKS],
        "may": may(principal, "page-windows", "page-window-remove"),
        "as_of": now,
    }


def line(one: Any, slug: str, now: datetime) -> dict[str, Any]:
    """One row. `until`: when the window that is open now ends, None = it is not open; `time` "": another cron line."""
    at = SIMPLE.fullmatch(one.cron)
    time = f"{int(at[2]):02d}:{int(at[1]):02d}" if at else ""
    days = [] if at is None or at[3] == "*" else [DAYS[day] for day in DAYS if day in at[3].split(",")]
    return {
        "one": one,
        "tenant": "" if one.tenant_id == PLATFORM else slug,
        "fleet": one.tenant_id == PLATFORM,
        "time": time,
        "days": days,
        "seconds": one.minutes * 60,
        "from_risk": FROM_RISKS[str(one.from_risk)],
        "until": denied(one.tenant_id, one.from_risk, now, only=[one]),
    }


def cron_of(form: Form) -> str:
    """The cron line of what was typed; the form says what is wrong with it."""
    given = form.given
    if given["cron"]:
        return " ".join(given["cron"].split())
    at = re.fullmatch(r"([01]?\d|2[0-3])[:：]([0-5]\d)", given["begin"])
    if at is None:
        form.wrong("begin", "not-a-clock" if given["begin"] else "required")
        return ""
    days = [day for day in DAYS if day in given["days"]]
    return f"{int(at[2])} {int(at[1])} * * {week(days)}"


def week(days: Sequence[str]) -> str:
    """The days of the week in a cron line; none of them is every day."""
    return ",".join(sorted(days)) if 0 < len(days) < len(DAYS) else "*"


def window_make(form: Form, actor: Principal, now: datetime) -> Any:
    """Nothing of the risk starts in the window from now on; None: the form says why there is no window."""
    said = {"cron": cron_of(form), "minutes": forms.whole(form, "minutes") or form.given["minutes"] or None}
    said |= {name: form.given[name] for name in ("from_risk", "reason")}
    fields = forms.checked(WindowIn, form, said) if not form.code else {}
    made = forms.attempt(form, lambda: _made(fields, form.given["tenant"], actor, now))
    if form.code == "not-found" and form.given["tenant"]:
        form.errors["tenant"] = forms.FIELD_WORDS["unknown-tenant"]
    return made


def _made(fields: dict[str, Any], tenant: str, actor: Principal, now: datetime) -> Any:
    return window_create(**fields, tenant=window_tenant(tenant), actor=actor, now=now)


def window_or_404(window_id: UUID) -> Any:
    """The window, where the caller may see it."""
    found = window_row(window_id)
    if found is None:
        raise Http404
    return found


def removal(one: Any, now: datetime) -> dict[str, Any]:
    """What its end means."""
    slugs = tenant_slugs({one.tenant_id})
    return {"line": line(one, slugs.get(one.tenant_id, ""), now), "one": one, "names": people_of([one.requested_by])}


def window_take(form: Form, one: Any, actor: Principal) -> None:
    """The window is gone, or the form says why not."""
    forms.attempt(form, lambda: window_remove(window_id=one.id, actor=actor))
