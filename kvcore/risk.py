"""Decides how risky a plan is and how much friction that earns: R0 to R3. Called when a plan is frozen and shown."""

from enum import StrEnum

import msgspec


class Risk(StrEnum):
    """From a button to a second person."""

    R0 = "R0"
    R1 = "R1"
    R2 = "R2"
    R3 = "R3"


class Friction(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the requester before it starts."""

    modal: bool = False
    phrase: bool = False
    reason: bool = False
    mfa: bool = False
    second_person: bool = False
    deny_window: bool = False


class Stakes(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan puts at stake. `width`: the narrowest part of its selector. `part`: highest share of a tier.

    `own`: of the requester's own tenant. `shared`: namespaces of a share group go, which others read. `rule`: a rule
    asks for it, which a person set: how much of its tenant's own data goes, and of which class, was decided then.
    `lives_on`: blocks only leave places, and everybody may go on with the namespaces; of a rule that is no matter of
    other tenants either, as they agreed to the rules and to the owner's quota when they joined.
    """

    width: str
    own: bool
    bytes: int
    part: float
    tenants: int
    shared: bool
    restricted: bool
    crypto_erase: bool
    pins_overridden: bool
    rule: bool = False
    lives_on: bool = False


WIDTHS = ("session", "prefix", "subject", "label", "namespace", "older_than", "class", "epoch", "tenant", "")
"""Fields of a selector from narrow to wide; "" selects everything."""
_OWN, _ONE, _WHOLE = frozenset(WIDTHS[:2]), frozenset(WIDTHS[2:6]), frozenset(WIDTHS[6:])
GIB = 2**30


def risk(stakes: Stakes) -> tuple[Risk, tuple[str, ...]]:
    """The risk, and the codes of everything that holds and earns more than R0, the gravest first."""
    s = stakes
    told: tuple[tuple[Risk, str, bool], ...] = (
        (Risk.R2 if s.rule and s.lives_on else Risk.R3, "several-tenants", s.tenants > 1),
        (Risk.R2 if s.rule and s.lives_on else Risk.R3, "shared", s.shared),
        (Risk.R2 if s.rule else Risk.R3, "restricted", s.restricted),
        (Risk.R3, "crypto-erase", s.crypto_erase),
        (Risk.R2 if s.rule else Risk.R3, "tier-part-20", s.part > 0.2),
        (Risk.R3, "everything", s.width == ""),
        (Risk.R2, f"whole-{s.width or 'fleet'}", s.width in _WHOLE),
        (Risk.R2, "tier-part-1", 0.01 <= s.part <= 0.2),
        (Risk.R2, "pins-overridden", s.pins_overridden),
        (Risk.R1, f"one-{s.width}", s.width in _ONE),
        (Risk.R1, "not-own", s.width in _OWN and not s.own),
        (Risk.R1, "one-gib", s.width in _OWN and s.bytes >= GIB),
    )
    held = [(level, code) for level, code, holds in told if holds]
    held.sort(key=lambda one: one[0], reverse=True)  # stable: in the order above
    return (held[0][0], tuple(code for _, code in held)) if held else (Risk.R0, ())


def friction(of: Risk | str) -> Friction:
    """What a risk asks for; from R1 to R3 each asks for what the one before it asks for."""
    at = tuple(Risk).index(Risk(of))
    typed = at >= 2
    return Friction(
        modal=at >= 1, phrase=typed, reason=typed, mfa=typed, second_person=at >= 3, deny_window=at >= 1
    )  # fmt: skip
