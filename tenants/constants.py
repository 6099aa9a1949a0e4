"""Names the tenants app and its callers share."""

from kvconsole.infra.sql import PLATFORM as PLATFORM_TENANT

__all__ = [
    "ERASURE_SCOPES",
    "GRANTABLE",
    "ISOLATIONS",
    "LANGUAGES",
    "PLATFORM_TENANT",
    "ROLES",
    "THEMES",
    "epoch_named",
]

ROLES = (
    "viewer",
    "operator",
    "destructive-operator",
    "approver",
    "tenant-admin",
    "tenant-member",
    "auditor",
    "gateway",
    "node",
)
GRANTABLE = {
    "operator": frozenset({"viewer", "operator", "auditor", "tenant-admin", "tenant-member", "gateway"}),
    "approver": frozenset({"destructive-operator", "approver"}),
    "tenant-admin": frozenset({"tenant-admin", "tenant-member", "gateway"}),
}
"""Role → the roles it gives and takes. Who orders a deletion is thereby named by somebody else than who invites people;
`node` is given by enrolment alone."""
ISOLATIONS = ("shared", "arena", "node")
ERASURE_SCOPES = ("tenant", "class", "label", "subject", "session")
"""What can be erased apart from the rest, from coarse to fine; each includes those before it."""
LANGUAGES = ("en", "zh-hans")
THEMES = ("system", "light", "dark")


def epoch_named(text: str) -> tuple[str, int | None]:
    """(model, number) of an epoch as it is written: `model/number`. None: no epoch is written so.

    One number is written in one way: in ASCII, without leading zeros, of nine digits at most. Nothing is cut.
    """
    model, _, number = text.rpartition("/")
    plain = number.isascii() and number.isdecimal() and len(number) < 10 and number == str(int(number))
    return model, int(number) if plain else None
