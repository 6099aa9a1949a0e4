"""Certificates: one for an operation, signed, kept with their event, and never changed."""

import uuid
from datetime import UTC, datetime

import pytest
from django.db import DatabaseError, transaction

from audit import signing
from audit.certifying import certificate_issue, certificate_of, certificate_of_operation, certificate_sign, is_issued
from audit.models import Certificate
from kvconsole.infra.access import system
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db(transaction=True)
WHO = system("test")


def issued(draft, tenant, operation):
    return certificate_issue(draft=draft, operation=operation, tenant_id=tenant.id, erasure=2, flags=["EMULATED"],
                             seal=False, exceptions=0, receipts=4, supplements=None, actor=WHO,
                             now=datetime.now(UTC))  # fmt: skip


def test_a_certificate_is_signed_kept_and_never_changed(sealed):
    tenant, operation = a_tenant(), uuid.uuid4()
    draft = certificate_sign(b'{"a":1}')
    assert signing.export_signed(draft.note, draft.body_hash)
    assert not signing.export_signed(draft.note, bytes(32))
    assert not signing.export_signed("no note", draft.body_hash)
    assert not is_issued(draft.body_hash)
    made = issued(draft, tenant, operation)
    assert is_issued(draft.body_hash)
    assert certificate_of(made) == certificate_of_operation(operation)
    assert certificate_of(made).body == b'{"a":1}'
    assert issued(draft, tenant, operation) is None  # whoever was first
    with pytest.raises(DatabaseError), transaction.atomic():
        Certificate.objects.filter(id=made).update(seal=True)
    with pytest.raises(DatabaseError), transaction.atomic():
        Certificate.objects.filter(id=made).delete()


def test_without_a_signer_there_is_none(settings):
    settings.SIGNER_URL, settings.SIGNER_TOKEN = "http://127.0.0.1:1", "x" * 40
    assert isinstance(certificate_sign(b"{}"), signing.NotAnswered)
    assert not signing.export_signed("x", bytes(32))
