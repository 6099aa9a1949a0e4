"""What the tenants app is told of epochs: bytes by epoch, nothing as 0, and tokens read from behind a fence."""

from datetime import UTC, datetime, timedelta

import pytest

from catalog.epochs import epoch_bytes_tell
from kvconsole.infra.sql import connect
from tenants import reading, services
from tenants.models import EpochBytes
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 9, 1, 12, 0, 30, tzinfo=UTC)


def held(connection, number, namespace, generation, blocks):
    digest = bytes(namespace.digest)
    connection.execute(
        "INSERT INTO catalog_keyspace (id, shard, tenant_id, namespace_id, digest, generation, cache_group,"
        " block_tokens, block_bytes, claimed) VALUES (%s, 0, %s, %s, %s, %s, 0, 16, 1024, true)",
        (number, namespace.tenant_id, namespace.id, digest, generation),
    )
    for owner, n in blocks.items():
        connection.execute(
            "INSERT INTO catalog_holding (keyspace, owner, tenant_id, blocks, lo, hi) VALUES (%s, %s, %s, %s, 0, 0)",
            (number, owner, namespace.tenant_id, n),
        )


def read(connection, keyspace, tokens):
    """As the writer counts it: in the minute of the fence too, and for good (`ingest.test_stale`)."""
    connection.execute(
        "INSERT INTO catalog_stalehit (keyspace, hit_tokens, requests, last_at) VALUES (%s, %s, 1, now())",
        (keyspace, tokens),
    )


def test_nothing_is_told_of_an_empty_fleet():
    a_namespace()
    assert epoch_bytes_tell(now=NOW) == 0
    assert not EpochBytes.objects.exists()


def test_bytes_by_epoch_and_reads_from_behind_a_fence():
    tenant, model = a_tenant(), a_model()
    old = a_namespace(tenant, model)
    services.epoch_create(model=model, weights_digest="new")
    new, other = a_namespace(tenant, model), a_namespace(a_tenant(), model)
    services.generation_bump(namespace=old, reason="test", actor=None, now=NOW - timedelta(minutes=10))
    with connect("ingest") as c:
        for owner, retired in ((1, False), (2, False), (3, True)):
            c.execute(
                "INSERT INTO catalog_owner (id, shard, source_id, tier, retired, born)"
                " VALUES (%s, 0, 1, 'hbm', %s, now())",
                (owner, retired),
            )
        held(c, 1, old, 1, {1: 10, 2: 5, 3: 1000})
        held(c, 2, new, 1, {1: 3})
        held(c, 3, other, 1, {2: 4})
    assert epoch_bytes_tell(now=NOW) == 2

    def told():
        return [(e.epoch, e.size_bytes, e.blocks, e.stale_hit_tokens) for e in reading.rollout(model, now=NOW).epochs]

    assert told() == [(1, 15 * 1024, 15, 0), (2, 7 * 1024, 7, 0)]
    with connect("ingest") as c:
        c.execute("DELETE FROM catalog_holding WHERE keyspace = 1")
        read(c, 1, 16)
    for later in (timedelta(seconds=10), timedelta(hours=13), timedelta(days=40)):
        epoch_bytes_tell(now=NOW + later)
        assert told() == [(1, 0, 0, 16), (2, 7 * 1024, 7, 0)]
