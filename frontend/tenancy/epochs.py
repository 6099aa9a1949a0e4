"""Decides what the page of epochs shows: a model's bytes per token, its epochs, roll-out, adapters and lineage.

What the fleet holds of an epoch is told by the catalog once a minute; before that it is unknown. Called by `views`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, QueryDict
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from frontend import formats
from frontend.sentences import fill
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.lists import Page
from frontend.tenancy.pages import may
from frontend.tenancy.sentences import together
from kvconsole.infra.access import Principal
from tenants import reading, selectors, services
from tenants.reading import Point, RolloutEpoch, RolloutView

QUICK = (0, 10, 50, 100)
"""Shares of the newest epoch that are offered at a click."""
MOST_USES = 30
SHOWN_MODELS = 50


def address(name: str) -> str:
    """The page of a model; its name may have slashes."""
    return f"{reverse('page-epochs')}?{urlencode({'model': name})}"


def model_or_404(name: str) -> Any:
    """The platform's model of this name."""
    found = selectors.model_by_name(name[:200].replace("\0", ""))
    if found is None:
        raise Http404
    return found


def page(now: datetime, query: QueryDict, principal: Principal | None) -> dict[str, Any]:
    """All models, and one of them with everything."""
    acts = may(principal, "page-rollout", "page-epoch-new", "page-model-new", "page-adapter-new", "page-epoch-retire")
    listed = models_page(query)
    wanted, models = query.get("model", ""), listed["models"]
    chosen = model_or_404(wanted) if wanted else selectors.model_by_name(models[0].name) if models else None
    if chosen is None:
        empty = fill(_("<b>No model is registered.</b> Namespaces are made for models, so nothing can be cached yet."))
        hidden = fill(_("No model has “{search}” in its name."), search=listed["search"])
        return {**listed, "model": None, "answer": hidden if listed["search"] else empty, "may": acts}
    view, line = reading.rollout(chosen, now=now), reading.lineage(chosen)
    return {
        **listed,
        "model": line.model,
        "groups": chosen.per_group,
        "line": line,
        "epochs": [{"rollout": r, "view": v} for r, v in _joined(view.epochs, line.epochs)],
        "uses": line.uses[:MOST_USES],
        "more_uses": len(line.uses) > MOST_USES,
        "rollout": view,
        "series": series(view),
        "points": points(view),
        "stale": stale(view.epochs),
        "answer": sentence(view),
        "may": acts,
    }


def models_page(query: QueryDict) -> dict[str, Any]:
    """A page of models by name, and the addresses of its neighbours; the chosen model stays chosen."""
    search, after, before = (query.get(name, "").strip()[:200].replace("\0", "") for name in ("q", "after", "before"))
    found = reading.models(limit=SHOWN_MODELS + 1, after="" if before else after, before=before, search=search)
    more = len(found) > SHOWN_MODELS
    models = (found[1:] if before else found[:-1]) if more else found
    kept = {name: query[name] for name in ("model", "q") if query.get(name)}

    def link(name: str, there: bool) -> str:
        at = models[-1 if name == "after" else 0].name if models else ""
        return f"?{urlencode({**kept, name: at})}#models" if there and at else ""

    older, newer = (True, more) if before else (more, bool(after))
    page = Page(models, link("after", older), link("before", newer))
    return {"models": models, "search": search, "models_page": page}


def _joined(held: Sequence[RolloutEpoch], views: Sequence[Any]) -> list[tuple[RolloutEpoch, Any]]:
    """The newest first."""
    known = {v.epoch: v for v in views}
    return [(r, known[r.epoch]) for r in reversed(held) if r.epoch in known]


def stale(epochs: Sequence[RolloutEpoch]) -> int | None:
    """Tokens that were read from fenced generations, of all epochs; None = the catalog has not told."""
    known = [e.stale_hit_tokens for e in epochs if e.stale_hit_tokens is not None]
    return sum(known) if known else None


def sentence(view: RolloutView) -> SafeString:
    """What new requests get, what is left of the old, and whether anything stale was ever read."""
    parts: list[SafeString] = []
    wrong = stale(view.epochs)
    if wrong:
        text = ngettext(
            "<b>{n} token was read from a fenced generation.</b>",
            "<b>{n} tokens were read from fenced generations.</b>",
            wrong,
        )
        parts.append(fill(text, n=f"{wrong:,}"))
    shares = sorted(((int(e), s) for e, s in view.shares.items() if s), reverse=True)
    if not shares:
        parts.append(fill(_("<b>{model} has no epoch that takes requests.</b>"), model=view.model))
    elif len(shares) == 1:
        parts.append(
            fill(_("All new requests of <b>{model}</b> go to epoch {epoch}."), model=view.model, epoch=shares[0][0])
        )
    else:
        listed = formats.joined([_("%(share)s %% to epoch %(epoch)s") % {"share": s, "epoch": e} for e, s in shares])
        parts.append(fill(_("New requests of <b>{model}</b> are shared: {listed}."), model=view.model, listed=listed))
    if view.measured and len(view.shares) and view.forecast:
        parts.append(_left(view))
    return together(parts)


