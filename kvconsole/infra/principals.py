"""Decides what is known of who acts: a value without tables, the same for a person, a token, a node or a process."""

from dataclasses import dataclass, field
from uuid import UUID

from django.conf import settings

TENANT_ROLES = frozenset({"tenant-admin", "tenant-member", "gateway"})
"""What a tenant's own people and tokens may be; every other role is the fleet's, and void within a tenant."""


@dataclass(frozen=True)
class Principal:
    """Who acts: a person, a token, a node, or a process of the console itself."""

    kind: str  # user | token | node | gateway | system
    id: str
    """UUID of the user, id of the token, UUID of the node, or the name of the process."""
    roles: frozenset[str] = frozenset()
    tenant_id: UUID | None = None
    """None = of the fleet, over all tenants."""
    tenant_slug: str = ""
    name: str = ""
    holder: str = ""
    """Id of the node or gateway that a token stands for."""
    user_id: str = ""
    scopes: frozenset[str] = field(default_factory=frozenset)
    proved_at: float = 0.0
    """When a person last gave a password or a second factor in this session, in seconds since 1970; 0 = never."""
    methods: frozenset[str] = field(default_factory=frozenset)
    """How, in this session: password, totp, webauthn, recovery_codes, oidc."""
    owes: str = ""
    """What the person has to do before anything else: the code of the refusal of every other call; "" = nothing."""

    def stepped_up(self, now: float) -> bool:
        """Whether the person has proved themselves lately enough for an act that cannot be taken back."""
        return 0.0 <= now - self.proved_at <= settings.STEP_UP_SECONDS

    def unproven(self, scope: str, now: float) -> str | None:
        """Why it may not do what cannot be taken back, as a code: a person needs a fresh proof, a token the scope."""
        if self.kind == "user":
            return None if self.stepped_up(now) else "step-up-required"
        return None if self.kind == "system" or scope in self.scopes else "scope-missing"

    @property
    def subject(self) -> str:
        """Whose keys name this actor in the audit log: the person behind it, else itself."""
        return f"user:{self.user_id}" if self.user_id else f"{self.kind}:{self.holder or self.id}"

    def may(self, *roles: str) -> bool:
        """Whether it has one of the roles.

        A tenant's principal never has one of the fleet's, whatever was given; who owes something first, has none.
        """
        if self.owes:
            return False
        held = self.roles if self.tenant_id is None else self.roles & TENANT_ROLES
        return not held.isdisjoint(roles)


def system(name: str) -> Principal:
    """The console's own process of this name, acting for nobody else."""
    return Principal(kind="system", id=name, name=name)
