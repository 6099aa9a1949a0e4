"""Decides what every page knows besides its own subject: who is there, where one can go, language, theme, version."""

from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.http import HttpRequest
from django.urls import Resolver404, resolve, reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import get_language, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from catalog.selectors import node_names
from frontend import preference, wording
from kvconsole.infra.access import Principal, principal_of, rule_for


class Entry(NamedTuple):
    """One entry of the rail. `keys` are pressed after `g`; `within` are the routes that belong to it.

    `instead`: where those go who may not see `route`.
    """

    group: str
    route: str
    icon: str
    word: str | Promise
    keys: str
    within: frozenset[str]
    instead: tuple[str, ...] = ()


class Place(NamedTuple):
    """A page that the palette finds and the rail does not show. `within`: routes whose tab it is, if it is one.

    `of`: the entry of the rail among whose tabs it is.
    """

    route: str
    icon: str
    word: str | Promise
    within: tuple[str, ...] = ()
    of: str = "audit"


PLACES = (
    Place("page-audit", "audit", pgettext_lazy("page", "Log"), ("page-audit", "page-audit-event")),
    Place(
        "page-audit-jobs",
        "download",
        pgettext_lazy("page", "Exports and verifications"),
        ("page-audit-jobs", "page-audit-job", "page-audit-export-new", "page-audit-export-disclose"),
    ),
    Place("page-audit-export-new", "plus", pgettext_lazy("page", "New export")),
    Place("page-audit-access", "key", pgettext_lazy("page", "Access review"), ("page-audit-access",)),
    Place(
        "page-webhooks",
        "hook",
        pgettext_lazy("page", "Webhooks"),
        ("page-webhooks", "page-webhook", "page-webhook-new", "page-webhook-rotate", "page-webhook-remove"),
    ),
    Place(
        "page-audit-retention",
        "clock",
        pgettext_lazy("page", "Retention"),
        ("page-audit-retention", "page-audit-retention-new", "page-audit-retention-approve"),
    ),
    Place(
        "page-audit-findings", "fault", pgettext_lazy("page", "Findings"), ("page-audit-findings", "page-audit-finding")
    ),
    Place(
        "page-audit-logs",
        "epoch",
        pgettext_lazy("page", "Ended logs"),
        ("page-audit-logs", "page-audit-log-new", "page-audit-log-approve"),
    ),
    Place(
        "page-operations",
        "ops",
        pgettext_lazy("page", "Operations"),
        ("page-operations", "page-operation", "page-operation-stop", "page-receipt", "page-certificate"),
        "operations",
    ),
    Place(
        "page-plans",
        "clock",
        pgettext_lazy("page", "Plans"),
        ("page-plans", "page-plan", "page-plan-start", "page-plan-confirm", "page-plan-retire"),
        "operations",
    ),
    Place(
        "page-holds",
        "lock",
        pgettext_lazy("page", "Legal holds"),
        ("page-holds", "page-hold", "page-hold-new", "page-hold-release"),
        "operations",
    ),
    Place(
        "page-windows",
        "stop",
        pgettext_lazy("page", "Deny windows"),
        ("page-windows", "page-window-remove"),
        "operations",
    ),
    Place("page-pins", "pin", pgettext_lazy("page", "Pins"), ("page-pins",), "operations"),
    Place("page-migration-new", "flow", pgettext_lazy("page", "New migration"), ("page-migration-new",), "operations"),
    Place("page-prefetch-new", "flow", pgettext_lazy("page", "New prefetch"), ("page-prefetch-new",), "operations"),
    Place("page-deletion-new", "plus", pgettext_lazy("page", "New deletion"), ("page-deletion-new",), "operations"),
    Place("page-epoch-retire", "epoch", pgettext_lazy("page", "End an epoch"), ("page-epoch-retire",), "operations"),
    Place("page-routing", "routing", pgettext_lazy("page", "Decisions"), ("page-routing", "page-decision"), "routing"),
    Place(
        "page-routing-compare",
        "compare",
        pgettext_lazy("page", "Policies compared"),
        ("page-routing-compare",),
        "routing",
    ),
    Place("page-policies", "admin", pgettext_lazy("page", "Policies"), ("page-policies", "page-policy"), "routing"),
)
AUDIT = frozenset(route for place in PLACES if place.of == "audit" for route in place.within)
OPERATIONS = frozenset(route for place in PLACES if place.of == "operations" for route in place.within)
ROUTING = frozenset(route for place in PLACES if place.of == "routing" for route in place.within)
APPROVALS = frozenset({"page-approvals", "page-approval", "page-approval-approve", "page-approval-deny"})
RAIL = (
    Entry("observe", "page-overview", "overview", pgettext_lazy("page", "Overview"), "o", frozenset({"page-overview"})),
    Entry("observe", "page-map", "map", pgettext_lazy("page", "Map"), "m", frozenset({"page-map"})),
    Entry("observe", "page-prefixes", "prefix", pgettext_lazy("page", "Prefixes"), "p", frozenset({"page-prefixes"})),
    Entry(
        "observe",
        "page-nodes",
        "node",
        pgettext_lazy("page", "Nodes"),
        "a",
        frozenset({"page-nodes", "page-node", "page-node-drain"}),
    ),
    Entry("observe", "page-topology", "flow", pgettext_lazy("page", "Topology"), "l", frozenset({"page-topology"})),
    Entry("observe", "page-routing", "routing", pgettext_lazy("page", "Routing"), "r", ROUTING),
    Entry(
        "observe",
        "page-epochs",
        "epoch",
        pgettext_lazy("page", "Epochs"),
        "e",
        frozenset({"page-epochs", "page-rollout"}),
    ),
    Entry("observe", "page-portal", "tenant", pgettext_lazy("page", "My cache"), "h", frozenset({"page-portal"})),
    Entry("act", "page-operations", "ops", pgettext_lazy("page", "Operations"), "d", OPERATIONS),
    Entry("act", "page-approvals", "inbox", pgettext_lazy("page", "Approvals"), "i", APPROVALS),
    Entry(
        "govern",
        "page-tenants",
        "tenant",
        pgettext_lazy("page", "Tenants"),
        "n",
        frozenset({"page-tenants", "page-tenant", "page-tenant-new", "page-tenant-change", "page-tenant-quotas"}),
    ),
    Entry("govern", "page-economics", "money", pgettext_lazy("page", "Economics"), "y", frozenset({"page-economics"})),
    Entry("govern", "page-audit", "audit", pgettext_lazy("page", "Audit"), "u", AUDIT, ("page-audit-retention",)),
    Entry("system", "page-verify", "ok", pgettext_lazy("page", "Verify"), "v", frozenset({"page-verify"})),
    Entry(
        "system",
        "page-settings",
        "admin",
        pgettext_lazy("page", "Settings"),
        "s",
        frozenset({"page-settings", "page-person-new", "page-person", "page-share-new", "page-share-group"}),
    ),
    Entry("system", "page-ui", "docs", pgettext_lazy("page", "Components"), "c", frozenset({"page-ui"})),
    Entry(
        "system",
        "page-problems",
        "fault",
        pgettext_lazy("page", "Problems"),
        "f",
        frozenset({"page-problems", "page-problem"}),
    ),
)
"""Only pages that exist. A later page adds its line here and nothing else."""
GROUPS = {"observe": _("Observe"), "act": _("Act"), "govern": _("Govern"), "system": _("System")}
LANGUAGES = {"en": ("en", "EN", "zh-hans"), "zh-hans": ("zh-Hans", "中文", "en")}
"""Language → (tag of `<html lang>`, what the switch shows, the other language)."""


