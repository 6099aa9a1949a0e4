"""Decides how amounts with units are typed, read and refused in the forms of routing, and where a value came from.

A field knows its unit, its bounds and what stands in it before anybody typed. Bytes are typed with a unit of their own,
decimal or binary; everything else is a plain number of the unit beside the field. What cannot be read is refused by
field; nothing is guessed. Called by `economics`, `policies` and `topology`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from frontend import formats
from frontend.tenancy.forms import Form

BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
BYTES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNITS = {unit.lower(): factor for unit, factor in BYTES.items()}
_BYTES = re.compile(r"([0-9][0-9_ ]*(?:\.[0-9]+)?)\s*([a-z]{1,3})?", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]{1,2})?", re.IGNORECASE)
LONGEST = 40


class Quantity(NamedTuple):
    """One field. `kind`: whole | number | share (typed in percent, read as a fraction) | bytes.

    `unit` is shown beside it; `example` stands in it where nothing of the own fleet is known.
    """

    name: str
    kind: str
    unit: str
    example: str
    low: float
    high: float


class Known(NamedTuple):
    """A value of the own fleet, as one types it. `origin`: measured | declared | calculated; `of`: of what."""

    text: str
    origin: str
    of: str


def read(form: Form, data: Mapping[str, Any], fields: Sequence[Quantity], known: Mapping[str, Known]) -> None:
    """What was typed is in the form; else what is known of the own fleet, else the example."""
    for one in fields:
        typed = data.get(one.name)
        own = known.get(one.name)
        form.given[one.name] = str(typed).strip() if typed is not None else own.text if own else one.example


def values(form: Form, fields: Sequence[Quantity]) -> dict[str, float] | None:
    """The numbers; None where a field cannot be read, and the form says which and why."""
    found = {one.name: value(form, one) for one in fields}
    return None if any(v is None for v in found.values()) else {n: v for n, v in found.items() if v is not None}


def value(form: Form, one: Quantity) -> float | None:
    """One number; None: the form says what is wrong with it."""
    text = form.given[one.name].replace(",", "").replace("，", "")
    if not text:
        form.wrong(one.name, "required")
        return None
    number = _bytes(text) if one.kind == "bytes" else _number(text)
    if number is None or (one.kind == "whole" and number != int(number)):
        form.wrong(one.name, "not-bytes" if one.kind == "bytes" else "not-a-number")
        return None
    if not one.low <= number <= one.high:
        form.wrong(one.name, "out-of-range")
        return None
    return number / 100 if one.kind == "share" else number


def _number(text: str) -> float | None:
    if len(text) > LONGEST or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _bytes(text: str) -> float | None:
    match = _BYTES.fullmatch(text) if len(text) <= LONGEST else None
    factor = _UNITS.get((match[2] or "b").lower()) if match else None
    if match is None or factor is None:
        return None
    return float(match[1].replace("_", "").replace(" ", "")) * factor


def written(number: float) -> str:
    """A number as one types it, without thousands and with no more digits than it has."""
    return f"{number:.0f}" if float(number).is_integer() and abs(number) < 1e15 else f"{number:.6g}"


def rows(form: Form, fields: Sequence[Quantity], known: Mapping[str, Known]) -> list[dict[str, Any]]:
    """What the template draws of each field; the origin is shown while the known value stands in it."""
    out = []
    for one in fields:
        own = known.get(one.name)
        mine = own if own and own.text == form.given[one.name] else None
        out.append(form.row(one.name, one=one, own=mine, bounds=(bound(one, one.low), bound(one, one.high))))
    return out


def bound(one: Quantity, limit: float) -> str:
    """A bound as people read it."""
    return str(formats.size(limit)) if one.kind == "bytes" else f"{limit:,.6g}"
