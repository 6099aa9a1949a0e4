"""Decides the sentence about the log: what it proves and what it does not. What is not known is never said to be fine.

Called by `pages`; the facts are of `audit.tree.log_state`.
"""

from datetime import datetime
from typing import Any, NamedTuple

from django.utils.safestring import SafeString
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from audit.export.foresee import Foreseen
from audit.tree import LogState
from frontend import formats
from frontend.audit.checking import Checked
from frontend.audit.wording import TRUST
from kvcore import erasure_words

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


def chain(state: LogState, now: datetime, *, differs: bool = False) -> Said:
    """What the log proves now: the worst that is known comes first. `differs`: a verification found something."""
    unsigned = not state.signed_size or state.signed_at is None
    upto = _("Nothing is signed yet.")
    if not unsigned:
        upto = _("Signed up to entry %(last)s.") % {"last": formats.number(state.signed_size - 1)}
    if state.signer == "refused":
        return Said("danger", "danger", _("The signer refuses this log."), f"{upto} {_not_after()}")
    if state.findings:
        open_ = ngettext("%(n)s finding is open.", "%(n)s findings are open.", state.findings) % {"n": state.findings}
        return Said("danger", "danger", open_, f"{upto} {_('Something is missing or differs: see below.')}")
    if differs:
        return Said("danger", "danger", _("A verification found something that differs."), upto)
    if unsigned or state.signed_at is None:
        return Said("unknown", "unknown", upto, _("Until then the log proves nothing."))
    age = (now - state.signed_at).total_seconds()
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


def held(found: Foreseen) -> str:
    """How many events an export would hold."""
    n = formats.number(found.count)
    if found.exact:
        return ngettext("%(n)s event", "%(n)s events", found.count) % {"n": n}
    return (_("%(n)s events or more") if found.more else _("About %(n)s events")) % {"n": n}


def held_personal(found: Foreseen) -> str:
    """What of them is personal, and whether anybody could still read it; only the newest were looked at."""
    looked = formats.number(found.looked)
    if not found.personal:
        whole = _("None.") if found.looked == found.count else _("None in the newest %(n)s events.")
        return whole % {"n": looked}
    said = _("%(personal)s of them have some; that of %(readable)s can still be read.")
    if found.looked < found.count:
        said = _("%(personal)s of the newest %(looked)s have some; that of %(readable)s can still be read.")
    return said % {"looked": looked, **{k: formats.number(getattr(found, k)) for k in ("personal", "readable")}}


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


def heads(found: Checked) -> list[tuple[str, Any]]:
    """The signed heads of a check, each with what it is called."""
    words = {"previous": _("What you kept") if found.grown else "", "log": _("This one")}
    return [(word, found.facts[at]) for at, word in words.items() if word and found.facts.get(at)]


def verdict(found: Checked) -> list[str]:
    """What the public check says, the verdict first, then what else is proven and with whose keys."""
    lines = [_verdict(found)]
    if found.verdict == "valid" and found.grown and found.kind != "head":
        lines.append(_("Its log begins with the %(n)s entries that you kept.") % {"n": _size(found, "previous")})
    if found.kind == "certificate" and (said := found.facts.get("certificate")):
        lines += _certificate(said)
    if told := _personal(found.facts.get("personal_data", {})):
        lines.append(told)
    return [*lines, str(TRUST[found.trust])]


def _certificate(said: dict[str, Any]) -> list[str]:
    """What a certificate comes to, in the words of its class; whether it bears a seal."""
    cls, language = int(str(said["class"])[1:]), lang()
    seal = _("It bears the seal.") if said["seal"] else _("It bears no seal.")
    odd = int(said["exceptions"])
    told = ngettext("It has %(n)s exception.", "It has %(n)s exceptions.", odd) % {"n": odd} if odd else ""
    name = _("Class E%(cls)s, %(name)s.") % {"cls": cls, "name": erasure_words.name(cls, language)}
    return [" ".join(part for part in (name, erasure_words.sentence(cls, language), told, seal) if part)]


def lang() -> erasure_words.Lang:
    """The language of the page, as classes are worded in."""
    return "zh" if (get_language() or "en").startswith("zh") else "en"


def _verdict(found: Checked) -> str:
    if found.verdict == "incomplete":
        return _("Nothing is wrong, but something is missing.")
    if found.verdict == "malformed":
        return _("This cannot be read as a proof, an export or a certificate.")
    if found.verdict == "invalid":
        return _("Not valid: this is not what was signed.")
    if found.kind == "certificate" and not found.facts["certificate"]["receipts"]:
        return _("Valid: it was issued so. No node signed anything of it: of copies on nodes it says nothing.")
    if found.kind == "certificate":
        return _("Valid: what this certificate says follows from what the nodes signed.")
    if found.kind == "proof":
        index = formats.number(found.facts["event"]["index"])
        return _("Valid: entry %(index)s is in the log.") % {"index": index}
    if found.kind == "bundle":
        n = formats.number(found.facts["records"])
        return _("Valid: all %(n)s events are in the log, unchanged.") % {"n": n}
    sizes = {"new": _size(found, "log"), "old": _size(found, "previous")}
    return _("Valid: the log of %(new)s entries begins with the %(old)s that you kept.") % sizes


def _size(found: Checked, head: str) -> Any:
    return formats.number(found.facts[head]["size"])


def _personal(found: dict[str, int]) -> str:
    """What became of personal data in what was brought; "" = there was none."""
    if not any(found.values()):
        return ""
    said = _("Personal data: %(disclosed)s opened and as it was sealed, %(sealed)s sealed, %(shredded)s shredded.")
    return said % {name: formats.number(found.get(name, 0)) for name in ("disclosed", "sealed", "shredded")}
