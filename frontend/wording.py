"""Decides the words of states, tiers, roles, reasons and metrics, in the active language.

The catalog speaks in codes; nothing else in the console words them. A code that is not listed here is shown as
itself, in a monospaced face, so that a newer writer never breaks a page.
"""

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

Text = str | Promise


class Tone(NamedTuple):
    """How a state looks: status colour, icon, word."""

    tone: str
    icon: str
    word: Text


TIERS = ("hbm", "pinned", "dram", "ssd", "remote")
LETTERS = {"hbm": "H", "pinned": "P", "dram": "D", "ssd": "S", "remote": "R"}

NODE_STATES: dict[str, Tone] = {
    "joining": Tone("info", "work", pgettext_lazy("node state", "joining")),
    "ready": Tone("ok", "ok", pgettext_lazy("node state", "ready")),
    "degraded": Tone("warn", "warn", pgettext_lazy("node state", "degraded")),
    "silent": Tone("unknown", "unknown", pgettext_lazy("node state", "silent")),
    "cordoned": Tone("info", "lock", pgettext_lazy("node state", "cordoned")),
    "draining": Tone("info", "work", pgettext_lazy("node state", "draining")),
    "fenced": Tone("unknown", "fence", pgettext_lazy("node state", "fenced")),
    "lost": Tone("danger", "danger", pgettext_lazy("node state", "lost")),
}
SOURCE_STATES: dict[str, Tone] = {
    "exact": Tone("ok", "ok", pgettext_lazy("source state", "exact")),
    "recovering": Tone("warn", "work", pgettext_lazy("source state", "recovering")),
    "degraded": Tone("warn", "warn", pgettext_lazy("source state", "degraded")),
    "lost": Tone("unknown", "unknown", pgettext_lazy("source state", "lost")),
}
TIER_STATES: dict[str, Tone] = {
    "ok": Tone("ok", "check", pgettext_lazy("tier state", "below the mark")),
    "high": Tone("warn", "warn", pgettext_lazy("tier state", "above the high mark")),
    "full": Tone("danger", "danger", pgettext_lazy("tier state", "full")),
    "unknown": Tone("unknown", "unknown", pgettext_lazy("tier state", "unknown")),
}
SEVERITIES: dict[str, Tone] = {
    "critical": Tone("danger", "danger", pgettext_lazy("severity", "critical")),
    "warning": Tone("warn", "warn", pgettext_lazy("severity", "warning")),
    "info": Tone("info", "info", pgettext_lazy("severity", "note")),
}
NODE_ROLES: dict[str, Text] = {
    "prefill": pgettext_lazy("node role", "prefill"),
    "decode": pgettext_lazy("node role", "decode"),
    "mixed": pgettext_lazy("node role", "mixed"),
    "store": pgettext_lazy("node role", "store"),
}
GONE = _("person no longer known")
"""In the place of an actor whose key was destroyed."""
USER_ROLES: dict[str, Text] = {
    "viewer": pgettext_lazy("user role", "viewer"),
    "operator": pgettext_lazy("user role", "operator"),
    "destructive-operator": pgettext_lazy("user role", "destructive operator"),
    "approver": pgettext_lazy("user role", "approver"),
    "auditor": pgettext_lazy("user role", "auditor"),
    "tenant-admin": pgettext_lazy("user role", "tenant administrator"),
    "tenant-member": pgettext_lazy("user role", "tenant member"),
    "gateway": pgettext_lazy("user role", "gateway"),
}
EVICTION_REASONS: dict[str, Text] = {
    "watermark": pgettext_lazy("eviction reason", "watermark"),
    "value": pgettext_lazy("eviction reason", "low value"),
    "ttl": pgettext_lazy("eviction reason", "expired"),
    "quota": pgettext_lazy("eviction reason", "quota"),
    "epoch": pgettext_lazy("eviction reason", "old epoch"),
    "delete": pgettext_lazy("eviction reason", "deletion"),
    "engine": pgettext_lazy("eviction reason", "engine"),
    "donor_reclaim": pgettext_lazy("eviction reason", "lent memory taken back"),
    "hot_move": pgettext_lazy("eviction reason", "moved while hot"),
}
"""In the order in which charts stack them."""

