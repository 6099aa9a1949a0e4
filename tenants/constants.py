"""Names the tenants app and its callers share."""

from kvconsole.infra.sql import PLATFORM as PLATFORM_TENANT

__all__ = ["ERASURE_SCOPES", "GRANTABLE", "ISOLATIONS", "LANGUAGES", "PLATFORM_TENANT", "ROLES", "THEMES"]

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
