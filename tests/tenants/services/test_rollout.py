"""Roll-outs: refusals, then that resolving follows the shares and that what is old is left alone."""

import itertools
import json
import math
from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from kvconsole.infra.rest import Problem
from tenants import services
from tenants.models import EpochBytes, Rollout
from tests.tenants.making import a_model, a_namespace, a_tenant, unrecorded

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 9, 1, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("shares", "code"),
    [
        ({}, "rollout-shares"),
        ({1: 99}, "rollout-shares"),
        ({1: 101}, "rollout-shares"),
        ({1: 200, 2: -100}, "rollout-shares"),
        ({1: 50, 3: 50}, "epoch-unknown"),
        ({1: 100, 0: 0}, "epoch-unknown"),
    ],
)
def test_shares_that_make_no_sense_change_nothing(shares, code):
    model = a_model(epochs=2)
    with pytest.raises(Problem) as caught:
        services.rollout_set(model=model, shares=shares)
    assert caught.value.code == code
    assert caught.value.errors[0]["pointer"] == "/shares"
    assert not Rollout.objects.exists()


def test_retired_epochs_get_nothing_and_horizons_have_bounds():
    model = a_model(epochs=2)
    with unrecorded():
        model.epochs.filter(epoch=1).update(state="retired")
    for fields, code in (
        ({"shares": {1: 10, 2: 90}}, "epoch-retired"),
        ({"shares": {2: 100}, "horizon_seconds": 59}, "out-of-range"),
        ({"shares": {2: 100}, "unless": lambda now: True}, "etag-mismatch"),
    ):
        with pytest.raises(Problem) as caught:
            services.rollout_set(model=model, **fields)
        assert caught.value.code == code


def test_new_requests_follow_the_shares_and_conversations_stay():
    tenant, model = a_tenant(), a_model(epochs=1)

    def epochs():
        resolve = services.namespace_resolve
        return [resolve(tenant=tenant, model=model, session=f"s{i}").model_epoch for i in range(200)]

    services.rollout_set(model=model, shares={1: 100})
    services.epoch_create(model=model, weights_digest="new")
    courses = []
    for share in (0, 10, 50, 100):
        services.rollout_set(model=model, shares={1: 100 - share, 2: share})
        courses.append(epochs())
        assert epochs() == courses[-1]
        part = share / 100
        assert abs(courses[-1].count(2) / 200 - part) <= 5 * math.sqrt(part * (1 - part) / 200)  # once in two million
    assert all(a <= b for one, two in itertools.pairwise(courses) for a, b in zip(one, two, strict=True))


def test_weights_that_are_rolled_back_are_a_new_epoch_and_another_namespace():
    tenant, model = a_tenant(), a_model(epochs=1)
    first = a_namespace(tenant, model)
    services.epoch_create(model=model, weights_digest="bad")
    back = services.epoch_create(model=model, weights_digest="w0")
    assert back.epoch == 3
    assert a_namespace(tenant, model).digest != first.digest


def test_each_change_is_an_event_with_what_was_before():
    model = a_model(epochs=2)
    services.rollout_set(model=model, shares={1: 90, 2: 10})
    rollout = services.rollout_set(model=model, shares={1: 50, 2: 50})
    assert (rollout.version, rollout.before) == (2, {"1": 90, "2": 10})
    bodies = [json.loads(bytes(e.body)) for e in Event.objects.only("id", "body").order_by("id")]
    changes = [b["data"] for b in bodies if b["action"] == "rollout.changed"]
    assert [(c["before"], c["shares"]) for c in changes] == [
        ({"2": 100}, {"1": 90, "2": 10}), ({"1": 90, "2": 10}, {"1": 50, "2": 50}),
    ]  # fmt: skip


def test_what_epochs_hold_is_kept_by_minute_and_for_thirty_days():
    model = a_model(epochs=1)

    def told(at, size, stale=0):
        row = services.EpochHeld(model.tenant_id, model.id, 1, size, 1, stale)
        services.epoch_bytes_put(rows=[row], now=at)

    told(NOW - timedelta(days=31), 7)
    told(NOW, 1), told(NOW + timedelta(seconds=5), 2, 9)
    (row,) = EpochBytes.objects.all()
    assert (row.size_bytes, row.stale_hit_tokens, row.t0.second) == (2, 9, 0)
    assert services.rollout_set(model=model, shares={1: 100}).held == {"1": 2}
