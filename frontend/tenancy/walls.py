"""Decides what the forms of data classes and of own nodes do, and what a rehearsal shows: rules, nodes, what leaves.

As `acts`: each function takes the form as it was typed and answers what would be, or was, done; None = the form says
why not. Called by `wall_views`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.http import Http404, QueryDict

from catalog.apart import NodeChoice, by_tier, foreign_bytes, leaving, misplaced, nodes_offered
from catalog.api_tenancy import ClassesIn, NodesIn
from catalog.classes import RuleView, class_rules_set, class_rules_view
from catalog.dedication import nodes_dedicate
from catalog.quotas import quotas_lock
from frontend import wording
from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from frontend.tenancy.wording import PROTECTIONS, RULE_KINDS
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem, etag
from kvcore.residency import ANYWHERE, BUILT_IN, Rule
from tenants.directory import TenantView
from tenants.placing import TenantPlace, tenant_place

NOWHERE = frozenset(("-", "–", "—"))
"""In place of regions: none at all."""
KINDS = [(code, word, "") for code, word in RULE_KINDS.items()]
LEVELS = [(code, word, "") for code, word in PROTECTIONS.items()]


class Line(NamedTuple):
    """A class in the form: names of its fields, and what holds where nothing is said."""

    name: str
    kind: str
    tiers: str
    regions: str
    protection: str
    held_tiers: list[str]
    built_in: Rule


class Change(NamedTuple):
    """A class whose rule changes."""

    name: str
    old: RuleView
    new: RuleView


class Rules(NamedTuple):
    """What a change of rules means: classes whose rule changes, and the bytes by tier that leave (None = not known)."""

    changes: list[Change]
    leaves: dict[str, int] | None


class Moved(NamedTuple):
    """A node that becomes the tenant's own, or everybody's again. `foreign`: bytes of others that leave."""

    name: str
    gained: bool
    foreign: int


class Nodes(NamedTuple):
    """What a change of own nodes means. `own`: the tenant's bytes elsewhere that leave (None = not known)."""

    moved: list[Moved]
    foreign: int
    own: int | None


def place_or_404(view: TenantView) -> TenantPlace:
    """What rules need of the tenant."""
    found = tenant_place(view.slug)
    if found is None:
        raise Http404
    return found


# --- data classes -----------------------------------------------------------------------------------------------------


def class_names(present: Mapping[str, RuleView], view: TenantView) -> list[str]:
    """The tenant's classes, those that have a rule, and last "": requests that name none."""
    return [*sorted({*view.classes, *present} - {""}), ""]


def rules_tag(present: Mapping[str, RuleView]) -> str:
    """What changes whenever a rule does."""
    return etag({"rules": msgspec.to_builtins(present)}).strip('"')


def rules_form(data: QueryDict, present: Mapping[str, RuleView], view: TenantView) -> Form:
    """What was typed, else the present rules."""
    names = class_names(present, view)
    if "seen" in data:
        single = [f"rule_{n}_{what}" for n in names for what in ("kind", "regions", "min_protection")]
        return forms.typed(data, *single, "seen", many=tuple(f"rule_{n}_tiers" for n in names))
    given: dict[str, Any] = {"seen": rules_tag(present)}
    for name in names:
        rule = present.get(name) or _view(BUILT_IN.get(name, ANYWHERE))
        given[f"rule_{name}_kind"] = "built-in" if rule.built_in else "own"
        given[f"rule_{name}_tiers"] = list(wording.TIERS) if rule.tiers is None else rule.tiers
        given[f"rule_{name}_regions"] = "" if rule.regions is None else ", ".join(rule.regions) or "–"
        given[f"rule_{name}_min_protection"] = rule.min_protection
    return Form(given)


def _view(rule: Rule) -> RuleView:
    tiers = None if rule.tiers is None else [t for t in wording.TIERS if t in rule.tiers]
    return RuleView(tiers, None if rule.regions is None else sorted(rule.regions), rule.min_protection, True)


def rule_lines(form: Form, names: Sequence[str]) -> list[Line]:
    """The form by class."""
    return [
        Line(
            name, f"rule_{name}_kind", f"rule_{name}_tiers", f"rule_{name}_regions", f"rule_{name}_min_protection",
            form.given.get(f"rule_{name}_tiers", []), BUILT_IN.get(name, ANYWHERE),
        )
        for name in names
    ]  # fmt: skip