def _left(view: RolloutView) -> SafeString:
    at, last = view.measured[-1].at, view.measured[-1].old_bytes
    return fill(
        _("Old epochs hold {held}; {expected} were expected at this time."),
        held=formats.size(last),
        expected=formats.size(round(expected(view.forecast, at))),
    )


def expected(line: Sequence[Point], at: datetime) -> float:
    """Old bytes that the forecast has for a moment: straight between its points, its ends beyond them."""
    if at <= line[0].at:
        return line[0].old_bytes
    for one, two in pairwise(line):
        if at <= two.at:
            part = (at - one.at) / (two.at - one.at) if two.at > one.at else 1.0
            return one.old_bytes + part * (two.old_bytes - one.old_bytes)
    return line[-1].old_bytes


def series(view: RolloutView) -> list[dict[str, Any]]:
    """What the browser draws: old bytes as measured, and as forecast."""
    lines = (("measured", view.measured), ("forecast", view.forecast))
    return [
        {"name": name, "t": [int(p.at.timestamp()) for p in line], "y": [p.old_bytes for p in line]}
        for name, line in lines
        if line
    ]


def points(view: RolloutView, most: int = 24) -> list[dict[str, Any]]:
    """The twin of the picture: at each moment what was expected, and what was measured last before it."""
    moments = sorted({p.at for p in view.forecast} | {p.at for p in view.measured[-1:]})[:most]
    rows = []
    for at in moments:
        told = [p for p in view.measured if p.at <= at]
        known = told[-1].old_bytes if told and view.measured[-1].at >= at else None
        rows.append({"at": at, "expected": expected(view.forecast, at) if view.forecast else None, "measured": known})
    return rows


# --- changing shares --------------------------------------------------------------------------------------------------


def share_form(data: QueryDict, model: Any, now: datetime) -> Form:
    """What was typed, else the present shares."""
    view = reading.rollout(model, now=now)
    names = [f"share_{e.epoch}" for e in view.epochs]
    if "seen" in data:
        return forms.typed(data, *names, "horizon", "seen")
    given: dict[str, Any] = {f"share_{e.epoch}": str(e.share) for e in view.epochs}
    given |= {"horizon": str(view.horizon_seconds), "seen": _tag(model)}
    return Form(given)


def _tag(model: Any) -> str:
    return reading.rollout_tag(model, reading.rollout_of(model)).strip('"')


def shares_set(
    form: Form, model: Any, actor: Principal | None, now: datetime, *, rehearse: bool = False
) -> RolloutView | None:
    """The roll-out, set or as it would be."""
    shares = {
        int(name.removeprefix("share_")): forms.whole(form, name) or 0
        for name in form.given
        if name.startswith("share_")
    }
    horizon = forms.whole(form, "horizon")

    def act() -> RolloutView:
        services.rollout_set(
            model=model,
            shares=shares,
            horizon_seconds=horizon or 0,
            unless=lambda found: form.given["seen"] != reading.rollout_tag(model, found).strip('"'),
            actor=actor,
            now=now,
        )
        return reading.rollout(model, now=now)

    return forms.attempt(form, act, rehearse=rehearse)


def share_context(model: Any, form: Form, plan: RolloutView | None, now: datetime) -> dict[str, Any]:
    """The form by epoch, quick choices for the newest against the one before, and what the change means."""
    view = reading.rollout(model, now=now)
    open_ = [e.epoch for e in view.epochs if e.state == "open"]
    lines = [
        {"epoch": e, "field": f"share_{e.epoch}", "value": form.given.get(f"share_{e.epoch}", "")}
        for e in reversed(view.epochs)
    ]
    return {
        "model": model,
        "rollout": view,
        "lines": lines,
        "quick": quick(model.name, view, open_, form.given.get("seen", "")),
        "plan": plan,
        "means": means(view.shares, plan.shares) if plan else [],
        "peak": plan.peak_bytes if plan else None,
        "left": plan.forecast[-1] if plan and plan.forecast else None,
        "address": address(model.name),
    }


def quick(name: str, view: RolloutView, open_: Sequence[int], seen: str) -> list[tuple[int, str]]:
    """Share of the newest epoch → address of the check in which the epoch before has the rest."""
    if len(open_) < 2:
        return []
    new, old = open_[-1], open_[-2]
    out = []
    for share in QUICK:
        typed = {f"share_{e.epoch}": 0 for e in view.epochs} | {f"share_{new}": share, f"share_{old}": 100 - share}
        query = {"model": name, **typed, "horizon": view.horizon_seconds, "seen": seen, "check": 1}
        out.append((share, f"{reverse('page-rollout')}?{urlencode(query)}"))
    return out


def means(before: Mapping[str, int], after: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Epochs whose share changes: (epoch, before, after), the newest first."""
    epochs = sorted({int(e) for e in (*before, *after)}, reverse=True)
    found = [(e, before.get(str(e), 0), after.get(str(e), 0)) for e in epochs]
    return [(e, old, new) for e, old, new in found if old != new]
