"""Decides what the pages of policies show and do: which is in force, what a change would have done, and the change.

The effect stands before the button: the present policy and the new one over the same recorded requests. A change is
refused where the policy is no longer the version that was on the page. Called by `views`.
"""

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.http import Http404

from frontend.routing import sentences
from frontend.routing.amounts import written
from frontend.routing.wording import POLICIES
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.pages import may
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from kvcore.policies import KINDS, PARAMS, Bounds, Kind
from routing import policies, selectors
from routing.selectors import Compared, PolicyView

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
LONGEST = 40


def listed(now: datetime) -> dict[str, Any]:
    """The policies in force by name, then the default and the kinds that are built in."""
    known = selectors.policies()
    names = {one.name for one in known}
    built = [
        found for name in (policies.DEFAULT, *KINDS) if name not in names and (found := policies.policy_find(name))
    ]
    return {"rows": known, "built": built, "answer": sentences.policies(known), "as_of": now}


def policy_or_404(name: str) -> PolicyView:
    """The policy in force; of a name that could be one and is none, an empty one of version 0."""
    found = policies.policy_find(name)
    if found is not None:
        return found
    if not NAME.match(name):
        raise Http404
    return PolicyView(name, 0, "", "predicted", {"kind": "predicted", "params": {}}, None, "", False)


def policy_form(data: Mapping[str, Any], before: PolicyView) -> Form:
    """What was typed; what was not is as it is now, or as its kind begins where the kind is another."""
    form = forms.typed(data, "kind", "model", "seen")
    kind = chosen(form.given["kind"] or before.kind)
    form.given |= {"kind": kind, "model": form.given["model"] if "kind" in data else before.model}
    form.given["seen"] = form.given["seen"] or str(before.version)
    present = before.document["params"] if before.kind == kind else {}
    for name, bounds in PARAMS[kind].items():
        value = present.get(name, None if math.isinf(bounds.default) else bounds.default)
        form.given[field(name)] = str(data.get(field(name), "" if value is None else written(value))).strip()
    return form


def chosen(kind: str) -> Kind:
    """The kind of this name, else the first."""
    return next((one for one in KINDS if one == kind), KINDS[0])


def field(name: str) -> str:
    """The field of a parameter; it has the name by which a refusal points at it."""
    return f"params-{name}"


def document(form: Form) -> dict[str, Any]:
    """What the form says, as the service takes it; a field that cannot be read is in the form."""
    kind = chosen(form.given["kind"])
    params = {name: number(form, field(name), bounds) for name, bounds in PARAMS[kind].items()}
    return {"kind": kind, "model": form.given["model"] or None, "params": params}


def number(form: Form, name: str, bounds: Bounds) -> float | None:
    """One parameter; empty is no limit where that may be said."""
    text = form.given[name].replace(",", "")
    if not text and bounds.endless:
        return None
    try:
        value = float(text) if len(text) <= LONGEST else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        form.wrong(name, "not-a-number" if text else "required")
        return bounds.default
    return value


def rehearse(form: Form, before: PolicyView) -> list[Compared]:
    """What the present policy and the new one do with the same recorded requests; [] where the form is refused."""
    said = document(form)
    return forms.attempt(form, lambda: policies.dry_run(name=before.name, document=said)) or []


def policy_set(form: Form, before: PolicyView, actor: Principal, now: datetime) -> PolicyView | None:
    """The next version is in force; None: the form says why not, and nothing was changed."""
    said = document(form)

    def act() -> PolicyView:
        present = policies.policy_find(before.name)
        if form.given["seen"] != str(present.version if present else 0):
            raise Problem("etag-mismatch")
        return policies.policy_put(name=before.name, document=said, actor=actor, now=now)

    return forms.attempt(form, act)


def page(form: Form, before: PolicyView, run: list[Compared], principal: Principal | None) -> dict[str, Any]:
    """The page of one policy."""
    kind = chosen(form.given["kind"])
    return {
        "policy": before,
        "kind": kind,
        "kinds": [(one, POLICIES[one], "") for one in KINDS],
        "rows": run,
        "checked": bool(run),
        "requests": run[0].requests if run else 0,
        "params": [parameter(form, name, bounds) for name, bounds in PARAMS[kind].items()],
        "versions": selectors.policy_versions(before.name),
        "answer": sentences.policy(before),
        "may": may(principal, "page-policy"),
    }


def parameter(form: Form, name: str, bounds: Bounds) -> dict[str, Any]:
    """What the template draws of one parameter; its name is the same in every language."""
    default = None if math.isinf(bounds.default) else written(bounds.default)
    limits = ("0", "1") if bounds.flag else (written(bounds.low), written(bounds.high))
    return form.row(field(name), label=name, default=default, limits=limits, endless=bounds.endless)
