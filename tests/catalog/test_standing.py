"""What many tenants hold and saved, at a glance."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog.standing import standings
from kvconsole.embedded import Postgres
from kvconsole.infra.sql import PLATFORM
from tests.conftest import TEST_DATABASE
from tests.frontend.plant import _insert

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_without_a_writer_nothing_is_known():
    one = uuid4()
    found = standings(tenants=[one], now=NOW)[one]
    assert (found.used, found.hit_tokens, found.prompt_tokens) == (None, None, None)
    assert set(found.limits.values()) == {None}


@pytest.fixture
def counted(postgres: Postgres, django_db_setup: None) -> Iterator[UUID]:
    """What the writer would have counted of one tenant; afterwards it is gone again."""
    one = uuid4()
    rows = (
        ("catalog_usagecover", {"tenant_id": PLATFORM, "shard": 0, "since": NOW - timedelta(days=1), "upto": NOW}),
        ("catalog_quota", {"tenant_id": one, "tier": "hbm", "limit_bytes": 9, "guaranteed_bytes": 0,
                           "effective_bytes": 0}),
        ("catalog_tenanttier", {"tenant_id": one, "tier": "hbm", "blocks": 1, "bytes": 5, "at": NOW}),
        ("catalog_usageday", {"tenant_id": one, "day": NOW.date(), "tier": "", "requests": 1, "prompt_tokens": 100,
                              "hit_tokens": 75, "hit_bytes": 1, "saved_us": 1, "measured_requests": 1,
                              "unsized_requests": 0}),
    )  # fmt: skip
    with psycopg.connect(postgres.superuser_dsn(TEST_DATABASE), autocommit=True) as cx:
        for table, row in rows:
            _insert(cx, table, **row)
        yield one
        for table, row in rows:
            cx.execute(f"DELETE FROM {table} WHERE tenant_id = %s", (row["tenant_id"],))


def test_use_limits_and_hits_of_today_in_four_queries(counted: UUID) -> None:
    one, other = counted, uuid4()
    with CaptureQueriesContext(connection) as spent:
        found = standings(tenants=[one, other], now=NOW)
    assert len(spent) == 4
    assert (found[one].used["hbm"], found[one].used["dram"], found[one].limits["hbm"]) == (5, 0, 9)
    assert (found[one].hit_tokens, found[one].prompt_tokens) == (75, 100)
    assert (found[other].used["hbm"], found[other].hit_tokens) == (0, 0)
    late = standings(tenants=[one], now=NOW + timedelta(minutes=5))[one]
    assert late.used is None, "what the writer said five minutes ago is not now"
