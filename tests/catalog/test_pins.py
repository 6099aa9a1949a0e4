"""Pins: kept where it lies until a time, by whom may, told to nodes, and gone with its time."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from catalog.models import Pin
from catalog.move_bodies import PinOut
from catalog.pins import MOST_KEYS, pin_create, pin_remove, pin_view, pins_sweep, pins_told
from catalog.placing import node_policies
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from tests.catalog.operations.world import person
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)
KEY = "ab" * 32


@contextmanager
def refused(code):
    with pytest.raises(Problem) as caught:
        yield
    assert caught.value.code == code


def pinned(namespace, keys=None, actor=None, **more):
    until = NOW + timedelta(**(more or {"hours": 1}))
    return pin_create(namespace=str(namespace.id), keys=keys, until=until, reason="launch", actor=actor or person(),
                      now=NOW)  # fmt: skip


def test_what_is_pinned_is_told_to_nodes_until_its_time():
    namespace = a_namespace(a_tenant())
    digest = bytes(namespace.digest)
    whole, part = pinned(namespace), pinned(namespace, [KEY.upper()], minutes=5)
    assert set(pin_view(whole)) == set(PinOut().fields)
    assert (pin_view(whole)["whole"], pin_view(part)["blocks"]) == (True, 1)
    assert pins_told([digest], NOW) == {
        digest: [{"until": part.until.timestamp(), "keys": [KEY]}, {"until": whole.until.timestamp(), "keys": None}]
    }
    policy = node_policies(node="n", region="r", digests=[digest])[digest]
    assert len(policy.pins) == 2
    assert len(pins_told([digest], NOW + timedelta(minutes=6))[digest]) == 1
    assert pins_sweep(now=NOW + timedelta(minutes=6)) == 1
    pin_remove(pin_id=whole.id, actor=person(), now=NOW)
    assert not Pin.objects.exists()
    with refused("not-found"):
        pin_remove(pin_id=whole.id, actor=person(), now=NOW)


@pytest.mark.parametrize(
    ("keys", "more"),
    [([], {}), (["ab"], {}), (["zz" * 32], {}), ([KEY] * (MOST_KEYS + 1), {}), (None, {"seconds": -1}),
     (None, {"days": 91})],
)  # fmt: skip
def test_what_is_no_pin_is_refused(keys, more):
    with refused("validation-failed"):
        pinned(a_namespace(a_tenant()), keys, **more)


def test_nobody_pins_what_is_anothers():
    mine, other = a_tenant(), a_tenant()
    actor = Principal(kind="user", id="u", tenant_id=mine.id, tenant_slug=mine.slug)
    with refused("not-found"):
        pinned(a_namespace(other), actor=actor)
    assert pinned(a_namespace(mine), actor=actor).tenant_id == mine.id


def test_a_tenant_has_so_many_pins(monkeypatch):
    monkeypatch.setattr("catalog.pins.MOST_PINS", 1)
    namespace = a_namespace(a_tenant())
    pinned(namespace)
    with refused("pins-too-many"):
        pinned(namespace)
