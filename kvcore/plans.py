"""Decides what a plan is: what of which namespaces goes, where it was seen, what stands in the way, how risky it is.

A plan is frozen: its hash covers targets, positions and cells, and what starts is compared with it (`drifted`). Steps
are in `kvcore.plan_steps`, conditions and the state of an operation in `kvcore.plan_state`, risk in `kvcore.risk`.
Called by the console's planners; nothing here asks a clock or a table.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

PLAN_SECONDS = 900.0
"""How long a plan may be started."""
DRIFT_PART = 0.05
"""Above this difference in bytes a plan has to be made anew."""
SAMPLE = 100
ALL_GENERATIONS = str(2**63)
"""`gen_upto` that fences a namespace for ever: of a model epoch that is over."""
ERASURE_SCOPES = ("tenant", "class", "label", "subject", "session")
"""What a tenant may say must be separable; each contains the ones before it."""
Collateral = Literal["", "none", "namespace"]


class Selector(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"data_class": "class", "and_": "and"}
):
    """What goes. Fields narrow each other, and so do the selectors of `and`.

    `namespace`, `subject` and `session` are digests or ids, never what they were made of; `prefix` are block keys
    (hex); `older_than` is in seconds since 1970: placements born before.
    """

    tenant: str = ""
    namespace: str = ""
    epoch: str = ""
    subject: str = ""
    session: str = ""
    label: str = ""
    data_class: str = ""
    prefix: tuple[str, ...] = ()
    older_than: float | None = None
    and_: tuple["Selector", ...] = ()


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What one owner (node, source, dp_rank, tier) holds of a target, exact as of the position."""

    owner: int
    node: str
    source: str
    tier: str
    dp_rank: int | None = 0
    reachable: bool = True
    boot: str = ""
    stream: str = ""
    seq: int = -1
    blocks: int = 0
    bytes: int = 0


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Generations below `gen_upto` (decimal) of a namespace (hex digest), of it one group or these keys (hex).

    `tenant` is "" for what nobody claimed; `shared_with` are other tenants that read the namespace.
    """

    ns: str
    gen_upto: str
    tenant: str = ""
    namespace: str = ""  # id
    label: str = ""
    data_class: str = ""
    shared_with: tuple[str, ...] = ()
    share_group: str = ""
    group: int | None = None
    keys: tuple[str, ...] | None = None
    cells: tuple[Cell, ...] = ()


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in the way of a target: a pin, a lease, a transfer or a hold (`kind`), by id."""

    kind: Literal["pin", "lease", "transfer", "hold"]
    ref: str
    ns: str
    node: str = ""
    tier: str = ""
    blocks: int = 0
    until: float | None = None
    reason: str = ""


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a digest or id, and the tenant it belongs to ("" = of the fleet)."""

    ref: str
    tenant: str = ""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the requester chose. `share_groups`: those whose namespaces go too; without it they are left out.

    `crypto_erase`: keys are destroyed as the method, at once, and nodes that are off are reached by it.
    """

    collateral: Collateral = ""
    share_groups: tuple[str, ...] = ()
    override_pins: bool = False
    crypto_erase: bool = False
    drain: bool = False
    grace_seconds: float = 0.0
    rate_bytes_per_s: int | None = None


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan is made of. `totals`: tier → bytes that the tier holds in the whole fleet."""

    kind: str
    selector: Selector
    targets: tuple[Target, ...]
    requester: Requester
    options: Options = Options()
    pins: tuple[Blocker, ...] = ()
    leases: tuple[Blocker, ...] = ()
    transfers: tuple[Blocker, ...] = ()
    holds: tuple[Blocker, ...] = ()
    totals: Mapping[str, int] = {}
    restricted: frozenset[str] = frozenset({"restricted"})
    lost_hits: float | None = None
    sample: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen plan. `left_out` are targets of share groups that were not chosen; `cells` are sums by owner."""

    kind: str
    selector: Selector
    options: Options
    requester: Requester
    targets: tuple[Target, ...]
    left_out: tuple[Target, ...]
    cells: tuple[Cell, ...]
    blockers: tuple[Blocker, ...]
    unreachable: tuple[str, ...]
    tenants: tuple[str, ...]
    blocks: int
    bytes: int
    risk: str
    reasons: tuple[str, ...]
    lost_hits: float | None
    sample: tuple[str, ...]
    created_at: float
    expires_at: float
    plan_hash: str


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """What changed since a plan was frozen. `replan`: it may not be started; `reasons` say why."""

    added: tuple[Cell, ...]
    bytes_before: int
    bytes_now: int
    tenants_entered: tuple[str, ...]
    reasons: tuple[str, ...] = ()

    @property
    def replan(self) -> bool:
        """Whether the operation goes back to planned."""
        return bool(self.reasons)


def plan_freeze(asked: PlanInput, now: float) -> Plan:
    """The plan of what was found, to be started within 15 minutes."""
    raise NotImplementedError


def drifted(plan: Plan, asked: PlanInput) -> Drift:
    """What is different now. Added cells are fine: they go too, and are shown."""
    raise NotImplementedError


def confirm_phrase(plan: Plan) -> str:
    """What has to be typed from R2 on."""
    return f"delete {plan.blocks:,} objects"


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The plan as it is kept: JSON of it, from which `plan_from_json` makes the same."""
    return msgspec.to_builtins(plan)  # type: ignore[no-any-return]


def plan_from_json(kept: Mapping[str, Any]) -> Plan:
    """The plan that was kept."""
    return msgspec.convert(kept, Plan)


def confirmed(plan: Plan, phrase: str) -> bool:
    """Whether the phrase is the plan's, whatever its case and spaces."""
    return " ".join(phrase.casefold().split()) == confirm_phrase(plan)
