"""What is kept out of the way of who only lists: operations by their ends, receipts that are not there."""

import uuid
from datetime import UTC, datetime

import pytest

from catalog.operation_views import operations, receipt_view
from tests.catalog.operations.world import person
from tests.catalog.test_operation_requests import planned, started
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db


def test_operations_are_found_by_their_ends(settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    tenant, who = a_tenant(erasure_scope="label"), person()
    a_namespace(tenant, label="a")
    made = started(planned(who, tenant=tenant.slug, label="a"), who)
    assert list(operations()) == list(operations(open_=True)) == [made]
    assert list(operations(outcome="completed")) == []
    assert receipt_view(uuid.uuid4()) is None
    assert made.created_at <= datetime.now(UTC)
