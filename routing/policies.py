"""Changes routing policies: each change is a new version, audited; what it would change can be seen before.

The dry run scores recorded decisions again by the new policy. Called by `api_decisions` and pages.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from audit.services import record
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem
from kvcore.policies import KINDS, Kind, Policy, built_in, policy_of
from routing import models, selectors
from routing.selectors import Compared, PolicyView, policies_compared, recorded

POLICIES = "policies"
"""Topic of the wake-ups."""
DEFAULT = "default"
DRY_RUN_MOST = 500
"""Recorded decisions that a dry run scores again."""


def policy_find(name: str) -> PolicyView | None:
    """The version in force; a kind that nobody wrote a policy for has its built-in version 0, and so has `default`."""
    found = selectors.policy_versions(name)
    if found:
        return found[0]
    if name not in (*KINDS, DEFAULT):
        return None
    kind: Kind = next((k for k in KINDS if k == name), "predicted")
    document = built_in(kind).document()
    return PolicyView(name, 0, "", kind, {"kind": kind, "params": document["params"]}, None, "", True)


def policy_read(name: str, version: int, document: Mapping[str, Any]) -> Policy:
    """The policy that the document says.

    Raises:
        Problem: policy-invalid, with all that is wrong.
    """
    read = policy_of({**document, "name": name, "version": version})
    if isinstance(read, list):
        errors = [{"pointer": f"/{p.field.replace('.', '/')}", "code": p.code, "detail": p.words} for p in read]
        raise Problem("policy-invalid", errors=errors)
    return read


def policy_put(*, name: str, document: Mapping[str, Any], actor: Principal, now: datetime) -> PolicyView:
    """The policy's next version is in force, within a second in every router.

    Args:
        document: model, kind and params.

    Raises:
        Problem: policy-invalid, policy-model-taken, or etag-mismatch: somebody was quicker; nothing was changed.
    """
    with transaction.atomic(using=plane()):
        before = policy_find(name)
        version = before.version + 1 if before else 1
        read = policy_read(name, version, document)
        taken = [p.name for p in selectors.policies() if read.model and p.model == read.model and p.name != name]
        if taken:
            raise Problem("policy-model-taken", f"It is decided by {taken[0]}.")
        said = read.document()
        body = {"kind": read.kind, "params": said["params"]}
        row = _version(name=name, version=version, model=read.model or "", kind=read.kind, document=body, at=now,
                       by=actor.name or actor.id)  # fmt: skip
        record(
            event_type="policy.changed",
            outcome="success",
            actor=actor,
            tenant_id=None,
            object_kind="policy",
            object_id=name,
            body={"name": name, "version": version, "model": read.model or "", "kind": read.kind,
                  "params": said["params"], "before": before.document["params"] if before else {}},
        )  # fmt: skip
        nudge.on_commit(POLICIES, version, using=plane())
    return PolicyView(name, version, row.model, row.kind, body, now, row.by, True)


def _version(**fields: Any) -> models.Policy:
    try:
        return models.Policy.objects.create(**fields)
    except IntegrityError:
        raise Problem("etag-mismatch", "Somebody else has just made this version.") from None


def dry_run(*, name: str, document: Mapping[str, Any]) -> list[Compared]:
    """What the policy in force, then the new one, do with the same recorded requests; nothing is changed.

    Raises:
        Problem: policy-invalid.
    """
    before = policy_find(name)
    new = policy_read(name, before.version + 1 if before else 1, document)
    rules = [policy_read(name, before.version, {**before.document, "model": before.model or None})] if before else []
    return policies_compared([*rules, new], recorded(limit=DRY_RUN_MOST, model=new.model or ""))


def compared(names: list[str], *, model: str = "", limit: int = DRY_RUN_MOST) -> list[Compared]:
    """What these policies do with the same recorded requests; names that nobody has are left out."""
    found = [view for name in names if (view := policy_find(name))]
    rules = [policy_read(v.name, v.version, {**v.document, "model": v.model or None}) for v in found]
    return policies_compared(rules, recorded(limit=limit, model=model))
