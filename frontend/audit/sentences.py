"""Decides the sentence about the log: what it proves and what it does not. What is not known is never said to be fine.

Called by `pages`; the facts are of `audit.tree.log_state`.
"""

from datetime import datetime
from typing import NamedTuple

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from audit.tree import LogState
from frontend import formats

OLD_SECONDS = 150.0
"""The signer repeats itself every 60 s; after two that did not come, the page says so."""
AGAIN_SECONDS = 86_400.0
"""The scrubber goes round and round; what it has not looked at for a day is not said to be whole."""
WAIT_SECONDS = 10.0
"""An event that waits longer says that the sequencer is not at work."""


class Said(NamedTuple):
    """A statement: its tone, what it begins with, and what follows."""

    tone: str
    icon: str
    lead: str
    rest: str


def chain(state: LogState, now: datetime) -> Said:
    """What the log proves now: the worst that is known comes first."""
    if not state.signed_size or state.signed_at is None:
        return Said("unknown", "unknown", _("Nothing is signed yet."), _("Until then the log proves nothing."))
    last = formats.number(state.signed_size - 1)
    upto = _("Signed up to entry %(last)s.") % {"last": last}
    age = (now - state.signed_at).total_seconds()
    if state.signer == "refused":
        return Said("danger", "danger", _("The signer refuses this log."), f"{upto} {_not_after()}")
    if state.findings:
        open_ = ngettext("%(n)s finding is open.", "%(n)s findings are open.", state.findings) % {"n": state.findings}
        return Said("danger", "danger", open_, f"{upto} {_('Something is missing or differs: see below.')}")
    if state.signer != "ok" or age > OLD_SECONDS:
        lead = _("The last signature is %(age)s old.") % {"age": formats.duration(age)}
        return Said("warn", "warn", lead, f"{upto} {_not_after()}")
    if state.oldest_pending_seconds > WAIT_SECONDS:
        lead = _("Events wait for %(age)s.") % {"age": formats.duration(state.oldest_pending_seconds)}
        return Said("warn", "warn", lead, f"{upto} {_not_after()}")
    if state.scrubbed_at is None:
        rest = _("Whether its rows are still what was signed was not looked at yet.")
        return Said("unknown", "unknown", upto, rest)
    rest = _("All rows were hashed again at %(time)s, up to entry %(last)s, and nothing differed.")
    seen = rest % {"time": formats.stamp(state.scrubbed_at), "last": formats.number((state.scrubbed_size or 1) - 1)}
    if (now - state.scrubbed_at).total_seconds() > AGAIN_SECONDS:
        return Said("warn", "warn", upto, f"{seen} {_('Nobody has looked since.')}")
    return Said("ok", "ok", upto, seen)


def _not_after() -> str:
    return _("What came after proves nothing.")


def residual() -> str:
    """What no log of this kind can show."""
    return _(
        "A change, removal or reordering of signed entries shows to whoever kept an earlier checkpoint or export. "
        "What was never recorded cannot be shown, and who holds the signing key could begin another log."
    )


def job(kind: str, state: str, result: dict[str, object] | None) -> SafeString | str:
    """What came of a job, in one sentence; "" = nothing yet."""
    if state != "done" or not result:
        return ""
    if kind == "export":
        records = formats.number(float(str(result.get("records", 0))))
        return _("%(n)s events, signed and with what checks them.") % {"n": records}
    if result.get("divergences"):
        first = formats.number(float(str(result["first_divergent"])))
        return _("Something differs: the first place is entry %(index)s.") % {"index": first}
    size = formats.number(float(str(result.get("size", 0))))
    return _("All %(n)s entries are as they were sealed.") % {"n": size}
