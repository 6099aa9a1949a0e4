"""Decides the statements about operations, plans and certificates. None claims more than what was answered and seen.

Called by the contexts of the pages; what a class may be called is said by `kvcore.erasure_words` alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from frontend import formats
from frontend.audit.sentences import lang as lang
from frontend.operations.wording import PARTS
from kvcore import erasure_words
from kvcore.erasure_words import Lang


def every_state() -> str:
    """The first choice of a filter."""
    return _("every state")


def every_kind() -> str:
    """The first choice of a filter."""
    return _("every kind")


def open_ones() -> str:
    """The choice of what has not ended."""
    return _("open")


def selected(selector: Mapping[str, Any], depth: int = 0) -> list[tuple[Any, str]]:
    """What a selector names, as (field, value); parts of `and` follow."""
    found: list[tuple[Any, str]] = []
    for name, value in selector.items():
        if name == "and":
            found += [pair for part in value if depth < 1 for pair in selected(part, depth + 1)]
        elif name == "prefix":
            n = len(value)
            found.append((PARTS[name][0], ngettext("%(n)s key", "%(n)s keys", n) % {"n": formats.number(n)}))
        elif name == "older_than" and value:
            found.append((PARTS[name][0], str(formats.stamp(formats.moment(value)))))
        elif name in PARTS and value:
            found.append((PARTS[name][0], str(value)))
    return found


def operations(count: Mapping[str, int], filtered: bool, some: bool) -> str:
    """The list in one sentence."""
    if not some and not filtered and not count["open"]:
        return _("Nothing was asked for yet.")
    n, waiting = count["open"], count["waiting"]
    first = (
        ngettext("%(n)s operation is open.", "%(n)s operations are open.", n) % {"n": formats.number(n)}
        if n
        else _("No operation is open.")
    )
    if not waiting:
        return first
    second = ngettext(
        "%(n)s of them waits for a second person.", "%(n)s of them wait for a second person.", waiting
    ) % {"n": formats.number(waiting)}  # fmt: skip
    return f"{first} {second}"


def plans(n: int) -> str:
    """One's own plans in one sentence."""
    if not n:
        return _("You have no plan that could be started.")
    return ngettext(
        "%(n)s plan can be started; nothing was fenced yet.", "%(n)s plans can be started; nothing was fenced yet.", n
    ) % {"n": n}


def plan(shown: Mapping[str, Any]) -> tuple[str, str]:
    """What a plan reaches, and what it does not."""
    n = shown["namespaces"]
    if not n:
        return _("Nothing is there that this selects."), _("Nothing can be started.")
    first = ngettext(
        "%(blocks)s blocks of %(n)s namespace would go.", "%(blocks)s blocks of %(n)s namespaces would go.", n
    ) % {"n": formats.number(n), "blocks": formats.number(shown["blocks"])}
    if shown.get("options", {}).get("collateral") == "none" and "prefix" in str(shown.get("selector")):
        return first, _("These are the keys named and all that continue them; nothing was removed yet.")
    return first, _("Nothing was fenced and nothing was removed yet.")


def running(state: str, shown: Mapping[str, Any], silent: int) -> tuple[str, str]:
    """Where an operation stands: what is so, and what is not so yet."""
    percent = {"percent": shown["progress"]["percent"]}
    if state in ("erasing", "verifying") and percent["percent"] is None:
        return _("It is fenced; no place is known that could be asked."), ""
    told = {
        "awaiting_approval": (_("It waits for a second person."), _("Nothing is fenced yet.")),
        "planned": (_("It was asked for."), _("Nothing is fenced yet.")),
        "fenced": (_("It is fenced."), _("Nothing was sent to nodes yet.")),
        "erasing": (_("It is fenced, and nodes are at work: %(percent)s %%.") % percent, ""),
        "verifying": (_("It is fenced, and nodes look again: %(percent)s %%.") % percent, ""),
        "held": (_("It is fenced, and a legal hold keeps its bytes."), _("They stay until the hold is released.")),
        "stopped": (_("It was stopped."), _("What was fenced stays fenced; there is no certificate.")),
        "denied": (_("A second person refused it."), _("Nothing was fenced.")),
        "expired": (_("Nobody decided in time, or its plan no longer held."), _("Nothing was fenced.")),
        "failed": (_("It failed."), _("There is no certificate.")),
        "completed": (_("It is completed."), _("The certificate says how far.")),
        "completed_with_exceptions": (_("It is completed with exceptions."), _("The certificate says which.")),
    }
    first, second = told.get(state, ("", ""))
    if silent and state in ("erasing", "verifying"):
        waits = ngettext("%(n)s node does not answer.", "%(n)s nodes do not answer.", silent) % {"n": silent}
        second = f"{waits} {_('It stays open until they do, and never ends as complete without them.')}"
    return first, second


