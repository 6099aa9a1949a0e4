"""Leases: one holder at a time, and who was overtaken changes nothing."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from catalog.services import command_order, node_create
from kvconsole.infra import leases

NOW = datetime(2026, 9, 1, tzinfo=UTC)
TABLE = "catalog_nodecommand"
pytestmark = pytest.mark.django_db


@pytest.fixture
def step(command_key_file):
    node, _ = node_create(name="n1", region="r")
    return command_order(node=node, kind="ping", args={}, actor=None, now=NOW).step


def take(step, holder, at=0.0):
    return leases.take(TABLE, step, holder=holder, seconds=10, now=NOW + timedelta(seconds=at), column="step")


def test_only_one_holder(step):
    assert take(step, "a") is not None
    assert take(step, "b") is None
    assert take(step, "b", 9.9) is None


def test_after_its_end_another_takes_it_with_a_higher_token(step):
    first, second = take(step, "a"), take(step, "b", 10.0)
    assert second.token == first.token + 1
    assert leases.renew(first, seconds=10, now=NOW + timedelta(seconds=11)) is None
    assert not leases.release(first)
    assert leases.release(second)
    assert take(step, "a", 11) is not None


def test_renewed_it_lasts_longer(step):
    lease = leases.renew(take(step, "a"), seconds=10, now=NOW + timedelta(seconds=8))
    assert lease.until == NOW + timedelta(seconds=18)
    assert take(step, "b", 12) is None


def test_the_same_holder_takes_again_with_a_new_token(step):
    first, again = take(step, "a"), take(step, "a", 1)
    assert again.token == first.token + 1
    assert not leases.release(first)


def test_there_is_no_lease_of_what_is_not_there(step):
    assert take("00000000-0000-7000-8000-000000000000", "a") is None


def test_a_lease_changes_nothing_else(step):
    take(step, "a")
    with connection.cursor() as cursor:
        cursor.execute("SELECT state, attempts FROM catalog_nodecommand WHERE step = %s", (step,))
        assert cursor.fetchone() == ("waiting", 0)
