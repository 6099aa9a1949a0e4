"""What nodes did not take: counted once, told with its count, all of it."""

from datetime import UTC, datetime, timedelta

import pytest

from catalog.ingest.attempts import digest_of
from catalog.refused import attempts_tell
from kvconsole.infra.sql import PLATFORM
from tests.catalog.ingest.rig import Rig, Sim, plant_namespace, plant_node, plant_tenant
from tests.catalog.ingest.test_policies import EVENTS

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def place(planted):
    tenant = plant_tenant(planted)
    ns = plant_namespace(planted, "a", tenant=tenant)
    rig = Rig()
    yield rig, Sim(plant_node(planted, "n")), tenant, ns
    rig.close()


def beat(rig, sim, number, *entries, life="l"):
    return rig.send(sim.node, sim.beat(refused=list(entries), life=life, refused_seq=number))


def entry(ns, count, reason="data-class", tier="ssd"):
    return {"ns": ns.hex(), "tier": tier, "reason": reason, "count": count}


def test_ten_thousand_attempts_are_in_events_by_count_and_told_once(place):
    rig, sim, tenant, ns = place
    start = datetime.now(UTC)
    told = 0
    for i in range(100):
        beat(rig, sim, i + 1, entry(ns, 100))
        beat(rig, sim, i + 1, entry(ns, 100))  # its answer was lost: the same batch again
        told += attempts_tell(now=start + timedelta(seconds=i))
        if i == 50:
            rig.open()  # another writer remembers what was counted
    told += attempts_tell(now=start + timedelta(seconds=200))
    events = rig.rows(EVENTS)
    assert len(events) == told == 3  # at once, after a minute, and the rest
    assert sum(data["count"] for _, _, data in events) == 10_000
    assert {(number, whose) for number, whose, _ in events} == {(0x02F1, tenant)}
    beat(rig, sim, 1, entry(ns, 7), life="another life begins to number anew")
    assert attempts_tell(now=start + timedelta(seconds=300)) == 1


def test_what_is_malformed_or_nobodys_cannot_make_rows_without_end(place):
    rig, sim, _, _ = place
    bad = [
        {"ns": "zz", "tier": "ssd", "reason": "data-class", "count": 1},
        {"ns": 5, "tier": "ssd", "reason": "data-class", "count": 1},
        {"ns": "00" * 32, "tier": "tape", "reason": "data-class", "count": 1},
        {"ns": "00" * 32, "tier": "ssd", "reason": "data-class", "count": -5},
        {"ns": "00" * 32, "tier": "ssd", "reason": "data-class", "count": True},
        {"ns": "00" * 32, "tier": "ssd", "reason": "data-class", "count": 2**63},
        {"ns": "00" * 32, "tier": "ssd", "reason": "no-such", "count": 1},
    ]
    strangers = [entry(bytes([i]) * 32, 2) for i in range(1, 50)]
    beat(rig, sim, 1, *bad, *strangers)
    assert rig.rows("SELECT tenant_id, digest, count FROM catalog_attempt") == [(PLATFORM, b"", 98)]


def test_names_of_namespaces():
    assert digest_of("ab" * 32) == bytes([0xAB]) * 32
    assert digest_of(bytes(32)) == bytes(32)
    assert [digest_of(x) for x in (None, 1, "ab", "g" * 64, b"short")] == [None] * 5
