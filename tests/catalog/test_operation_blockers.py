"""What stands in the way of a plan, and what it costs; pins and leases are in `operations/test_finer.py`."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from catalog.operation_blockers import hits_a_day, leases_on, pins_on, transfers_on
from kvconsole.infra.sql import PLATFORM
from tenants.erasing import Erasable
from tests.catalog.ingest.rig import plant_namespace, superuser

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime.now(UTC)


@pytest.fixture
def cx(postgres, transactional_db):
    with superuser(postgres) as cx:
        yield cx


def erasable(cx, digest):
    ((id_, tenant),) = cx.execute("SELECT id, tenant_id FROM tenants_namespace WHERE digest = %s", (digest,)).fetchall()
    return Erasable(id_, tenant, "t", digest, 1, 1, "", "", None, "label")


def used(cx, keyspace, tokens, ago):
    cx.execute(
        "INSERT INTO catalog_usage (keyspace, source, tier, layer, t0, tenant_id, requests, prompt_tokens, hit_tokens,"
        " saved_ms, measured_requests) VALUES (%s, 1, '', 2, %s, %s, 1, 1, %s, 0, 0)",
        (keyspace, NOW - ago, PLATFORM, tokens),
    )


def test_nobody_in_the_way_is_nobody(cx):
    rows = [erasable(cx, plant_namespace(cx, "a"))]
    assert (pins_on(rows, NOW), leases_on(rows, NOW), transfers_on(rows)) == ([], [], [])
    assert pins_on([], NOW) == leases_on([], NOW) == transfers_on([]) == []


def test_lost_hits_are_those_of_the_last_day_and_unknown_where_nobody_told_of_any(cx):
    digest = plant_namespace(cx, "a")
    rows = [erasable(cx, digest)]
    cx.execute(
        "INSERT INTO catalog_keyspace (id, shard, tenant_id, digest, generation, cache_group, block_tokens,"
        " block_bytes, claimed) VALUES (7, 0, %s, %s, 1, 0, 16, 1, true)", (PLATFORM, digest),
    )  # fmt: skip
    assert hits_a_day(rows, NOW) is None
    used(cx, -1, 500, timedelta(hours=1))
    assert hits_a_day(rows, NOW) == 0.0
    used(cx, 7, 64, timedelta(hours=1))
    used(cx, 7, 32, timedelta(hours=2))
    used(cx, 7, 1000, timedelta(hours=30))
    assert hits_a_day(rows, NOW) == 96.0


def test_a_move_that_goes_on_is_in_the_way(cx):
    digest, operation = plant_namespace(cx, "a"), uuid.uuid4()
    rows = [erasable(cx, digest)]
    cx.execute(
        "INSERT INTO catalog_operation (id, tenant_id, kind, trigger, selector, options, plan_hash, risk, requested_by,"
        " requester, reason, generation, observed_generation, finalizers, paused, deadline, not_after, needs_approval,"
        " fence_seq, created_at, outcome, problem, due_at, about, windows_passed) VALUES (%s, %s, 'migration', 'user',"
        " '{}', '{}', '', 'R0', 'x', '{}', '', 1, 0, '{}', false, now(), now(), false, 0, now(), '', '', now(), '',"
        " false)",
        (operation, PLATFORM),
    )
    cx.execute(
        "INSERT INTO catalog_operationtarget (tenant_id, operation, digest, part, min_gen, fence_seq, keys_hash,"
        " key_count, below) VALUES (%s, %s, %s, 0, 2, 0, '', 0, false)", (PLATFORM, operation, digest),
    )  # fmt: skip
    (found,) = transfers_on(rows)
    assert (found.kind, found.ref, found.ns, found.reason) == ("transfer", str(operation), digest.hex(), "migration")
    cx.execute("UPDATE catalog_operation SET concluded_at = now()")
    assert transfers_on(rows) == []
