"""Decides how the small parts of a page are drawn: status, tier, bars, sparks, ids, numbers.

Everything is drawn on the server as text and SVG whose lengths are attributes. Names of parts are those of the
component sheet (`/docs/ui`). Loaded by every template as `{% load console %}`.
"""

import json
from collections.abc import Sequence
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from catalog.selectors import TierView
from frontend import formats, shapes, wording
from frontend.audit import wording as audit
from frontend.operations import wording as operating
from frontend.routing import wording as routes
from frontend.tenancy import wording as tenancy

register = template.Library()

register.filter("number", formats.number)
register.filter("size", formats.size)
register.filter("share", formats.share)
register.filter("duration", formats.duration)
register.filter("ms", formats.milliseconds)
register.filter("clock", formats.clock)
register.filter("stamp", formats.stamp)
register.filter("day", formats.day)
register.filter("middle", formats.middle)
register.simple_tag(formats.unknown, name="unknown")


@register.filter
def tojson(value: Any) -> str:
    """For data attributes; the template escapes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@register.filter
def digits(value: float | None) -> str | SafeString:
    """Three digits that matter, or the picture of an unknown."""
    return formats.unknown() if value is None else formats.significant(value, whole=True)


KINDS = {
    "node": wording.NODE_STATES,
    "source": wording.SOURCE_STATES,
    "tier": wording.TIER_STATES,
    "severity": wording.SEVERITIES,
    "tenant": tenancy.TENANT_STATES,
    "namespace": tenancy.NAMESPACE_STATES,
    "epoch": tenancy.EPOCH_STATES,
    "person": tenancy.PERSON_STATES,
    "token": tenancy.TOKEN_STATES,
    "group": tenancy.GROUP_STATES,
    "quota": tenancy.QUOTA_STATES,
    "outcome": audit.OUTCOMES,
    "signer": audit.SIGNER,
    "job": audit.JOB_STATES,
    "hook": audit.HOOK_STATES,
    "delivery": audit.DELIVERY_STATES,
    "approval": audit.APPROVAL_STATES,
    "verdict": audit.VERDICTS,
    "operation": operating.STATES,
    "cell": operating.CELLS,
    "step": operating.STEP_STATES,
    "risk": operating.RISKS,
    "blocker": operating.BLOCKERS,
    "hold": operating.HOLDS,
    "answer": routes.ANSWERS,
    "replay": routes.REPLAY,
    "index": routes.MODES,
}
WORDS = {
    "role": wording.NODE_ROLES,
    "user_role": wording.USER_ROLES,
    "reason": wording.EVICTION_REASONS,
    "source_reason": wording.SOURCE_REASONS,
    "metric": wording.METRICS,
    "isolation": tenancy.ISOLATIONS,
    "isolation_means": tenancy.ISOLATION_MEANS,
    "erasure": tenancy.ERASURE_SCOPES,
    "erasure_means": tenancy.ERASURE_MEANS,
    "protection": tenancy.PROTECTIONS,
    "token_kind": tenancy.TOKEN_KINDS,
    "incomplete": {**wording.SOURCE_REASONS, **tenancy.INCOMPLETE},
    "reuse": tenancy.REUSE_FIELDS,
    "field": {name: words[0] for name, words in tenancy.FIELDS.items()},
    "job_kind": audit.JOB_KINDS,
    "export_format": audit.FORMATS,
    "hook_kind": audit.HOOK_KINDS,
    "finding": audit.FINDINGS,
    "log_end": audit.ENDS,
    "event_flag": audit.FLAGS,
    "power": audit.POWERS,
    "actor": audit.ACTORS,
    "filter": {name: words[0] for name, words in audit.FILTERS.items()},
    "operation_kind": operating.KINDS,
    "trigger": operating.TRIGGERS,
    "step_kind": operating.STEPS,
    "risk_reason": operating.REASONS,
    "blocked": operating.BLOCKED,
    "why": operating.WHY,
    "condition": operating.STATUSES,
    "approval_kind": operating.APPROVALS,
    "part": {name: words[0] for name, words in operating.PARTS.items()},
    "kpi": {name: words[0] for name, words in tenancy.KPIS.items()},
    "kpi_note": {name: words[1] for name, words in tenancy.KPIS.items()},
    "term": routes.TERMS,
    "gate": routes.GATES,
    "policy": routes.POLICIES,
    "range": routes.SOURCES,
    "origin": routes.ORIGINS,
    "result": routes.RESULTS,
    "kept": routes.KEPT,
    "level": routes.LEVELS,
    "route_filter": routes.FILTERS,
}


@register.simple_tag
def icon(name: str, small: bool = False) -> SafeString:
    """A line icon of the sprite; says nothing to screen readers."""
    return format_html(
        '<svg class="icon{}" aria-hidden="true"><use href="#i-{}"/></svg>', " s12" if small else "", name
    )


@register.simple_tag
def modules(*names: str) -> SafeString:
    """Scripts that others import are fetched with the page, not one after the other as imports are found."""
    paths = ((static(f"frontend/js/{name}.js"),) for name in names)
    return format_html_join("", '<link rel="modulepreload" href="{}">', paths)


@register.simple_tag
def status(kind: str, code: str | None, text: str = "") -> SafeString:
    """Icon and word of a state; `text` replaces the word."""
    tone = wording.state(KINDS[kind], code)
    return format_html('<span class="status" data-tone="{}">{}{}</span>', tone.tone, icon(tone.icon), text or tone.word)


@register.filter
def word(code: str, kind: str) -> Any:
    """The word of a code of that kind."""
    return wording.word(WORDS[kind], code)


@register.simple_tag
def tier(name: str, bare: bool = False) -> SafeString:
    """Letter and pattern of a tier; `bare` keeps its name for screen readers only."""
    shown = format_html('<span class="sr">{}</span>', name) if bare else name
    return format_html(
        '<span class="tier" data-tier="{}"><i aria-hidden="true">{}</i>{}</span>', name, wording.LETTERS[name], shown
    )


@register.simple_tag
def swatch(name: str) -> SafeString:
    """Colour and pattern of a tier, of a category (`c-1` …), or the veil, for legends."""
    known = name in wording.TIERS
    below = f"t-{name}" if known else "c-sunken" if name == "veil" else name
    above = f"p-{name}" if known else name if name == "veil" else ""
    over = format_html('<rect class="{}" width="100%" height="100%"/>', above) if above else ""
    return format_html(
        '<svg class="swatch" aria-hidden="true"><rect class="{}" width="100%" height="100%"/>{}</svg>', below, over
    )


@register.simple_tag
def spark(values: Sequence[float | None], whole: Sequence[bool] | None = None) -> SafeString:
    """A line of the recent past without axes; gaps stay gaps, and it is dashed where `whole` denies a value."""
    area, line, doubt = shapes.spark(values, whole)
    if not area:
        return SafeString('<span class="spark" aria-hidden="true"></span>')
    kinds = (("area", area), ("line", line), ("doubt", doubt))
    paths = format_html_join("", '<path class="{}" d="{}"/>', ((kind, path) for kind, path in kinds if path))
    return format_html(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">{}</svg>', paths
    )


def _part(value: float | None, whole: float | None) -> float:
    return 100 * min(1.0, max(0.0, value / whole)) if value is not None and whole else 0.0


def _marks(low: float | None, high: float | None, y2: int) -> SafeString:
    rows = [(f"mark {name}", 100 * at, y2) for name, at in (("low", low), ("high", high)) if at is not None]
    return format_html_join(
        "", '<line class="{}" x1="{}%" x2="{}%" y1="-3" y2="{}"/>', ((c, f"{x:.1f}", f"{x:.1f}", y) for c, x, y in rows)
    )


@register.simple_tag
def tier_bar(
    name: str, used: int | None, capacity: int | None, low: float | None, high: float | None,
    last_known: int = 0, thick: bool = False, label: str = "", veiled: bool = False,
) -> SafeString:  # fmt: skip
    """Used of capacity with both marks; what is only last known is veiled and begins where the known ends."""
    known = 0.0 if veiled else _part(used, capacity)
    rest = _part(used if veiled else last_known, capacity)
    fill = format_html_join(
        "",
        '<rect class="{}" data-fill="known" width="{}%" height="100%"/>',
        ((f"{kind}-{name}", f"{known:.1f}") for kind in ("t", "p")),
    )
    veil = format_html_join(
        "",
        '<rect class="{}" data-fill="veil" x="{}%" width="{}%" height="100%"/>',
        ((kind, f"{known:.1f}", f"{rest:.1f}") for kind in ("c-sunken", "veil")),
    )
    return format_html(
        '<svg class="bar{}" role="img" aria-label="{}"><rect class="track" width="100%" height="100%"/>{}{}{}</svg>',
        " thick" if thick else "",
        label,
        fill,
        veil,
        _marks(low, high, 21 if thick else 13),
    )


def column(view: TierView | None, name: str, x: int, veiled: bool) -> SafeString:
    """One column of a tile: track, fill or veil, marks."""
    part = 100 * min(1.0, view.share or 0.0) if view else 0.0
    lost = veiled or view is None or view.state == "unknown"
    y, height = f"{100 - part:.1f}", f"{part:.1f}"
    fills = format_html_join(
        "",
        '<rect class="{}" data-fill="{}" x="{}%" y="{}%" width="12%" height="{}%"{}/>',
        (
            (kind, part_of, x, y, height, SafeString("") if (part_of == "veil") == lost else SafeString(" hidden"))
            for kind, part_of in (
                (f"t-{name}", "known"),
                (f"p-{name}", "known"),
                ("c-sunken", "veil"),
                ("veil", "veil"),
            )
        ),
    )
    lines = format_html_join(
        "",
        '<line class="{}" x1="{}%" x2="{}%" y1="{}%" y2="{}%"/>',
        (
            (css, x - 1.5, x + 13.5, f"{100 - 100 * at:.0f}", f"{100 - 100 * at:.0f}")
            for css, at in (("mark low", view.low if view else None), ("mark", view.high if view else None))
            if at is not None
        ),
    )
    return format_html(
        '<g data-col="{}"><rect class="track" x="{}%" width="12%" height="100%"/>{}{}</g>', name, x, fills, lines
    )


@register.simple_tag
def ident(value: str, keep: int = 13) -> SafeString:
    """An id, shortened in the middle; a click copies all of it."""
    return format_html(
        '<button type="button" class="id" data-copy="{}" aria-label="{}">{}{}</button>',
        value,
        _("Copy %(id)s") % {"id": value},
        formats.middle(value, keep),
        icon("copy", small=True),
    )


@register.simple_tag
def num(name: str, value: str | None, unit: str = "", lower_bound: bool = False) -> SafeString:
    """A number of the strip; `name` is what the browser module writes to."""
    if value is None:
        return format_html('<span class="num" data-num="{}">{}</span>', name, formats.unknown())
    return format_html(
        '<span class="num" data-num="{}">{}<small>{}</small></span>', name, f"≥ {value}" if lower_bound else value, unit
    )