def _typed_rules(form: Form, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The rules that were typed; classes that keep the built-in one are left out."""
    found = {}
    for name in names:
        if form.given[f"rule_{name}_kind"] != "own":
            continue
        tiers, text = form.given[f"rule_{name}_tiers"], form.given[f"rule_{name}_regions"]
        found[name] = {
            "tiers": None if set(tiers) == set(wording.TIERS) else tiers,
            "regions": None if not text else [] if text in NOWHERE else forms.words(text),
            "min_protection": form.given[f"rule_{name}_min_protection"] or "plain",
        }
    return found


def rules_set(
    form: Form, view: TenantView, actor: Principal | None, now: datetime, *, rehearse: bool = False
) -> Rules | None:
    """The rules, set or as they would be; what leaves is looked up only for a rehearsal."""
    place = place_or_404(view)
    names = class_names(class_rules_view(tenant=place), view)
    fields = forms.checked(ClassesIn, form, {"rules": _typed_rules(form, names)})

    def act() -> Rules:
        quotas_lock()
        before = class_rules_view(tenant=place)
        if form.given["seen"] != rules_tag(before):
            raise Problem("etag-mismatch")
        wrong = misplaced(tenant=view.id, now=now) if rehearse else None
        rules = {name: msgspec.convert(dict(rule), Rule) for name, rule in fields["rules"].items()}
        after = class_rules_set(tenant=place, rules=rules, actor=actor)
        leaves = leaving(wrong, misplaced(tenant=view.id, now=now)) if rehearse else None
        return Rules(_changes(names, before, after), by_tier(leaves))

    return forms.attempt(form, act, rehearse=rehearse)


def _changes(names: Sequence[str], before: Mapping[str, RuleView], after: Mapping[str, RuleView]) -> list[Change]:
    found = []
    for name in names:
        nothing = _view(BUILT_IN.get(name, ANYWHERE))
        old, new = before.get(name, nothing), after.get(name, nothing)
        if old != new:
            found.append(Change(name, old, new))
    return found


# --- own nodes --------------------------------------------------------------------------------------------------------


def nodes_tag(view: TenantView, offered: Sequence[NodeChoice]) -> str:
    """What changes whenever the tenant's own nodes do."""
    return etag({"isolation": view.isolation, "nodes": [n.name for n in offered if n.owner == view.slug]}).strip('"')


def nodes_form(data: QueryDict, view: TenantView, offered: Sequence[NodeChoice]) -> Form:
    """What was chosen, else the present own nodes."""
    if "seen" in data:
        return forms.typed(data, "seen", many=("nodes",))
    return Form({"nodes": [n.name for n in offered if n.owner == view.slug], "seen": nodes_tag(view, offered)})


def nodes_set(
    form: Form,
    view: TenantView,
    actor: Principal | None,
    now: datetime,
    *,
    evict: bool = False,
    rehearse: bool = False,
) -> Nodes | None:
    """The tenant's own nodes, set or as they would be. `evict`: blocks of others on them are meant to leave."""
    place = place_or_404(view)
    fields = forms.checked(NodesIn, form, {"nodes": form.given["nodes"], "evict": evict})

    def act() -> Nodes:
        quotas_lock()
        offered = nodes_offered()
        if form.given["seen"] != nodes_tag(view, offered):
            raise Problem("etag-mismatch")
        wrong = misplaced(tenant=view.id, now=now) if rehearse else None
        moved = _moved(offered, set(fields["nodes"]), view) if rehearse else []
        nodes_dedicate(tenant=place, names=fields["nodes"], evict=evict, actor=actor)
        leaves = leaving(wrong, misplaced(tenant=view.id, now=now)) if rehearse else None
        return Nodes(moved, sum(m.foreign for m in moved), None if leaves is None else sum(leaves.values()))

    return forms.attempt(form, act, rehearse=rehearse)


def _moved(offered: Sequence[NodeChoice], wanted: set[str], view: TenantView) -> list[Moved]:
    gained: dict[UUID, NodeChoice] = {n.id: n for n in offered if n.name in wanted and n.owner != view.slug}
    foreign = foreign_bytes(nodes=gained.keys(), tenant=view.id)
    lost = [Moved(n.name, False, 0) for n in offered if n.owner == view.slug and n.name not in wanted]
    return [*(Moved(n.name, True, foreign[n.id]) for n in gained.values()), *lost]
