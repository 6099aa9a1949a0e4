"""Whose token it is: kept for a moment, refused when it is nobody's, unknown when the database is away."""

import asyncio
import threading
import time
from collections import OrderedDict

import pytest

from catalog.ingest import credentials
from catalog.ingest.codes import Unavailable
from catalog.ingest.credentials import Attempts, Credentials, node_of
from kvconsole.infra.access import Principal
from tenants import tokens
from tests.catalog.ingest.rig import plant_node
from tests.catalog.ingest.test_hot import plant_token


def ask(headers: list[bytes]) -> list:
    async def main():
        known = Credentials()
        try:
            return [await known.node(h) for h in headers], len(known.good)
        finally:
            known.close()

    return asyncio.run(main())


def test_a_nodes_token_is_its_own(planted):
    node = plant_node(planted, "n1")
    token = plant_token(planted, node).encode()
    answers, _ = ask(
        [b"Bearer " + token, b"bearer  " + token, b"Basic " + token, b"Bearer", b"", b"Bearer " + b"x" * 999]
    )
    assert answers == [node, node, None, None, None, None]


def test_answers_are_kept_for_five_seconds(planted, monkeypatch):
    node = plant_node(planted, "n1")
    token = b"Bearer " + plant_token(planted, node).encode()
    clock = [100.0]
    monkeypatch.setattr(credentials.time, "monotonic", lambda: clock[0])

    async def main():
        known = Credentials()
        assert await known.node(token) == node
        planted.execute("UPDATE tenants_token SET revoked_at = now()")
        assert await known.node(token) == node
        clock[0] += 5.1
        assert await known.node(token) is None
        known.close()

    asyncio.run(main())


def wrong(n: int) -> list[bytes]:
    """So many tokens that are well-formed and nobody's."""
    return [b"Bearer " + tokens.generate("node")[0].encode() for _ in range(n)]


def test_an_address_counts_its_wrong_tokens(monkeypatch):
    monkeypatch.setattr(credentials, "FREE", 2)
    tried = Attempts()
    assert [tried.begin("a", 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert tried.begin("b", 0.0) == 0.0
    tried.passed("a", 0.0)
    assert [tried.begin("a", 0.0), tried.begin("a", 0.5)] == [0.0, 0.5]
    assert tried.begin("a", 100.0) == tried.begin("a", 100.0) == 0.0
    assert tried.begin("a", 100.0) > 0
    monkeypatch.setattr(credentials, "KEPT_MOST", 10)
    for i in range(100):
        tried.begin(str(i), 0.0)
    assert len(tried._left) == 10


def test_what_is_no_token_is_not_looked_up(planted, monkeypatch):
    looks = []
    monkeypatch.setattr(Credentials, "_look", lambda self, token: looks.append(token))
    headers = [b"Bearer x", b"Bearer kvc_node_" + b"0" * 65, b"Bearer ", b"Bearer " + b"x" * 600]
    assert ask(headers * 50)[0] == [None] * 200
    assert looks == []


def test_strangers_do_not_queue_ahead_of_nodes(planted):
    """A thousand unknown tokens at once: few are looked up, and a node's next look-up does not wait behind them."""
    node = plant_node(planted, "n1")
    token = b"Bearer " + plant_token(planted, node).encode()

    async def main():
        known, gate, order = Credentials(), threading.Event(), []
        look = known._look

        def slowly(given):
            if given.encode() not in token:
                gate.wait(20)
            order.append(given.encode() in token)
            return look(given)

        known._look = slowly
        try:
            assert await known.node(token, "192.0.2.1") == node
            flood = [asyncio.create_task(known.node(h, f"192.0.2.{i % 4}")) for i, h in enumerate(wrong(1000))]
            await asyncio.sleep(0.1)
            known.good = OrderedDict({t: (time.monotonic() - 1, n) for t, (_, n) in known.good.items()})
            assert await asyncio.wait_for(known.node(token, "192.0.2.1"), 10) == node
            assert order == [True, True]
            gate.set()
            ends = await asyncio.gather(*flood, return_exceptions=True)
            limited = [e for e in ends if isinstance(e, Unavailable)]
            assert {e.code for e in limited} == {"rate-limited"}
            assert ends.count(None) == len(order) - 2 == 4 * credentials.FREE
            assert (known.waiting, len(known.good), len(known.bad)) == (0, 1, 4 * credentials.FREE)
            fresh = b"Bearer " + plant_token(planted, plant_node(planted, "n2")).encode()
            assert await known.node(fresh, "198.51.100.7") is not None, "elsewhere a new node is heard"
        finally:
            gate.set()
            known.close()

    asyncio.run(main())


def test_only_so_many_strangers_wait(planted, monkeypatch):
    monkeypatch.setattr(credentials, "WAITING_MOST", 8)

    async def main():
        known, gate = Credentials(), threading.Event()
        known._look = lambda given: gate.wait(20) and None
        try:
            flood = [asyncio.create_task(known.node(h, f"10.0.{i}.1")) for i, h in enumerate(wrong(100))]
            await asyncio.sleep(0.1)
            gate.set()
            ends = await asyncio.gather(*flood, return_exceptions=True)
            assert (ends.count(None), sum(isinstance(e, Unavailable) for e in ends)) == (8, 92)
        finally:
            gate.set()
            known.close()

    asyncio.run(main())


def test_an_address_is_not_charged_while_the_database_is_away(planted, monkeypatch):
    monkeypatch.setattr(credentials, "FREE", 3)

    async def main():
        known = Credentials()

        def away(given):
            raise Unavailable("shard-unavailable")

        known._look = away
        try:
            for header in wrong(20):
                with pytest.raises(Unavailable, match="shard-unavailable"):
                    await known.node(header, "192.0.2.1")
        finally:
            known.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "principal",
    [
        None,
        Principal(kind="user", id="u", roles=frozenset({"operator"})),
        Principal(kind="node", id="t", roles=frozenset({"node"}), holder="not-a-uuid"),
    ],
)
def test_others_are_no_node(principal):
    assert node_of(principal) is None
