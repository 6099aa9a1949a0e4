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

    `own`: of the requester's own tenant. `shared`: namespaces of a share group go, which others read.
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


def risk(stakes: Stakes) -> tuple[Risk, tuple[str, ...]]:
    """The risk, and the codes of every reason for it."""
    raise NotImplementedError


def friction(of: Risk | str) -> Friction:
    """What a risk asks for; each asks for what the ones before it ask for."""
    raise NotImplementedError