SOURCE_REASONS: dict[str, Text] = {
    "gap": _("frames are missing; the agent sends them again"),
    "unverified": _("the process is new and what it kept on disk has not been listed yet"),
    "returned": _("the node was lost and is back; it lists what it holds"),
    "digest-differs": _("the node and the catalog do not agree on what is there; it lists what it holds"),
    "behind": _("the heartbeat is ahead of the frames"),
    "resync": _("an operator asked for a full list"),
    "clear": _("the engine cleared a scope it did not name"),
    "silent": _("nothing is heard of it"),
    "new": _("the source is new and has not listed what it holds"),
    "unlisted": _("events were lost and this engine cannot list what it holds"),
    "engine-ring": _("the engine's event ring was overrun"),
    "engine-map": _("engine blocks could not be keyed"),
    "engine-decode": _("engine events could not be decoded"),
    "engine-restart": _("the engine started again"),
    "engine-overflow": _("the agent had no room for the engine's events"),
}
METRICS: dict[str, Text] = {
    "hits": pgettext_lazy("metric", "Hits"),
    "misses": pgettext_lazy("metric", "Misses"),
    "resident": pgettext_lazy("metric", "Resident blocks"),
    "stores": pgettext_lazy("metric", "Stores"),
    "evictions": pgettext_lazy("metric", "Evictions"),
    "saved": pgettext_lazy("metric", "Prefill saved"),
}
RANGES: dict[str, tuple[int, Text]] = {
    "1h": (3_600, _("Last hour")),
    "12h": (43_200, _("Last 12 hours")),
    "7d": (604_800, _("Last 7 days")),
    "30d": (2_592_000, _("Last 30 days")),
    "90d": (7_776_000, _("Last 90 days")),
}
THEMES: dict[str, Text] = {"system": _("automatic"), "light": _("light"), "dark": _("dark")}


def state(kind: dict[str, Tone], code: str | None) -> Tone:
    """The look of a state; an unlisted one keeps its code."""
    return kind.get(code or "unknown") or Tone("unknown", "unknown", code or pgettext_lazy("tier state", "unknown"))


def word(kind: dict[str, Text], code: str) -> Text:
    """The word of a code; an unlisted one keeps its code."""
    return kind.get(code, code)


def script_words() -> dict[str, str]:
    """The phrases the browser modules need, by key; `{names}` are filled in there."""
    return {key: str(text) for key, text in SCRIPT.items()} | {f"theme_{k}": str(v) for k, v in THEMES.items()}


SCRIPT: dict[str, Text] = {
    "dash": "–",
    "unknown": pgettext_lazy("tier state", "unknown"),
    "theme": _("Theme: {name}"),
    "copied": _("Copied"),
    "not_copied": _("The browser did not allow copying"),
    "milliseconds": pgettext_lazy("duration", "{n} ms"),
    "seconds": pgettext_lazy("duration", "{n} s"),
    "minutes": pgettext_lazy("duration", "{n} min"),
    "hours": pgettext_lazy("duration", "{n} h"),
    "days": pgettext_lazy("duration", "{n} d"),
    "live_live": pgettext_lazy("live", "Live"),
    "live_wait": pgettext_lazy("live", "Connecting"),
    "live_away": pgettext_lazy("live", "Not live"),
    "live_paused": pgettext_lazy("live", "Paused"),
    "live_old": pgettext_lazy("live", "Stale"),
    "live_said_lost": _("Not live since {time} UTC, trying again."),
    "live_said_mute": _("Nothing has come from the console since {time} UTC: every figure is the last known one."),
    "live_said_writer": _("The writer has been silent since {time} UTC: every figure is the last known one."),
    "live_said_never": _("No writer has reported yet: what happens is unknown, not nothing."),
    "since": _("since {time} UTC"),
    "ago": _("{age} ago"),
    "live_paused_said": _("Live is paused"),
    "live_back": _("Live again"),
    "behind": _("{age} behind"),
    "paused_at": _("at {time} UTC"),
    "skipped": _("{n} frames were skipped because newer ones were there"),
    "lag": _("lag {age}"),
    "lag_unknown": _("lag unknown"),
    "seen": _("seen {age} ago"),
    "per_s": "/s",
    "per_s_s": "s/s",
    "other": _("Other ({n})"),
    "new_prompts": _("New prompts"),
    "filtered": _("The filter “{words}” hides all {n} rows."),
    "window_said": _("The map shows {window}"),
    "window_begun": _("The window begins here; b ends it, Esc drops it"),
    "rows_merged": _("rows merged: {families} families into {rows}"),
    "rows_columns": _("{rows} rows × {columns} columns of {step}"),
    "not_reported": _("not reported"),
    "reported_all": pgettext_lazy("reported", "all"),
    "reported_part": pgettext_lazy("reported", "in part"),
    "reported_none": pgettext_lazy("reported", "nothing"),
    "max": _("max {n}"),
    "unit_tokens/s": _("tokens/s"),
    "unit_blocks/s": _("blocks/s"),
    "unit_blocks": _("blocks"),
    "unit_ms/s": "ms/s",
    "left": _("{minutes} min {seconds} s"),
    "newer": _("{n} newer"),
    "no_plot": _("The chart could not be loaded; the table has the same numbers."),
}
