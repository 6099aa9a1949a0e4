"""A certificate that somebody kept for an operation before it ended: the operation claims nothing on it."""

import uuid
from datetime import UTC, datetime

import pytest
from django.db import transaction

from audit.certifying import Drafted, certificate_issue
from kvconsole.infra.access import system
from tests.catalog.operations.world import asked

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_an_operation_does_not_end_on_a_certificate_that_is_not_its_conclusion_s(world):
    world.namespace()
    operation = asked(world)
    with transaction.atomic():
        certificate_issue(
            draft=Drafted(b"{}", uuid.uuid4().bytes * 2, "note"), operation=operation.id, erasure=2, flags=[],
            tenant_id=operation.tenant_id, seal=False, exceptions=0, receipts=0, supplements=None,
            actor=system("test"), now=datetime.now(UTC),
        )  # fmt: skip
    world.go_on(operation, rounds=2)
    assert (operation.outcome, operation.certificate, operation.problem) == ("", None, "certificate-foreign")
