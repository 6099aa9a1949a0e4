"""Who used which epoch when: told rarely, never of what was rolled back."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from tenants.models import EpochUse
from tenants.services import use
from tests.tenants.making import a_model, a_tenant

NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)


@pytest.mark.django_db(transaction=True)
def test_a_use_is_told_once_in_ten_minutes_and_again_on_another_day(monkeypatch):
    tenant, model = a_tenant(), a_model()
    clock = iter([0.0, 1.0, 599.0, 601.0, 602.0])
    monkeypatch.setattr(use, "monotonic", lambda: next(clock))

    def used(at):
        with transaction.atomic():
            return use.epoch_used(tenant_id=tenant.id, model_id=model.id, epoch=1, adapter_digest="", now=at)

    later = NOW + timedelta(minutes=10)
    assert [used(at) for at in (NOW, NOW, NOW, later, NOW + timedelta(days=1))] == [True, False, False, True, True]
    rows = EpochUse.objects.order_by("day").values_list("first_at", "last_at")
    assert list(rows) == [(NOW, later), (NOW + timedelta(days=1),) * 2]


@pytest.mark.django_db(transaction=True)
def test_what_was_rolled_back_is_told_again():
    tenant, model = a_tenant(), a_model()

    def used():
        return use.epoch_used(tenant_id=tenant.id, model_id=model.id, epoch=1, adapter_digest="d", now=NOW)

    with transaction.atomic():
        assert used()
        transaction.set_rollback(True)
    assert not EpochUse.objects.exists()
    with transaction.atomic():
        assert used()
    with transaction.atomic():
        assert not used()


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(use, "REMEMBERED", 3)
    monkeypatch.setattr(use, "_told", {})
    for i in range(10):
        use._remember((None, None, i, "", 0), float(i))
    assert sorted(u[2] for u in use._told) == [7, 8, 9]
