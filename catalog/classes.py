"""Changes where blocks of a tenant's data classes may be. Called by `api_tenancy` and pages."""

from collections.abc import Mapping
from typing import Any

import msgspec
from django.db import transaction

from audit.services import record
from audit.standing import need_log
from catalog.models import ClassRule
from catalog.placing import class_rules
from catalog.quotas import QUOTAS
from kvconsole.infra import nudge
from kvconsole.infra.access import Principal, plane
from kvconsole.infra.rest import Problem
from kvcore.blocks import TIERS
from kvcore.residency import ANYWHERE, BUILT_IN, PROTECTIONS, Rule
from tenants.placing import TenantPlace


class RuleView(msgspec.Struct, frozen=True):
    """The rule of a class. None = anywhere. `built_in`: the tenant has said nothing about this class."""

    tiers: list[str] | None
    regions: list[str] | None
    min_protection: str
    built_in: bool


def class_rules_view(*, tenant: TenantPlace) -> dict[str, RuleView]:
    """The rules of all classes of the tenant, "" for what names no class where the tenant has one for it."""
    own = class_rules([tenant.id]).get(tenant.id, {})
    return {name: _view(_of(own, name), name not in own) for name in sorted({*tenant.classes, *own})}


def class_rules_set(*, tenant: TenantPlace, rules: Mapping[str, Rule], actor: Principal | None) -> dict[str, RuleView]:
    """The tenant's rules are these; classes that are left out have the built-in ones.

    Nodes hear of it with the next renewal of their leases, which the writer asks for at once; what must not be where
    it is leaves then.

    Raises:
        Problem: validation-failed, or, where blocks may be in more places than before, audit-unavailable; nothing was
            changed.
    """
    for name, rule in rules.items():
        _check(tenant, name, rule)
    with transaction.atomic(using=plane()):
        before = class_rules([tenant.id]).get(tenant.id, {})
        if any(_of(rules, name).widens(_of(before, name)) for name in {*tenant.classes, *before, *rules}):
            need_log()
        ClassRule.objects.filter(tenant_id=tenant.id).delete()
        for name, rule in rules.items():
            ClassRule.objects.create(
                tenant_id=tenant.id,
                data_class=name,
                tiers=_view(rule, False).tiers,
                regions=_view(rule, False).regions,
                min_protection=rule.min_protection,
            )
        view = class_rules_view(tenant=tenant)
        body: dict[str, Any] = {"rules": msgspec.to_builtins(view)}
        record(
            event_type="classes.changed",
            outcome="success",
            actor=actor,
            tenant_id=tenant.id,
            object_kind="tenant",
            object_id=str(tenant.id),
            body=body,
        )
        nudge.on_commit(QUOTAS, using=plane())
    return view


def _of(rules: Mapping[str, Rule], name: str) -> Rule:
    return rules.get(name) or BUILT_IN.get(name) or ANYWHERE


def _check(tenant: TenantPlace, name: str, rule: Rule) -> None:
    wrong = None
    if name and name not in tenant.classes:
        wrong = ("", "Not a data class of the tenant.")
    elif rule.tiers is not None and not rule.tiers <= set(map(str, TIERS)):
        wrong = ("/tiers", f"Some of {', '.join(TIERS)}.")
    elif rule.min_protection not in PROTECTIONS:
        wrong = ("/min_protection", f"One of {', '.join(PROTECTIONS)}.")
    elif rule.regions is not None and tenant.residency and not rule.regions <= {tenant.residency}:
        wrong = ("/regions", f"The tenant's residency is {tenant.residency}.")
    if wrong:
        errors = [{"pointer": f"/rules/{name}{wrong[0]}", "code": "invalid", "detail": wrong[1]}]
        raise Problem("validation-failed", errors=errors)


def _view(rule: Rule, built_in: bool) -> RuleView:
    tiers = None if rule.tiers is None else [str(t) for t in TIERS if t in rule.tiers]
    return RuleView(tiers, None if rule.regions is None else sorted(rule.regions), rule.min_protection, built_in)
