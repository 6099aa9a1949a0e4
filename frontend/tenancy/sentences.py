"""Decides the statements at the head of the pages of tenancy: worst first, then what the cache is worth."""

from collections.abc import Sequence

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from catalog.usage import UsageView
from frontend import formats
from frontend.sentences import _between, fill
from frontend.tenancy.pictures import Step
from tenants.directory import TenantView


def together(parts: Sequence[SafeString]) -> SafeString:
    """Sentences one behind the other, as the language does it."""
    return format_html_join(_between(), "{}", ((part,) for part in parts))


def tenants(shown: Sequence[TenantView], full: dict[str, list[str]], search: str, whole: bool) -> SafeString:
    """The list: who is at a quota, else how many there are.

    Args:
        shown: the tenants of this page of the list.
        full: slug → tiers whose quota is used up.
        search: what was searched for.
        whole: there are no other pages.
    """
    if not shown:
        return fill(_("No tenant has “{search}” in its name."), search=search) if search else fill(
            _("<b>There is no tenant yet.</b> Whoever sends requests needs one.")
        )  # fmt: skip
    parts = []
    if full:
        names = format_html_join(_(", "), '<a href="{}">{}</a>', ((reverse("page-tenant", args=[s]), s) for s in full))
        text = ngettext(
            "<b>{names} has used up a quota:</b> {tiers}.", "<b>{names} have used up quotas:</b> {tiers}.", len(full)
        )
        parts.append(fill(text, names=names, tiers=formats.joined(sorted({t for of in full.values() for t in of}))))
    if search:
        text = ngettext(
            "{n} tenant has “{search}” in its name.", "{n} tenants have “{search}” in their names.", len(shown)
        )
        parts.append(fill(text, n=len(shown), search=search))
    elif whole:
        parts.append(fill(ngettext("<b>{n} tenant.</b>", "<b>{n} tenants.</b>", len(shown)), n=len(shown)))
        if not full:
            parts.append(fill(_("Nobody has used up a quota.")))
    else:
        parts.append(
            fill(
                _("<b>{n} tenants on this page</b>, from {first} to {last}."),
                n=len(shown),
                first=shown[0].slug,
                last=shown[-1].slug,
            )
        )
    return together(parts)


def tenant(view: TenantView, steps: Sequence[Step], use: UsageView, days: int) -> SafeString:
    """One tenant: closed, quotas used up or nearly, guarantees worth less; then what its cache answered."""
    parts: list[SafeString] = []
    if view.state != "active":
        parts.append(fill(_("<b>This tenant is closed.</b> Nothing of it is routed any more.")))
    full = [s.tier for s in steps if s.state == "full"]
    near = [s for s in steps if s.state == "high"]
    scaled = [s.tier for s in steps if s.scaled]
    if full:
        parts.append(
            fill(
                _("<b>The quota of {tiers} is used up:</b> its own least valued blocks leave first."),
                tiers=formats.joined(full),
            )
        )
    if near:
        parts.append(fill(_("<b>{tier} is at {share} of its quota.</b>"), tier=near[0].tier, share=near[0].share))
    if scaled:
        parts.append(
            fill(
                _("The guarantee of {tiers} is worth less than promised: more is promised than there is."),
                tiers=formats.joined(scaled),
            )
        )
    parts.append(worth(use, days))
    return together(parts)


def worth(use: UsageView, days: int) -> SafeString:
    """What the cache answered; what was never counted is not called zero."""
    if use.hits is None:
        return fill(_("What requests read in this time was not counted."))
    if not use.hits.prompt_tokens:
        return fill(ngettext("No request came in {n} day.", "No request came in {n} days.", days), n=days)
    bound = "" if use.complete else "≥ "
    return format_html(
        _("The cache answered <b>{share} of prompt tokens</b> in {n} days and saved {bound}{saved} of prefill."),
        share=formats.share(use.hits.tokens / use.hits.prompt_tokens),
        n=days,
        bound=bound,
        saved=formats.milliseconds(use.hits.saved_prefill_ms),
    )


def settings(people: int | None, waiting: int, *, more: bool = False) -> SafeString:
    """How many run the console (None = the caller is not shown), and whether something waits for a second person.

    Args:
        people: of the fleet.
        waiting: share groups.
        more: `people` are only some: how many there are in all was not counted.
    """
    parts = [fill(_("Your own tokens, and what tenants share."))]
    if people is not None:
        text = ngettext("<b>{n} person</b> runs this fleet.", "<b>{n} people</b> run this fleet.", people)
        text = _("<b>More than {n} people</b> run this fleet.") if more else text
        parts = [fill(text, n=people)]
    if waiting:
        text = ngettext(
            "<b>{n} share group waits</b> for a second person.",
            "<b>{n} share groups wait</b> for a second person.",
            waiting,
        )
        parts.insert(0, fill(text, n=waiting))
    return together(parts)
