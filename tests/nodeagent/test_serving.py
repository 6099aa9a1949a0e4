"""The parts of the P/D road, each for itself: flights, marks, sessions, reservations, gifts, what becomes of blocks."""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kvcore.blocks import BlockState, Tier
from kvcore.keys import KEY_BYTES
from kvcore.tickets import Peer
from nodeagent.engines.base import Request
from nodeagent.serving.computing import Prompt
from nodeagent.serving.flights import Flights
from nodeagent.serving.gifts import Gifts
from nodeagent.serving.keeping import settle
from nodeagent.serving.marks import Faults, Marks
from nodeagent.serving.receiving import Receiver
from nodeagent.serving.remote import giver_of, ticket_for
from nodeagent.serving.sessions import Sessions
from nodeagent.serving.streams import lines
from nodeagent.serving.words import Event, Refused, event_of
from nodeagent.tiers.base import RunMeta
from nodeagent.transfer import Denied
from tests.nodeagent.rig import Rig, blocks


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path, {"hbm": blocks(200), "dram": blocks(200)})
    yield made
    made.close()


def prompt_of(rig, key, ids, tokens=None) -> Prompt:
    request = Request(
        request="r", ns=key.ns, gen=key.gen, hash_ids=ids, hash_tokens=64,
        input_length=len(ids) * 64 if tokens is None else tokens,
    )  # fmt: skip
    return Prompt(request, *rig.engine.open(request))


def metas_and_bytes(rig, prompt):
    """The runs of a prompt that is here, as another node would give them."""
    gifts = Gifts(rig.pool, node="n", key=Ed25519PrivateKey.generate(), clock=lambda: rig.now)
    gift = gifts.begin("d", (Peer(node="m", role="taker", public_key=bytes(32)),))
    assert gifts.grow(gift, prompt.chain, prompt.blocks) == prompt.blocks
    out = [(p.meta, gifts._bytes(p)[1]) for p in gift.parts]
    gifts.end("d")
    return out


