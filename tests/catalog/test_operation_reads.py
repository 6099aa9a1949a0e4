"""Rows of operations for pages: what is asked for, and of plans only one's own that can still be started."""

import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from catalog import operation_reads as reads
from catalog.models import Plan
from tests.conftest import TEST_DATABASE
from tests.frontend import plant_operations
from tests.frontend.conftest import planted as planted

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def made(planted, postgres):
    return plant_operations.operations(postgres.superuser_dsn(TEST_DATABASE))


def test_what_is_not_there_is_none(made):
    nothing = uuid.uuid4()
    for read, name in ((reads.operation_row, "erasing"), (reads.plan_row, "plan-old"), (reads.hold_row, "hold-denied")):
        assert read(made[name]).id == made[name]
        assert read(nothing) is None
    assert reads.pin_row(nothing) is None
    assert [pin.id for pin in reads.pin_rows()] == [made["pin"]]


def _alone(postgres, *statement):
    with psycopg.connect(postgres.superuser_dsn(TEST_DATABASE), autocommit=True) as cx:
        cx.execute(*statement)


def test_only_one_s_own_plans_that_can_be_started_and_were_not(made, postgres, request):
    mine, now = plant_operations.SOMEBODY, datetime.now(UTC)
    ready = [row.id for row in reads.plans_ready(mine, now=now, most=10)]
    assert ready == sorted((made[name] for name in ("plan", "plan-R2", "plan-R3", "plan-epoch")), reverse=True)
    assert reads.plans_ready("user:other", now=now, most=10) == []
    assert reads.plans_ready(mine, now=now + timedelta(hours=1), most=10) == []
    assert [row.id for row in reads.plans_ready(mine, now=now, most=1)] == ready[:1]
    assert reads.plans_of("user:other", ids=ready) == []
    assert {row.id for row in reads.plans_of(mine, ids=[*ready, uuid.uuid4()])} == set(ready)
    change = "UPDATE catalog_operation SET plan = %s WHERE id = %s"  # which none of the console's own sessions may
    request.addfinalizer(lambda: _alone(postgres, change, (None, made["erasing"])))
    _alone(postgres, change, (made["plan"], made["erasing"]))
    assert reads.started([made["plan"], made["plan-R2"]]) == {made["plan"]: made["erasing"]}
    assert made["plan"] not in {row.id for row in reads.plans_ready(mine, now=now, most=10)}
    assert Plan.objects.filter(id=made["plan"]).exists()


def test_steps_come_without_what_was_answered_the_last_first(made):
    found = reads.steps_newest(made["erasing"], 3)
    assert len(found) == 3
    assert {"receipt", "args"} <= found[0].get_deferred_fields()
    assert len(reads.steps_newest(made["erasing"], 1_000)) > 3


def test_a_hold_whose_end_was_asked_for_is_still_in_force(made):
    assert {one.state for one in reads.hold_rows(in_force=True)} == {"active", "releasing"}
    assert len(reads.hold_rows()) == 5
