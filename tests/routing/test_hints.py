"""What is announced keeps and fetches blocks through the catalog, as far as it came true before, and no further."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from catalog.models import Operation, Pin, Quota
from kvconsole.infra.access import tenant_context
from kvconsole.infra.rest import Problem
from routing import hints
from routing.models import Announcement, TrustDay
from tests.catalog.operations.conftest import sealed, world
from tests.catalog.operations.test_moving import _nobody, fleet
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant, principal, unrecorded

__all__ = ["_nobody", "fleet", "sealed", "world"]
pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
KEYS = ["ab" * 32, "cd" * 32]


@pytest.fixture
def tenant(settings, transactional_db):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    return a_tenant(erasure_scope="session")


def trusted(tenant, came=96, missed=0):
    TrustDay.objects.create(tenant_id=tenant.id, day=datetime.now(UTC).date(), came=came, missed=missed)


def tool(tenant, session="s1", *, event="tool_start", eta_ms=3000.0, confidence=1.0, who=None, **more):
    return hints.session_announce(
        tenant=tenant.slug, session=session, event=event, eta_ms=eta_ms, confidence=confidence, actor=who or person(),
        now=datetime.now(UTC), **more,
    )  # fmt: skip


def test_what_is_cached_of_the_session_is_kept_for_a_while(tenant):
    trusted(tenant)
    namespace = a_namespace(tenant, session="s1")
    a_namespace(tenant, session="s2")
    said = tool(tenant)
    assert (said.effect, said.reason, round(said.trust, 2)) == (hints.KEPT, "", 0.97)
    pin = Pin.objects.get()
    assert (pin.namespace, pin.keys, pin.reason) == (namespace.id, None, "announced")
    assert 30 < (pin.until - datetime.now(UTC)).total_seconds() < 36.5
    again = tool(tenant, eta_ms=60_000)
    assert Pin.objects.get().id != pin.id, "one pin a session, however often it is said"
    assert again.effect == hints.KEPT
    tool(tenant, event="tool_end", eta_ms=60_000)
    assert (Pin.objects.get().until - datetime.now(UTC)).total_seconds() < 31


def test_nothing_of_the_session_is_kept_by_its_name(tenant):
    tool(tenant, "a-name-that-says-much")
    row = Announcement.objects.values().get()
    assert "a-name-that-says-much" not in str(row)
    assert hints.announcements_of(tenant=tenant.id, session="a-name-that-says-much")
    assert not hints.announcements_of(tenant=tenant.id, session="s2")


@pytest.mark.parametrize(("came", "missed", "confidence", "effect"), [(96, 0, 1.0, "kept"), (0, 5000, 1.0, "nothing"),
                                                                      (96, 0, 0.0, "nothing")])  # fmt: skip
def test_who_is_not_believed_keeps_nothing(tenant, came, missed, confidence, effect):
    trusted(tenant, came, missed)
    a_namespace(tenant, session="s1")
    said = tool(tenant, confidence=confidence)
    assert said.effect == effect
    assert (said.reason == "trust-too-small") == (effect == "nothing")
    assert Pin.objects.count() == (effect == "kept")


def test_no_more_pins_than_trust_allows(tenant, monkeypatch):
    monkeypatch.setattr(hints.rule, "PINS_MOST", 8)
    trusted(tenant, came=1, missed=0)  # 2 of 5: 3 pins
    for n in range(5):
        a_namespace(tenant, session=f"s{n}")
    assert [tool(tenant, f"s{n}").reason for n in range(5)] == ["", "", "", "announced-too-much", "announced-too-much"]
    assert Pin.objects.count() == 3


def test_a_session_that_is_not_apart_is_kept_by_its_prefix_alone(tenant):
    plain, other = a_tenant(erasure_scope="label"), a_tenant()
    trusted(plain)
    namespace, foreign = a_namespace(plain, label="a"), a_namespace(other)
    assert (tool(plain).effect, tool(plain).reason) == ("nothing", "not-separable")
    said = tool(plain, namespace=bytes(namespace.digest).hex(), block_keys=KEYS)
    assert (said.effect, said.blocks) == ("kept", 2)
    assert Pin.objects.get().keys == KEYS
    with pytest.raises(Problem, match="no such object"):
        tool(plain, namespace=bytes(foreign.digest).hex(), block_keys=KEYS)


def test_a_session_that_was_never_cached_keeps_nothing(tenant):
    assert tool(tenant, "never").reason == "nothing-selected"


def test_a_tenants_own_gateway_announces_for_it_and_for_nobody_else(tenant):
    trusted(tenant)
    a_namespace(tenant, session="s1")
    who, other = principal(tenant, "gateway"), a_tenant()
    with tenant_context(who):
        assert tool(tenant, who=who).effect == "kept"
        assert hints.trust_view(tenant=tenant.id, now=datetime.now(UTC)).came == 96
        assert hints.trust_view(tenant=other.id, now=datetime.now(UTC)).came == 0
    assert Pin.objects.get().tenant_id == tenant.id
    with tenant_context(who), pytest.raises(Problem, match="no such object"):
        tool(other, who=who)


def test_too_much_within_a_minute_is_refused(tenant, monkeypatch):
    monkeypatch.setattr(hints, "A_MINUTE", 2)
    tool(tenant)
    tool(tenant)
    with pytest.raises(Problem) as refused:
        tool(tenant)
    assert refused.value.code == "hints-too-many"
    tool(a_tenant(erasure_scope="session"))


def test_trust_is_of_the_last_days_alone(tenant):
    now = datetime.now(UTC)
    for days, came in ((0, 1), (6, 2), (7, 40), (30, 80)):
        TrustDay.objects.create(tenant_id=tenant.id, day=(now - timedelta(days=days)).date(), came=came, missed=0)
    assert hints.trust_view(tenant=tenant.id, now=now).came == 3


# --- prefixes -------------------------------------------------------------------------


def prefix(namespace, *, node="b", seconds=60, priority=9, who=None, keys=KEYS[:1], **more):
    now = datetime.now(UTC)
    need = now + timedelta(seconds=seconds)
    said = {"tier": "hbm", "need_at": need, "expires_at": need + timedelta(minutes=1), "confidence": 1.0}
    return hints.prefix_announce(
        namespace=str(namespace.id), block_keys=keys, node=node, priority=priority, actor=who or person("operator"),
        now=now, **(said | more),
    )  # fmt: skip


def test_a_prefix_that_will_be_needed_is_copied_in_time(fleet):
    world, _, b, namespace = fleet
    trusted(world.tenant)
    said = prefix(namespace)
    assert (said.effect, said.reason) == (hints.FETCHED, "")
    world.go_on(Operation.objects.get(id=said.operation), rounds=3)
    assert next(o.args for o in b.orders if o.kind == "take")["only"] == ["ab" * 16]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [({"seconds": 1}, "no-slack"), ({"node": "nowhere"}, "no-route"), ({"tier": "ssd"}, "no-route"),
     ({"confidence": 0.0}, "trust-too-small")],
)  # fmt: skip
def test_what_cannot_be_copied_is_taken_and_nothing_is_done(fleet, asked, reason):
    world, _, _, namespace = fleet
    trusted(world.tenant)
    said = prefix(namespace, **asked)
    assert (said.effect, said.reason, said.operation) == ("nothing", reason, None)
    assert Announcement.objects.get().state == "open", "whether it comes true is measured all the same"
    assert not Operation.objects.exists()


def test_no_more_copies_a_minute_than_trust_allows(fleet, monkeypatch):
    monkeypatch.setattr(hints.rule, "PREFETCHES_MOST", 2)
    world, _, _, namespace = fleet
    trusted(world.tenant, came=3000)
    assert [prefix(namespace).reason for _ in range(3)] == ["", "rate-limit", "rate-limit"]
    assert Operation.objects.count() == 1


def test_no_copy_is_larger_than_its_part_of_the_allowance(fleet):
    world, _, _, namespace = fleet
    trusted(world.tenant)
    with unrecorded():
        for tier in ("hbm", "pinned", "dram", "ssd", "remote"):
            Quota.objects.create(tenant_id=world.tenant.id, tier=tier, limit_bytes=1, guaranteed_bytes=0,
                                 effective_bytes=0)  # fmt: skip
    assert prefix(namespace).reason == "allowance-used"


@pytest.mark.parametrize("asked", [{"seconds": -1}, {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)},
                                   {"expires_at": datetime.now(UTC) + timedelta(days=60)}])  # fmt: skip
def test_times_that_are_none_are_refused(fleet, asked):
    *_, namespace = fleet
    with pytest.raises(Problem) as refused:
        prefix(namespace, **asked)
    assert refused.value.code == "validation-failed"
    assert not Announcement.objects.exists()


def test_a_tenant_names_no_namespace_of_others(fleet):
    *_, namespace = fleet
    who = principal(a_tenant(), "gateway")
    with tenant_context(who), transaction.atomic(using="tenant"), pytest.raises(Problem) as refused:
        prefix(namespace, who=who)
    assert refused.value.code == "not-found"


@pytest.mark.parametrize("node", ["b", "nowhere"])
def test_what_a_tenants_own_gateway_wishes_is_fetched_a_moment_later(fleet, node):
    world, _, _, namespace = fleet
    trusted(world.tenant)
    who = principal(world.tenant, "gateway")
    with tenant_context(who):
        said = prefix(namespace, who=who, node=node)
    assert (said.effect, said.reason) == (hints.WISHED, ""), "the same, whether there is such a node"
    assert [hints.wishes_serve(now=datetime.now(UTC)) for _ in range(2)] == [1, 0]
    row = Announcement.objects.get()
    assert row.wish is None
    if node == "b":
        assert (row.effect, Operation.objects.get().id) == (hints.FETCHED, row.operation)
        assert Operation.objects.get().tenant_id == world.tenant.id
    else:
        assert (row.effect, row.reason) == (hints.NOTHING, "no-route")
        assert not Operation.objects.exists()
