"""Decides what the pages of the log show. One function a page; each returns the template's context. Called by `views`.

A tenant's people see their own events, jobs and webhooks: their plane of the database decides that.
"""

import contextlib
import json
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, QueryDict

from audit import disclosure, selectors, signing
from audit.bodies import EventQuery, filter_of
from audit.selectors import EventView
from audit.tree import LogState, checkpoint_latest, log_state
from audit.wishes import searched
from catalog.selectors import node_names
from frontend.audit import sentences
from frontend.audit.wording import DOUBTS, OUTCOMES, PLANS
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.lists import Page
from frontend.tenancy.pages import may
from kvconsole.infra.access import Principal
from tenants.accounts import selectors as accounts

FILTERS = ("actor", "action", "object", "tenant", "outcome", "request_id", "from", "to")
WORDS = FILTERS[:6]
ACTS = ("page-audit-verify", "page-audit-export-new", "page-webhook-new", "page-audit-retention-new")
PEOPLE = 200
"""Names of so many people are tried to find who acted; the others stay a number."""
ROWS = 50


def chain(now: datetime, principal: Principal | None) -> dict[str, Any]:
    """How the log stands: the sentence, its facts, what is to be doubted and, for staff, what is open."""
    (state, differs), newest = hashed(log_state()), checkpoint_latest()
    staff = principal is not None and principal.tenant_id is None
    return {
        "log": state,
        "said": sentences.chain(state, now, differs=differs),
        "residual": sentences.residual(),
        "keys": signed_by(newest.note) if newest else [],
        "signed_age": (now - state.signed_at).total_seconds() if state.signed_at else None,
        "doubts": [DOUBTS[code] for code in signing.doubts()],
        "findings": selectors.findings("open").order_by("first_index", "id")[:20] if staff and state.findings else [],
        "staff": staff,
        "keeps": newest is not None,
        "as_of": now,
    }


def hashed(state: LogState) -> tuple[LogState, bool]:
    """The state with the last time that all rows were hashed again, by the scrubber or because somebody asked for it;
    and whether something differed when somebody asked since the scrubber's last round.
    """
    verified = selectors.jobs("verify").filter(state="done").order_by("-done_at").first()
    if verified is None or verified.done_at is None or (state.scrubbed_at and verified.done_at <= state.scrubbed_at):
        return state, False
    if verified.result.get("log") == "diverges":
        return state, True
    return state._replace(scrubbed_at=verified.done_at, scrubbed_size=verified.result["size"]), False


def signed_by(note: str) -> list[str]:
    """Names of the keys under a note, each once."""
    lines = (line.split(" ") for line in note.splitlines() if line.startswith("\u2014 "))
    return list(dict.fromkeys(parts[1] for parts in lines if len(parts) == 3))


# --- events -----------------------------------------------------------------------------------------------------------


def filter_form(data: QueryDict) -> tuple[Form, dict[str, Any]]:
    """What was typed, and what of it narrows; a filter that cannot be read finds nothing and says why."""
    form = forms.typed(data, *FILTERS)
    return form, forms.checked(EventQuery, form, {name: value for name, value in form.given.items() if value})


def audit(now: datetime, data: QueryDict, principal: Principal) -> dict[str, Any]:
    """The log's page: its state and a page of its events. That somebody looked is an event."""
    form, asked = filter_form(data)
    found = selectors.EventPage([], "", "")
    if not form.code:
        found = selectors.events(filter_of(asked), data.get("cursor", "")[:60], reader=principal)
    look = searched(asked, len(found.items), actor=principal)
    used = {name: value for name, value in form.given.items() if value}
    newest = found.items[0].time if found.items and not found.newer else now
    waiting = [one.id for one in found.items if one.index is None]
    return {
        **chain(now, principal),
        "events": found.items,
        "names": actor_names(found.items, principal),
        "objects": object_names(found.items, principal),
        "page": Page(found.items, _at(used, found.older), _at(used, found.newer)),
        "chips": [(name, value, _at({k: v for k, v in used.items() if k != name})) for name, value in used.items()],
        "used": used,
        "export_query": urlencode(used),
        "outcomes": outcome_choices(),
        "filters": filter_names(principal),
        "form": form,
        "may": may(principal, *ACTS),
        **follow(used, after=newest, look=look, waiting=waiting),
    }


def follow(used: dict[str, Any], *, after: datetime, look: UUID, waiting: list[UUID]) -> dict[str, Any]:
    """What the log's page asks every few seconds: what came since, and where events that waited are by now.

    Args:
        used: the filter, as it was typed.
        after: of the newest event that is shown, or the time of the look.
        look: the event that the look itself left, which is no news.
        waiting: events without a place yet.
    """
    asked = {**used, "after": after.isoformat(), "look": str(look), "waiting": ",".join(map(str, waiting))}
    return {"follow": urlencode(asked), "waiting": waiting, "newest": _at(used) + "#log"}


