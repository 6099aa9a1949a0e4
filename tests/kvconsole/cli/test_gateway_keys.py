"""Which salts a gateway may use: those of leases that last, and of no fenced generation. The console is real."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest
from django.db import transaction

from kvconsole.cli.gateway_config import Secrets
from kvconsole.cli.gateway_keys import Callers, Keeper, Ring, _Answer
from kvconsole.infra.access import system
from kvcore.keys import engine_salt
from tests.tenants.making import a_namespace, a_tenant

NS, KEY = "ab" * 32, "11" * 32
SALT = engine_salt(bytes.fromhex(KEY))
WHO = system("test")
START = datetime(2026, 5, 1, tzinfo=UTC)


class Clock:
    """A steady clock and the wall's, which may run apart."""

    def __init__(self):
        self.now, self.off = 1000.0, 0.0

    def wall(self):
        return START.timestamp() + self.now - 1000.0 + self.off


def answer(*leases, fences=(), seq=0):
    lines = [{"namespace": ns, "generation": gen, "subkeys": {"salt": key, "blk": "00"}, "until": until.isoformat()}
             for ns, gen, key, until in leases]  # fmt: skip
    said = {"leases": lines, "fence_seq": seq, "fences_after": [{"namespace": n, "min_gen": g} for n, g in fences]}
    return msgspec.json.decode(json.dumps(said).encode(), type=_Answer)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ring(clock):
    return Ring(clock=lambda: clock.now, wall=clock.wall)


def test_a_salt_may_be_used_until_its_lease_is_over_and_never_after(ring, clock):
    ring.take(answer((NS, 3, KEY, START + timedelta(seconds=300))), asked=1000.0)
    assert ring.may(SALT)
    assert not ring.may("another")
    clock.now += 299.9
    assert ring.may(SALT)
    clock.now += 0.2
    assert not ring.may(SALT)
    assert (ring.has(NS), ring.count()) == (False, 0)


@pytest.mark.parametrize("off", [-7200, 7200])
def test_a_clock_that_is_set_wrong_makes_no_lease_longer(clock, off):
    clock.off = off
    ring = Ring(clock=lambda: clock.now, wall=clock.wall)
    ring.take(answer((NS, 3, KEY, START + timedelta(seconds=300))), asked=1000.0)
    clock.now += 300.1
    assert not ring.may(SALT)


def test_a_fence_ends_a_lease_at_once_and_one_that_comes_late_too(ring):
    lease = (NS, 3, KEY, START + timedelta(seconds=300))
    ring.take(answer(lease, seq=4), asked=1000.0)
    ring.take(answer(fences=[(NS, 4)], seq=5), asked=1000.0)
    assert (ring.may(SALT), ring.fence_seq) == (False, 5)
    ring.take(answer(lease, seq=5), asked=1000.0)
    assert not ring.may(SALT)
    ring.take(answer(fences=[(NS, "9223372036854775807")], seq=6), asked=1000.0)
    ring.take(answer((NS, 12, "22" * 32, START + timedelta(seconds=300)), seq=6), asked=1000.0)
    assert ring.count() == 0


def test_only_what_is_in_use_is_asked_for(ring, clock):
    assert ring.held() == [{"namespace": "0" * 64, "generation": 0}]
    ring.take(answer((NS, 3, KEY, START + timedelta(seconds=300))), asked=1000.0)
    ring.may(SALT)
    assert ring.held() == [{"namespace": NS, "generation": 3}]
    clock.now += 901
    assert ring.held() == [{"namespace": "0" * 64, "generation": 0}]


# --- with the console --------------------------------------------------------------

console = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def asked(work):
    async def run():
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(limits=limits, trust_env=False) as client:
            return await work(client)

    return asyncio.run(run())


@console
def test_leases_come_from_the_console_and_fences_are_applied_before_they_are_acknowledged(live_server, settings):
    from tenants import services
    from tenants.models import FenceAck
    from tenants.services.fencing import namespaces_fence

    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    tenant = a_tenant(slug="acme")
    namespace, other = a_namespace(tenant), a_namespace(tenant)
    token = services.token_issue("gateway", roles=["gateway"], holder="g1")[1]
    ring, digest = Ring(), bytes(namespace.digest).hex()

    async def twice(client, times):
        keeper, states = Keeper(ring, client, live_server.url, token), []
        for _ in range(times):
            ring.want(digest)
            assert await keeper.renew(), keeper.failures
            states.append((ring.has(digest), ring.fence_seq))
        return states

    ((leased, _),) = asked(lambda client: twice(client, 1))
    assert (leased, ring.has(bytes(other.digest).hex())) == (True, False)
    (salt,) = ring._leases
    assert ring.may(salt)
    with transaction.atomic():
        (fenced,) = namespaces_fence(namespaces=[namespace.id], reason="deletion", actor=WHO, now=datetime.now(UTC))
    before = FenceAck.objects.get(holder="g1").seq
    assert before < fenced.fence_seq
    (told, _) = asked(lambda client: twice(client, 2))
    assert told == (True, fenced.fence_seq), "the new generation's lease came with the fence"
    assert not ring.may(salt), "the old generation's salt is no longer used"
    assert FenceAck.objects.get(holder="g1").seq == fenced.fence_seq


@console
def test_many_who_ask_at_once_are_at_most_two_questions(live_server):
    from audit.models import Event
    from tenants import services

    token = services.token_issue("gateway", roles=["gateway"], holder="g1")[1]
    before = Event.objects.count()

    async def together(client):
        keeper = Keeper(Ring(), client, live_server.url, token)
        return await asyncio.gather(*(keeper.renew() for _ in range(20)))

    assert asked(together) == [True] * 20
    assert 1 <= Event.objects.count() - before <= 2


@console
def test_a_console_that_is_away_or_refuses_is_a_failure_and_no_more(live_server):
    async def both(client):
        away = Keeper(Ring(), client, "http://127.0.0.1:1", "t")
        refused = Keeper(Ring(), client, live_server.url, "no token")
        return [await away.renew(), await refused.renew(), away.failures, refused.failures]

    assert asked(both) == [False, False, 1, 1]


@console
def test_who_shows_a_tenants_token_speaks_for_the_tenant(live_server):
    from tenants import services

    tenant = a_tenant(slug="acme")
    tokens = {
        "member": services.token_issue("service", roles=["tenant-member"], tenant_id=tenant.id)[1],
        "staff": services.token_issue("service", roles=["operator"])[1],
        "nobody": "kvc_service_" + "x" * 66,
    }

    async def ask(client):
        callers = Callers(Secrets("t", "", {}), client, live_server.url, tokens=True, most=2)
        found = {}
        for name, token in tokens.items():
            found[name] = await callers.tenant({b"authorization": f"Bearer {token}".encode()})
        assert len(callers._known) == 2
        shut = Callers(Secrets("t", "", {}), client, live_server.url, tokens=False)
        found["shut"] = await shut.tenant({b"authorization": f"Bearer {tokens['member']}".encode()})
        found["basic"] = await callers.tenant({b"authorization": f"Basic {tokens['member']}".encode()})
        return found

    assert asked(ask) == {"member": "acme", "staff": None, "nobody": None, "shut": None, "basic": None}
