"""Decides whether what a session of a tenant wrote of an operation is carried out: nothing of it is taken for true.

Such a session may run any SQL (docs/threat_model.md). The rows say what is asked for; what that reaches, how much risk
it is, how far it is fenced and since when is read again as the fleet sees it. Called before anything is ordered, and
before a second person is asked.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from catalog.models import Operation, OperationTarget, Plan
from catalog.operation_planners import input_of
from catalog.operation_plans import namespaces_of
from catalog.windows import denied
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem, add_codes
from kvcore import plans
from kvcore.risk import friction
from tenants.erasing import Erasable, fences_of
from tenants.selectors import tenant_slugs

add_codes({"approval-needed": (409, "A second person has to agree to it")})
LEASES_WITHIN = timedelta(seconds=60)
"""How long blocks in use are waited for, at least."""
SLACK_KEYS, ONE_IN = 64, 20
"""How many keys more than are found now may have been there when it was asked for."""
SAME_TIME = timedelta(seconds=60)


def disbelief(operation: Operation, row: Plan | None, now: datetime) -> str:
    """Code of why it is not carried out, "" if it is what it seems to be; of what the fleet asked for always "".

    Its row is changed, where the session said wrong how far or when it was fenced, or when leases may be broken. On the
    fleet's plane.
    """
    at = operation.said_at
    if at is None:
        return ""
    if row is None or plans.plan_from_json(row.body).selector != _selector(operation):
        return "plan-mismatch"
    try:
        found = _looked_at(operation, now)
        reach = namespaces_of(found.selector)
    except Problem as problem:
        return problem.code
    if friction(found.risk).second_person and not (operation.needs_approval and operation.risk == found.risk):
        return "approval-needed"
    if operation.fenced_at is None:
        return ""
    targets = list(OperationTarget.objects.filter(operation=operation.id).defer("keys"))
    if code := _beyond(targets, found, reach):
        return code
    if not operation.windows_passed and denied(operation.tenant_id, found.risk, at):
        return "deny-window"
    operation.fence_seq = fences_of([(t.namespace, t.min_gen) for t in targets if t.namespace and not t.keys_hash])
    if abs(operation.fenced_at - at) > SAME_TIME:
        operation.created_at = operation.fenced_at = at
    operation.deadline = max(operation.deadline, at + LEASES_WITHIN)
    operation.save(update_fields=["fence_seq", "fenced_at", "created_at", "deadline"])
    return ""


def plan_looked_at(operation: Operation, row: Plan, now: datetime) -> plans.Plan:
    """The plan as a second person is told of it: of what a tenant's session wrote, with what is there now."""
    kept = plans.plan_from_json(row.body)
    if operation.said_at is None:
        return kept
    return msgspec.structs.replace(_looked_at(operation, now), plan_hash=bytes(operation.plan_hash).hex())


def _selector(operation: Operation) -> plans.Selector:
    return msgspec.convert(operation.selector, plans.Selector)


def _looked_at(operation: Operation, now: datetime) -> plans.Plan:
    """The plan that the fleet would make of it now, of the operation's own tenant whatever its row says.

    Raises:
        Problem: targets-foreign, or as `input_of`.
    """
    slug = tenant_slugs({operation.tenant_id}).get(operation.tenant_id, "")
    selector = _selector(operation)
    if not slug or any(part.tenant not in ("", slug) for part in (selector, *selector.and_)):
        raise Problem("targets-foreign")
    kind, _, id_ = operation.requested_by.partition(":")
    asked = input_of(
        kind=operation.kind,
        selector=msgspec.structs.replace(selector, tenant=slug),
        options=msgspec.convert(operation.options, plans.Options),
        actor=Principal(kind=kind, id=id_, tenant_id=operation.tenant_id, tenant_slug=slug),
        now=now,
    )
    return plans.plan_freeze(asked, now.timestamp())


def _beyond(targets: Sequence[OperationTarget], found: plans.Plan, reach: Sequence[Erasable]) -> str:
    """Why the rows of what it reaches are more than its selector means, "" if they are not."""
    spaces: dict[UUID | None, Erasable] = {space.id: space for space in reach}
    meant = {target.ns for target in found.targets} | {space.digest.hex() for space in reach if not space.members}
    for target in targets:
        space = spaces.get(target.namespace)
        if space is None or space.digest != bytes(target.digest) or space.digest.hex() not in meant:
            return "targets-foreign"
        if target.min_gen > (space.generation + 1 if target.keys_hash else space.min_gen):
            return "plan-mismatch"
    keyed = [target for target in targets if target.keys_hash]
    if keyed and (len(keyed) < len(targets) or found.options.collateral != "none"):
        return "plan-mismatch"
    if plans.closed(found.selector) != (not keyed) and found.options.collateral == "none":
        return "plan-mismatch"
    there = sum(target.key_count for target in found.targets)
    most = there + there // ONE_IN + SLACK_KEYS
    return "plan-drifted" if sum(target.key_count for target in keyed) > most else ""