def test_who_asks_for_what_is_on_its_way_waits_for_it():
    async def main():
        flights, keys = Flights(), bytes(range(32)) + bytes(range(1, 33)) + bytes(range(2, 34))
        flight = flights.begin(keys)
        assert flights.of(keys[32:64]) is flight
        assert len(flights) == 1
        behind = flights.begin(bytes(range(5, 37)) + keys[:32])  # it brings only what nobody brings yet
        assert behind.keys == [bytes(range(5, 37))]
        waiting = asyncio.create_task(flight.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        flights.end(flight)
        await asyncio.wait_for(waiting, 1)
        assert flights.of(keys[:32]) is None
        flights.end(behind)
        assert len(flights) == 0

    asyncio.run(main())


def test_terms_have_no_gap_and_no_overlap():
    now = [10.0]
    marks = Marks(clock=lambda: now[0])
    for event, seconds in (("admitted", 0.1), ("loaded", 0.02), ("computed", 0.3), ("turn", 0.05), ("first", 0.01)):
        now[0] += seconds
        marks.mark(event)
        marks.mark(event)
    terms = marks.terms()
    assert terms == pytest.approx(
        {"queue_p": 100, "cache_load": 20, "prefill": 300, "transfer": 0, "queue_d": 50, "first_decode": 10}
    )
    assert sum(terms.values()) == pytest.approx(marks.ttft_ms)


def test_faults_strike_only_their_term():
    async def took(term):
        loop = asyncio.get_running_loop()
        began = loop.time()
        await Faults({"prefill": 30.0}).strike(term)
        return loop.time() - began

    assert asyncio.run(took("prefill")) >= 0.029
    assert asyncio.run(took("transfer")) < 0.02


def test_a_session_that_moved_takes_no_late_turn():
    sessions, ns = Sessions(), bytes(32)
    sessions.wrote(ns, "s", 10, b"k10")
    sessions.wrote(ns, "s", 8, b"k8")  # a shorter branch does not lower what was written
    assert sessions.of(ns, "s").blocks == 10
    assert sessions.admitted(ns, "s", 0)
    assert sessions.fence(ns, "s", 1).blocks == 10
    assert not sessions.admitted(ns, "s", 0)
    assert not sessions.admitted(ns, "s", 1)
    assert sessions.admitted(ns, "s", 2)  # it came back
    assert sessions.admitted(ns, "other", 0)
    sessions.drop(ns)
    assert sessions.of(ns, "s") is None


def test_what_comes_is_checked_and_committed_and_the_rest_is_free(rig, tmp_path):
    key = rig.lease()
    rig.ask(key, [1, 2, 3])
    prompt = prompt_of(rig, key, [1, 2, 3])
    parts = metas_and_bytes(rig, prompt)
    (tmp_path / "b").mkdir()
    other = Rig(tmp_path / "b", {"hbm": blocks(200)})
    other.ring.grant([key])
    mine = prompt_of(other, key, [1, 2, 3])
    receiver = Receiver(other.pool, clock=lambda: other.now)
    reservation = receiver.reserve("r", mine, 12)
    assert other.pool.budget.charged[mine.space.tenant, Tier.HBM] == 12 * 1024
    came = receiver.begin(reservation, [m for m, _ in parts])
    assert receiver.transferring == len(parts) == len(came)
    good, raw = parts[0]
    assert receiver.land(reservation, good, raw)
    assert not receiver.land(reservation, good, raw)  # nobody waits for it any more
    assert other.pool.index[mine.key(0)].copies[Tier.HBM].state is BlockState.COMMITTED
    receiver.end(reservation)
    receiver.end(reservation)
    assert (receiver.transferring, receiver.reserved_blocks, len(receiver.open)) == (0, 0, 0)
    held = sum(r.blocks for r in other.pool.runs.values()) * 1024
    assert other.pool.budget.charged[mine.space.tenant, Tier.HBM] == held == good.blocks * 1024
    assert other.folded("reference") == {("hbm", key.ns, 1, mine.key(i)) for i in range(good.blocks)}
    assert other.bad == []
    other.close()


@pytest.mark.parametrize("kind", ["flipped", "not-asked", "other-size"])
def test_what_is_not_the_asked_block_is_not_committed(rig, tmp_path, kind):
    key = rig.lease()
    rig.ask(key, [1, 2])
    ((meta, raw), *_) = metas_and_bytes(rig, prompt_of(rig, key, [1, 2]))
    (tmp_path / "b").mkdir()
    other = Rig(tmp_path / "b", {"hbm": blocks(200)})
    other.ring.grant([key])
    mine = prompt_of(other, key, [5, 2] if kind == "not-asked" else [1, 2])
    receiver = Receiver(other.pool, clock=lambda: other.now)
    reservation = receiver.reserve("r", mine, 8)
    if kind == "other-size":
        fields = (meta.ns, meta.gen, meta.group, meta.depth, meta.parent, meta.keys, meta.version)
        meta = RunMeta(*fields, meta.block_tokens * 2, meta.block_bytes)
    if kind == "flipped":
        raw = raw[:300] + bytes([raw[300] ^ 1]) + raw[301:]
        assert receiver.begin(reservation, [meta]) == [meta]
        assert not receiver.land(reservation, meta, raw)
        assert reservation.refused == {"block-digest": meta.blocks}
    else:
        assert receiver.begin(reservation, [meta]) == []
        assert reservation.refused == {"not-asked": meta.blocks}
    assert other.pool.index == {}
    assert receiver.transferring == 0
    other.close()


def test_a_reservation_that_gets_nothing_is_over(rig):
    key = rig.lease()
    receiver = Receiver(rig.pool, clock=lambda: rig.now, seconds=10)
    reservation = receiver.reserve("r", prompt_of(rig, key, [1]), 4)
    rig.now += 9
    receiver.expire(rig.now)
    assert receiver.reserved_blocks == 4
    rig.now += 2
    receiver.expire(rig.now)
    assert (receiver.reserved_blocks, receiver.expired, reservation.closed) == (0, 1, True)
    assert rig.pool.budget.charged == {}
    with pytest.raises(Refused, match="no-room"):
        receiver.reserve("s", prompt_of(rig, key, [1]), 10_000)


def test_a_fence_ends_what_is_on_its_way(rig):
    key = rig.lease()
    receiver = Receiver(rig.pool, clock=lambda: rig.now)
    receiver.reserve("r", prompt_of(rig, key, [1]), 4)
    receiver.cancel(lambda ns, gen: ns != key.ns)
    assert receiver.reserved_blocks == 4
    receiver.cancel(lambda ns, gen: ns == key.ns)
    assert receiver.reserved_blocks == 0


def test_a_gift_holds_what_is_in_it_until_its_time_is_over(rig):
    key = rig.lease()
    rig.ask(key, [1, 2])
    prompt = prompt_of(rig, key, [1, 2])
    gifts = Gifts(rig.pool, node="n", key=Ed25519PrivateKey.generate(), clock=lambda: rig.now)
    gift = gifts.begin("d", ())
    gifts.grow(gift, prompt.chain, 4)
    gifts.grow(gift, prompt.chain, 8)
    assert gift.blocks == 8
    (copy,) = {id(c): c for r in rig.pool.runs.values() for c in r.copies.values()}.values()
    assert copy.state is BlockState.REFERENCED
    with pytest.raises(Denied, match="offer-unknown"):
        gifts._gift("other")
    rig.now += 31
    gifts.expire(rig.now)
    assert copy.state is BlockState.COMMITTED
    assert gifts.held == 0


def test_a_gift_of_a_key_is_the_chain_that_ends_with_it_and_nothing_else(rig):
    key = rig.lease()
    rig.ask(key, [1, 2, 3])
    rig.ask(key, [1, 9, 9])
    prompt = prompt_of(rig, key, [1, 2, 3])
    gifts = Gifts(rig.pool, node="n", key=Ed25519PrivateKey.generate(), clock=lambda: rig.now)
    gift = gifts.begin("d", ())
    assert gifts.walk_back(gift, prompt.key(9), 10) == 0
    assert b"".join(p.meta.keys for p in gift.parts) == prompt.chain[: 10 * KEY_BYTES]
    wrong = gifts.begin("e", ())
    assert gifts.walk_back(wrong, prompt.key(9), 7) == 7  # the key is not where the ticket says
    assert wrong.parts == []


def test_blocks_stay_where_there_is_room_and_go_down_where_there_is_none(rig):
    key = rig.lease()
    rig.ask(key, [1, 2])
    kept = settle(rig.pool, rig.relief, prompt_of(rig, key, [1, 2]), 8, rig.now)
    assert (kept.blocks, kept.reasons) == ({"keep": 8}, {"room": 8})
    for i in range(46):
        rig.ask(key, [100 + i])
    space = next(iter(rig.pool.spaces.values()))
    space.share = 0.1
    prompt = prompt_of(rig, key, [130])
    verdict = settle(rig.pool, rig.relief, prompt, 4, rig.now)
    assert sum(verdict.blocks.values()) == 4
    assert verdict.blocks.keys() <= {"demote", "drop"}
    assert verdict.terms["fill"] > verdict.terms["high"]
    assert rig.bad == []


def test_events_are_lines_with_a_sign_of_life_and_a_reason():
    async def main():
        async def work(say):
            say(Event("arrived"))
            await asyncio.sleep(0.5)
            raise Refused("no-room")

        return [event_of(line) async for line in lines(work, goes_on=False)]

    events = asyncio.run(main())
    assert [e.at for e in events] == ["arrived", "alive", "alive", "refused"]
    assert events[-1].code == "no-room"


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_a_caller_that_went_leaves_behind(goes_on):
    async def main():
        done = []

        async def work(say):
            say(Event("arrived"))
            await asyncio.sleep(0.05)
            done.append(True)

        events = lines(work, goes_on=goes_on)
        await anext(events)
        await events.aclose()
        await asyncio.sleep(0.15)
        return bool(done)

    assert asyncio.run(main()) is goes_on


def test_tickets_are_found_by_node_and_givers_only_where_the_ticket_names_them(rig):
    assert ticket_for([], "n") is None
    from kvcore.tickets import Scope, ticket_issue

    peer = Peer(node="x", role="giver", public_key=bytes(32), url="http://x")
    ticket = ticket_issue(
        bytes(32), node="n", ns=bytes(32), gen=1, expires_at=1.0, scope=Scope(decision="d", blocks=0, peers=(peer,))
    )
    assert ticket_for([ticket], "n") is ticket
    assert giver_of(ticket, "x") == peer
    assert giver_of(ticket, "y") is None
