"""Decides what the page Routing shows: newest decisions by filter, what became of them, and what they cost.

A tenant's own people see their own decisions and no node, no counter of the fleet. Figures are of the last hour,
weighted by what a sampled decision stands for. Called by `views`.
"""

from collections.abc import Container, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import QueryDict
from django.urls import reverse

from frontend.routing import sentences
from frontend.routing.wording import ANSWERS, KEPT, ORDER
from frontend.tenancy.lists import Page
from kvconsole.infra.access import Principal
from routing import selectors
from routing.selectors import Mix
from tenants.selectors import tenant_id_of, tenant_slugs

ROWS = 50
SPAN = timedelta(hours=1)
STAFF_FILTERS = ("tenant", "model", "node", "policy", "answer", "kept")
OWN_FILTERS = ("model", "answer")
LONGEST = 200
PROMISE_SECONDS = 25
"""The page asks every ten seconds; older than this it says that nobody answered."""


def staff(principal: Principal | None) -> bool:
    """Whether somebody is of the fleet, and not of one tenant."""
    return principal is not None and principal.tenant_id is None


def page(now: datetime, data: QueryDict, principal: Principal | None) -> dict[str, Any]:
    """The page."""
    fleet = staff(principal)
    used = filters(data, fleet)
    rows, place = tail(used, data)
    mix = selectors.decisions_mix(since=now - SPAN, until=now, model=used.get("model", ""))
    counted = selectors.tallies(now=now) if fleet else None
    return {
        "rows": lines(rows, fleet),
        "page": place,
        "used": used,
        "fields": STAFF_FILTERS if fleet else OWN_FILTERS,
        "chips": chips(used),
        "answers": [("", sentences.every(), ""), *((code, tone.word, "") for code, tone in ANSWERS.items())],
        "kinds": [("", sentences.every(), ""), *((code, word, "") for code, word in KEPT.items())],
        "mix": mix,
        "bars": bars(mix),
        "counted": counted,
        "fleet": fleet,
        "policies": selectors.policies() if fleet else [],
        "answer": sentences.routing(mix, counted),
        "follow": urlencode(used),
        "as_of": now,
        "live": {"old": False, "as_of": now, "promise": PROMISE_SECONDS} if fleet else None,
        "href": reverse("page-decision", args=[UUID(int=0)]).removesuffix(str(UUID(int=0))),
        "words": {code: [tone.tone, tone.icon, str(tone.word)] for code, tone in ANSWERS.items()},
    }


def filters(data: Mapping[str, Any], fleet: bool) -> dict[str, str]:
    """What was asked for and can be asked for."""
    allowed: dict[str, Container[str]] = {"answer": ANSWERS, "kept": KEPT}
    found = {
        name: str(data.get(name, "")).strip()[:LONGEST].replace("\0", "")
        for name in (STAFF_FILTERS if fleet else OWN_FILTERS)
    }
    return {name: text for name, text in found.items() if text and text in allowed.get(name, (text,))}


def tail(used: Mapping[str, str], data: Mapping[str, Any]) -> tuple[list[Any], Page]:
    """The newest decisions behind a place, and where older and newer ones are."""
    asked: dict[str, Any] = dict(used)
    if "tenant" in asked and (asked := asked | {"tenant": tenant_id_of(asked["tenant"])})["tenant"] is None:
        return [], Page([], "", "")
    after, before = _id(data.get("after")), _id(data.get("before"))
    back = before is not None
    place = before or after
    found = selectors.DECISIONS.page(asked, limit=ROWS + 1, backwards=back, behind=[place] if place else ())
    more, found = len(found) > ROWS, found[:ROWS]
    if back:
        found.reverse()
    older, newer = (bool(found), more) if back else (more, after is not None)
    at = {"after": found[-1].id if older and found else None, "before": found[0].id if newer and found else None}
    links = {way: f"?{urlencode({**used, way: str(mark)})}" if mark else "" for way, mark in at.items()}
    return found, Page(found, links["after"], links["before"])


def _id(text: Any) -> UUID | None:
    try:
        return UUID(str(text)) if text else None
    except ValueError:
        return None


def lines(rows: list[Any], fleet: bool) -> list[dict[str, Any]]:
    """One line a decision; whose it is and where it went only for the fleet's own people."""
    slugs = tenant_slugs({row.tenant_id for row in rows}) if fleet and rows else {}
    return [
        {"one": row, "tenant": slugs.get(row.tenant_id, ""), "late": late(row.predicted_ms, row.measured_ms)}
        for row in rows
    ]


def late(predicted_ms: float | None, measured_ms: float | None) -> float | None:
    """How much later the first token came than was expected, in ms; None = not known."""
    return None if measured_ms is None or predicted_ms is None else measured_ms - predicted_ms


def chips(used: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Each filter with its value and the address without it."""
    out = []
    for name, value in used.items():
        rest = {other: text for other, text in used.items() if other != name}
        out.append((name, value, f"?{urlencode(rest)}"))
    return out


def bars(mix: Mix) -> list[tuple[str, int, str, str, str]]:
    """(answer, decisions, x, width, share) of the bar of outcomes, in the fixed order."""
    out, at = [], 0.0
    for name in ORDER:
        count = mix.answers.get(name, 0)
        if not count or not mix.made:
            continue
        part = 100 * count / mix.made
        out.append((name, count, f"{at:.2f}", f"{part:.2f}", f"{part:.1f} %"))
        at += part
    return out