def moved(state: str, shown: Mapping[str, Any]) -> tuple[str, str]:
    """The same of what moves blocks and removes nothing that is not elsewhere."""
    percent = {"percent": shown["progress"]["percent"]}
    told = {
        "awaiting_approval": (_("It waits for a second person."), _("Nothing was moved yet.")),
        "completed": (_("It is completed."), ""),
        "completed_with_exceptions": (_("It is completed with exceptions."), ""),
        "stopped": (_("It was stopped."), _("What was moved stays where it is now.")),
        "failed": (_("It failed."), ""),
        "denied": (_("A second person refused it."), _("Nothing was moved.")),
        "expired": (_("Nobody decided in time, or its plan no longer held."), _("Nothing was moved.")),
    }
    return told.get(state, (_("Nodes are at work: %(percent)s %%.") % percent, ""))


def certificate(cls: int, exceptions: int, language: Lang) -> str:
    """What a certificate comes to, in the language asked for: class, name, and whether there are exceptions."""
    name = erasure_words.name(cls, language)
    if language == "zh":
        return f"{'已完成，附例外' if exceptions else '已完成'}：E{cls} 级，{name}"
    return f"{'Completed with exceptions' if exceptions else 'Completed'}: class E{cls}, {name}"


def exceptions(found: Sequence[Mapping[str, str]], language: Lang) -> list[tuple[str, str, int]]:
    """(code, its sentence, nodes) of the exceptions, each code once."""
    codes: dict[str, set[str]] = {}
    for one in found:
        codes.setdefault(one["code"], set()).add(one["node"])
    return [(code, erasure_words.flag_sentence(code, language), len(nodes)) for code, nodes in codes.items()]


def approvals(n: int, own: int, state: str, more: bool) -> str:
    """The list of approvals in one sentence."""
    if state != "open":
        return _("Nobody decides what they asked for themselves.")
    if not n:
        return _("Nothing waits for a second person.")
    shown = formats.number(n)
    first = _("%(n)s or more wait for a second person.") % {"n": shown} if more else ngettext(
        "%(n)s waits for a second person.", "%(n)s wait for a second person.", n
    ) % {"n": shown}  # fmt: skip
    if not own:
        return first
    yours = ngettext("You asked for %(n)s of them yourself.", "You asked for %(n)s of them yourself.", own) % {"n": own}
    return f"{first} {yours}"


def holds(force: int, some: bool) -> str:
    """The list of holds in one sentence."""
    if force:
        return ngettext(
            "%(n)s legal hold is in force: what it covers is fenced when it is deleted, and stays where it lies.",
            "%(n)s legal holds are in force: what they cover is fenced when it is deleted, and stays where it lies.",
            force,
        ) % {"n": force}
    return _("No legal hold is in force.") if some else _("There was no legal hold yet.")


def windows(open_: int, some: bool, own: str) -> str:
    """The list of deny windows in one sentence; `own`: a tenant's people see their own alone."""
    if open_:
        first = ngettext(
            "%(n)s deny window is open: what it holds back does not start now.",
            "%(n)s deny windows are open: what they hold back does not start now.",
            open_,
        ) % {"n": open_}
    else:
        first = _("No deny window is open now.") if some else _("There is no deny window: what may start, starts.")
    return f"{first} {_('Those of the whole fleet hold back too and are not listed here.')}" if own else first