def followed(now: datetime, data: QueryDict, principal: Principal) -> dict[str, Any]:
    """What of the log's page moves by itself. Nothing of an event is told but its place, so this is no look."""
    form, asked = filter_form(data)
    context = chain(now, principal)
    try:
        after, look = datetime.fromisoformat(str(data["after"])), UUID(str(data["look"]))
        wanted = [UUID(one) for one in str(data["waiting"]).split(",")[:ROWS] if one]
        fresh = 0 if form.code or not after.tzinfo else selectors.newer(filter_of(asked), after, but=look)
    except (KeyError, ValueError, OverflowError):
        return context
    places = selectors.places_of(wanted)
    used = {name: value for name, value in form.given.items() if value}
    return {
        **context,
        "places": places,
        "fresh": fresh,
        "more": fresh >= selectors.NEWER,
        **follow(used, after=after, look=look, waiting=[one for one in wanted if one not in places]),
    }


def outcome_choices() -> list[tuple[str, Any, str]]:
    """The choices of a filter by outcome."""
    return [("", "–", ""), *((code, tone.word, "") for code, tone in OUTCOMES.items() if code != "unknown")]


def filter_names(principal: Principal) -> list[str]:
    """The filters that are typed; a tenant's people have no tenant to choose."""
    return [name for name in WORDS if name != "outcome" and not (principal.tenant_id and name == "tenant")]


def _at(used: dict[str, Any], cursor: str | None = None) -> str:
    """The address of this page with these filters; "" = there is no such page."""
    if cursor == "":
        return ""
    return "?" + urlencode({**used, **({"cursor": cursor} if cursor else {})}) + ("#log" if cursor else "")


def actor_names(events: list[EventView], principal: Principal) -> dict[str, str]:
    """Reference of an actor → log-in name, for people that the reader could look up anyway."""
    wanted = {e.actor_ref for e in events if e.actor_kind == "user"}
    if not wanted or not principal.may("auditor", "operator", "tenant-admin"):
        return {}
    since, until = min(e.time for e in events), max(e.time for e in events)
    found: dict[str, str] = {}
    for user in accounts.people().order_by("username")[:PEOPLE]:
        refs = disclosure.actor_refs(f"user:{user.id}", since, until)
        found |= {ref.hex(): user.username for ref in refs if ref.hex() in wanted}
        if wanted <= found.keys():
            break
    return found


def object_names(events: list[EventView], principal: Principal) -> dict[str, str]:
    """Id of an object → its name, of nodes and people, for who reads all of the log and could look them up anyway."""
    if not principal.may("auditor", "operator"):
        return {}
    nodes, users = (_ids(events, kind) for kind in ("node", "user"))
    people = accounts.people().filter(id__in=users).values_list("id", "username") if users else ()
    return {one: name for name, one in (node_names(ids=nodes) if nodes else {}).items()} | {
        str(one): name for one, name in people
    }


def _ids(events: list[EventView], kind: str) -> set[UUID]:
    found = set()
    for event in events:
        with contextlib.suppress(ValueError):
            found |= {UUID(event.object_id)} if event.object_kind == kind else set()
    return found


def event_or_404(event_id: UUID) -> Any:
    """The event, where the caller may see it."""
    found = selectors.event(event_id)
    if found is None:
        raise Http404
    return found


def event(event_id: UUID, principal: Principal) -> dict[str, Any]:
    """One event. That somebody looked is an event."""
    (view,) = selectors.event_views([event_or_404(event_id)], reader=principal)
    searched({"event": str(event_id)}, 1, actor=principal)
    newest = checkpoint_latest()
    return {
        "event": view,
        "name": actor_names([view], principal).get(view.actor_ref, ""),
        "called": object_names([view], principal).get(view.object_id, ""),
        "data": _written(view.data),
        "personal": _written(view.personal) if isinstance(view.personal, dict) else view.personal,
        "open": isinstance(view.personal, dict),
        "signed": newest is not None and view.index is not None and view.index < newest.size,
        "signed_size": newest.size if newest else None,
        "keys": signed_by(newest.note) if newest else [],
    }


def _written(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)


# --- for the other pages of the log -----------------------------------------------------------------------------------


def numbered(rows: Any, data: QueryDict) -> tuple[list[Any], Page]:
    """A page of a list that is short by its nature, and the addresses of its neighbours."""
    text = data.get("page", "")
    at = int(text) if text.isdecimal() and len(text) < 5 else 0
    found = list(rows[at * ROWS : (at + 1) * ROWS + 1])
    after = f"?page={at + 1}" if len(found) > ROWS else ""
    return found[:ROWS], Page(found[:ROWS], after, f"?page={at - 1}" if at else "")


def plan(what: str, name: str, back: str) -> dict[str, Any]:
    """What somebody has to confirm first.

    Args:
        what: a key of `PLANS`.
        name: of what it is done to.
        back: address of its page.
    """
    return {"plan": PLANS[what], "name": name, "back": back}