def home(principal: Principal | None) -> str:
    """Where somebody begins: a tenant's own people at their portal, all others at the overview."""
    if principal and principal.tenant_slug:
        return reverse("page-portal", args=[principal.tenant_slug])
    return reverse("page-overview")


def landing(principal: Principal, wanted: str) -> str:
    """Where somebody goes on after a log-in: the page that was asked for, if it is one for them, else their begin.

    What somebody still owes (a password of their own, a second factor) is asked of them there.
    """
    try:
        name = resolve(urlsplit(wanted).path).url_name
    except Resolver404:
        return home(principal)
    rule = rule_for(name, "GET")
    return wanted if rule and rule.allows(replace(principal, owes="")) else home(principal)


def where(entry: Entry, principal: Principal | None) -> str:
    """The address behind an entry; "" = it is not for this caller. The portal is one's own tenant's."""
    if entry.route == "page-portal":
        return home(principal) if principal and principal.tenant_slug and open_to(entry.route, principal) else ""
    return next((reverse(route) for route in (entry.route, *entry.instead) if open_to(route, principal)), "")


def open_to(route: str, principal: Principal | None) -> bool:
    """Whether the caller may see this page."""
    rule = rule_for(route, "GET")
    return rule is not None and rule.allows(principal)


def version() -> str:
    """The console's version; a checkout that is not installed says so."""
    try:
        return metadata.version("kv-console")
    except metadata.PackageNotFoundError:
        return "dev"


def initials(name: str) -> str:
    """Two letters for the round button of the account."""
    parts = name.replace(".", " ").replace("-", " ").split()
    return "".join(part[0] for part in parts[:2]).upper() if len(parts) > 1 else name[:2].upper()


def nodes_of(principal: Principal | None) -> list[str]:
    """The nodes that the palette finds, on whatever page; nobody's where the principal may not see nodes."""
    return list(node_names()) if open_to("page-node", principal) else []


def console(request: HttpRequest) -> dict[str, Any]:
    """The context processor of every template."""
    principal = principal_of(request)
    match = getattr(request, "resolver_match", None)
    here = match.url_name if match else ""
    language = get_language() or "en"
    tag, shown, other = LANGUAGES.get(language, LANGUAGES["en"])
    entries: list[dict[str, Any]] = [
        {"entry": e, "url": address, "current": here in e.within} for e in RAIL if (address := where(e, principal))
    ]
    places = [
        {"place": p, "url": reverse(p.route), "current": here in p.within}
        for p in PLACES
        if open_to(p.route, principal)
    ]
    return {
        "console": {
            "places": places,
            "groups": [(word, [e for e in entries if e["entry"].group == key]) for key, word in GROUPS.items()],
            "entries": entries,
            "home": home(principal),
            "principal": principal,
            "initials": initials(principal.name if principal else ""),
            "roles": sorted(principal.roles) if principal else [],
            "lang": tag,
            "language_word": shown,
            "other_language": other,
            "theme": preference.theme(request),
            "theme_word": wording.THEMES[preference.theme(request)],
            "keys": preference.keys(request),
            "version": version(),
            "words": wording.script_words(),
            "now": timezone.now(),
            "nodes": partial(nodes_of, principal),
        }
    }
