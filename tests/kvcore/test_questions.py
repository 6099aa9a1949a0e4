"""One worker's terms, part by part. That bounds are bounds and plans whole is in test_scoring, for any fleet."""

import pytest

from kvcore.cards import NOTHING_LEARNED, Edge, Held, Terms, TierLoad
from kvcore.fleets import prepare
from kvcore.policies import built_in
from kvcore.questions import Question
from tests.kvcore.workers import BLOCK, CURVE, TOKEN, asking, worker


def test_each_term_stands_for_one_thing() -> None:
    workers = [worker("p", 40.0, role="prefill"), worker("d", role="decode", decode_queue_ms=7.0, first_decode_ms=9.0)]
    fleet = prepare(workers, {"p": {"d": Edge(25e6, 1.5)}}, built_in(), NOTHING_LEARNED)
    q = Question(asking(32_000, router_ms=0.3), fleet, [Held(0, ((500, "hbm"), (1000, "dram")))])
    found = q.exact(fleet.rows[0])
    load = 0.2 + 500 * BLOCK * TOKEN / 25e6
    send = 1.5 + 32_000 * TOKEN / 25e6
    assert found.terms == Terms(
        0.3, 40.0, pytest.approx(load), pytest.approx(CURVE.suffix_ms(16_000, 32_000)), pytest.approx(send), 7.0, 9.0
    )
    assert q.exact(fleet.rows[0]) is found


def test_one_token_is_always_computed() -> None:
    fleet = prepare([worker("a")], {}, built_in(), NOTHING_LEARNED)
    for tokens, usable in ((1, 0), (16, 0), (17, 1), (32, 1), (33, 2)):
        q = Question(asking(tokens), fleet, [Held(0, ((99, "hbm"),))])
        assert q.usable == usable
        assert q.exact(fleet.rows[0]).split.blocks == usable


def test_the_slower_of_tier_and_edge_and_both_waits() -> None:
    workers = [worker("h", 1e9, tiers=(TierLoad("ssd", 5e6, 0.7),)), worker("a")]
    held = [Held(0, ((4000, "ssd"),))]
    for rate in (5e6, 50e6, 3e6):
        fleet = prepare(workers, {"h": {"a": Edge(rate, 0.1)}}, built_in(), NOTHING_LEARNED)
        q = Question(asking(80_000), fleet, held)
        (source,) = q._sources(fleet.rows[1])[0]
        assert source.ms_per_block == pytest.approx(BLOCK * TOKEN / min(rate, 5e6))
        assert source.latency_ms == pytest.approx(0.8)


def test_what_is_in_place_needs_no_one_else() -> None:
    workers = [worker("h"), worker("a")]
    fleet = prepare(workers, {"h": {"a": Edge(50e6, 0.1)}}, built_in(), NOTHING_LEARNED)
    held = [Held(0, ((100, "hbm"),)), Held(1, ((100, "hbm"),))]
    (source,) = Question(asking(3_200), fleet, held)._sources(fleet.rows[1])[0]
    assert not source.remote
