"""What an export would hold is told before: how many events, of which time, and what of them can still be read."""

from datetime import UTC, datetime, timedelta

import pytest

from audit.export.foresee import foresee
from audit.selectors import EventFilter, selected
from kvconsole.infra.access import system, tenant_context
from tenants.services import person_shred, user_create
from tests.tenants.making import a_tenant, principal, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
MADE = EventFilter(action="user.created")


def made():
    with tenant_context(system("test")):
        return user_create(username=some("u"), password="a long enough password 1", roles=("viewer",))


@pytest.fixture
def people(sealed):
    """Two people were made and their events are in the log; that of a third one waits."""
    users = [made(), made()]
    size = sealed()
    made()
    return users, size


def told(asked, size, whole=True):
    with tenant_context(system("test")):
        return foresee(asked, size=size, whole=whole)


def test_without_a_filter_it_is_every_leaf_and_with_one_what_is_under_the_head(people):
    _, size = people
    assert told(EventFilter(), size).count == size
    found = told(MADE, size)
    assert (found.count, found.exact, found.more) == (2, True, False)
    first, second = selected(MADE).order_by("time_us")[:2]
    assert [found.since.microsecond, found.until.microsecond] == [e.time_us % 1_000_000 for e in (first, second)]


def test_time_narrows(people):
    _, size = people
    assert told(EventFilter(since=datetime.now(UTC) + timedelta(hours=1)), size).count == 0
    assert told(EventFilter(action="user.created", until=datetime(2020, 1, 1, tzinfo=UTC)), size).since is None


def test_a_tenant_is_told_of_its_own_events(people):
    _, size = people
    tenant = a_tenant(slug=some("t"))
    with tenant_context(principal(tenant, "tenant-admin")):
        assert foresee(MADE, size=size, whole=False).count == 0


def test_what_was_erased_is_not_said_to_be_readable(people):
    users, size = people
    before = told(MADE, size)
    assert (before.personal, before.readable) == (2, 2)
    actor = principal(None, "operator")
    with tenant_context(actor):
        person_shred(user_id=users[0].id, actor=actor, now=datetime.now(UTC))
    after = told(MADE, size)
    assert (after.personal, after.readable) == (2, 1)
