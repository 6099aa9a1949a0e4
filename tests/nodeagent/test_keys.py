import asyncio
import secrets
import time

import pytest

from kvcore.messages import Fence
from nodeagent.agent import client
from nodeagent.journal import JournalFull
from nodeagent.keys import KeyRing, LeaseKeeper
from nodeagent.tiers.base import LeaseOver
from tests.nodeagent.conftest import lease

NS = bytes(range(32))


def test_a_lease_that_is_over_is_over():
    now = [1000.0]
    ring = KeyRing(clock=lambda: now[0])
    made = lease(NS)
    ring.grant([type(made)(**{f: getattr(made, f) for f in made.__struct_fields__} | {"until": 1300.0})])
    assert ring.enc(NS, 1) == made.enc
    assert not ring.due()
    now[0] = 1151
    assert ring.due()
    now[0] = 1300
    with pytest.raises(LeaseOver):
        ring.lease(NS, 1)
    assert ring.live() == []
    ring.expire()
    assert ring._leases == {}
    ring.clear()


def test_a_fence_ends_leases_before_it_is_acknowledged():
    ring = KeyRing()
    ring.grant([lease(NS, 1), lease(NS, 2)])
    seen = []
    ring.on_fence = lambda: seen.append((ring.fence_seq, ring.fenced(NS, 1), ring.fenced(NS, 2)))
    ring.fence(7, [Fence(ns=NS, min_gen=2)])
    assert seen == [(0, True, False)]
    assert ring.fence_seq == 7
    assert ring.due()
    with pytest.raises(LeaseOver):
        ring.lease(NS, 1)
    assert ring.lease(NS, 2)
    ring.grant([lease(NS, 1)])  # a late lease of the fenced generation changes nothing
    with pytest.raises(LeaseOver):
        ring.lease(NS, 1)
    ring.fence(3, [Fence(ns=NS, min_gen=1)])  # older news: fences are never lifted
    assert (ring.fence_seq, ring.fenced(NS, 1)) == (7, True)
    assert len(seen) == 1


def keeping(far, ring, check):
    async def go():
        http = client("t", timeout_seconds=2)
        keeper = LeaseKeeper(ring, http, far.url + "/api/v1/key-leases")
        await check(keeper)
        await http.aclose()

    asyncio.run(go())


def test_leases_and_fences_come_from_the_console(far, ring):
    ns, other = far.namespace(), far.namespace()
    far.fence(other, 5)

    async def check(keeper):
        assert await keeper.renew()
        assert ring.lease(ns, 1).enc != ring.lease(ns, 1).blk
        assert ring.fenced(other, 1)
        assert ring.ticket_keys == (far.ticket_key,)
        far.ticket_key = secrets.token_bytes(32)
        began = time.monotonic()
        await asyncio.gather(keeper.renew(), keeper.renew(), keeper.renew())
        assert far.counts["key-leases"] == 2  # one answer serves all who waited
        assert time.monotonic() - began > 0.5
        assert len(ring.ticket_keys) == 2

    keeping(far, ring, check)


def test_a_console_that_is_away_takes_nothing(far, ring):
    ns = far.namespace()

    async def check(keeper):
        await keeper.renew()
        far.status = 503
        assert not await keeper.renew()
        assert keeper.failures == 1
        assert ring.lease(ns, 1)

    keeping(far, ring, check)


def test_times_may_be_rfc3339(far, ring):
    ns = far.namespace()
    real = far.leases

    def leases(body):
        answer = real(body)
        for line in answer["leases"]:
            line["until"] = "2099-01-01T00:00:00Z"
        return answer

    far.leases = leases

    async def check(keeper):
        await keeper.renew()
        assert ring.lease(ns, 1).until > time.time() + 10**8

    keeping(far, ring, check)


def test_keeping_renews_when_it_is_due(far, ring, monkeypatch):
    monkeypatch.setattr("nodeagent.keys.ASK_AGAIN_SECONDS", 0.05)
    far.namespace()

    async def check(keeper):
        task = asyncio.create_task(keeper.keep())
        while not ring.live():
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        assert far.counts["key-leases"] == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    keeping(far, ring, check)


def test_fences_of_earlier_lives_hold_and_nothing_of_them_is_acknowledged():
    ring = KeyRing(known=[Fence(ns=NS, min_gen=4)])
    assert (ring.fenced(NS, 3), ring.fenced(NS, 4), ring.fences, ring.fence_seq) == (True, False, 1, 0)
    ring.grant([lease(NS, 3), lease(NS, 4)])
    assert [x.gen for x in ring.live()] == [4]


def test_a_fence_is_acknowledged_only_when_it_is_durable():
    kept, full = [], [True]

    def keep(fences):
        if full:
            raise JournalFull("disk")
        kept.extend(fences)

    ring = KeyRing(keep=keep)
    ring.grant([lease(NS, 1)])
    assert not ring.fence(7, [Fence(ns=NS, min_gen=2)])
    assert (ring.fence_seq, ring.fenced(NS, 1), ring.live(), ring.unkept) == (0, True, [], 1)
    assert not ring.fence(7, [Fence(ns=NS, min_gen=2)])  # it comes again, as it was not acknowledged
    full.clear()
    assert ring.fence(8, [])
    assert (ring.fence_seq, kept) == (8, [Fence(ns=NS, min_gen=2)])
    assert ring.fence(9, [Fence(ns=NS, min_gen=2)])
    assert len(kept) == 1


def test_keys_of_generations_that_are_shredded_are_dropped():
    ring = KeyRing()
    ring.grant([lease(NS, 1), lease(NS, 2), lease(NS, 3), lease(bytes(32), 1)])
    assert ring.drop(NS, 3)
    assert sorted((x.ns[-1], x.gen) for x in ring.live()) == [(0, 1), (31, 3)]
