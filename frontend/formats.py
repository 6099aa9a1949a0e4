"""Decides how numbers, bytes, shares, ages and times read on a page, in the active language.

Templates use it through `templatetags/console.py`; `static/frontend/js/format.js` writes the same words for
numbers that tick in the browser. An unknown value is never a zero: it is a dash that says "unknown".
"""

import datetime as dt

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

DASH = "–"
IEC = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
SI = ("", "k", "M", "G", "T")
MINUTE, HOUR, DAY = 60, 3600, 86_400


def unknown() -> SafeString:
    """The picture of a value that nobody reported."""
    return format_html('<span class="unk">{}<span class="sr">{}</span></span>', DASH, _("unknown"))


def number(value: float | None, digits: int = 0) -> str | SafeString:
    """Thousands separated, with a fixed number of decimals."""
    return unknown() if value is None else f"{value:,.{digits}f}"


def short(value: float) -> tuple[str, str]:
    """Three significant digits and an SI prefix: `(number, prefix)`."""
    step = 0
    while abs(value) >= 999.5 and step < len(SI) - 1:
        value, step = value / 1000, step + 1
    return significant(value, whole=step == 0), SI[step]


def significant(value: float, *, whole: bool = False) -> str:
    """Three digits that matter: 0.61, 6.1, 61, 612; whole numbers stay whole."""
    if whole and float(value).is_integer():
        return f"{value:.0f}"
    size = abs(value)
    if size >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.95 else f"{value:.2f}"


def iec(value: float, like: float | None = None) -> tuple[str, str]:
    """`(number, unit)` with IEC units; `like` fixes the unit to that of another value, for `3 of 8 GiB`."""
    step, size = 0, abs(float(value if like is None else like))
    while size >= 1000 and step < len(IEC) - 1:
        size, step = size / 1024, step + 1
    scaled = value / 1024**step
    if step == 0 or scaled == int(scaled):
        return f"{scaled:,.0f}", IEC[step]
    digits = 0 if abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:,.{digits}f}", IEC[step]


def size(value: float | None) -> str | SafeString:
    """Bytes with their unit."""
    return unknown() if value is None else " ".join(iec(value))


def share(value: float | None, digits: int = 1) -> str | SafeString:
    """A fraction as percent."""
    return unknown() if value is None else f"{100 * value:.{digits}f} %"


def duration(seconds: float | None) -> str | SafeString:
    """An age or a lag, in the largest unit that says enough."""
    if seconds is None:
        return unknown()
    seconds = max(0.0, seconds)
    if seconds < MINUTE:
        shown = f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"
        return pgettext("duration", "%(n)s s") % {"n": shown}
    if seconds < HOUR:
        return pgettext("duration", "%(n)s min") % {"n": int(seconds // MINUTE)}
    if seconds < 2 * DAY:
        return pgettext("duration", "%(n)s h") % {"n": int(seconds // HOUR)}
    days = int(seconds // DAY)
    return ngettext("%(n)s day", "%(n)s days", days) % {"n": days}


def milliseconds(value: float | None) -> str | SafeString:
    """A duration measured in milliseconds."""
    if value is not None and 0 < value < 100:
        return pgettext("duration", "%(n)s ms") % {"n": f"{value:.0f}"}
    return duration(None if value is None else value / 1000)


def clock(moment: dt.datetime | None, *, seconds: bool = True) -> str | SafeString:
    """The time of day in UTC."""
    return unknown() if moment is None else moment.astimezone(dt.UTC).strftime("%H:%M:%S" if seconds else "%H:%M")


def stamp(moment: dt.datetime | None) -> str | SafeString:
    """Date and time in UTC, for what may be older than today."""
    return unknown() if moment is None else moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def moment(seconds: float | str | None) -> dt.datetime | None:
    """A time that came as seconds since 1970 or as RFC 3339."""
    if seconds is None or seconds == "":
        return None
    if isinstance(seconds, str):
        return dt.datetime.fromisoformat(seconds)
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def middle(text: str, keep: int = 13) -> str:
    """A long id, shortened in the middle; the whole one is copied."""
    return text if len(text) <= keep else f"{text[: keep - 5]}…{text[-4:]}"


def joined(words: list[str]) -> str:
    """A list of names as people write it."""
    if len(words) <= 1:
        return "".join(words)
    last = pgettext("list", "%(head)s and %(last)s")
    return last % {"head": pgettext("list", ", ").join(words[:-1]), "last": words[-1]}


def either(words: list[str]) -> str:
    """A list of names of which one is enough."""
    if len(words) <= 1:
        return "".join(words)
    last = pgettext("list", "%(head)s or %(last)s")
    return last % {"head": pgettext("list", ", ").join(words[:-1]), "last": words[-1]}


def day(moment: dt.datetime | None) -> str | SafeString:
    """The day in UTC, for what is far away."""
    return unknown() if moment is None else moment.astimezone(dt.UTC).strftime("%Y-%m-%d")
