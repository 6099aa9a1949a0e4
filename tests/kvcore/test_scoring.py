"""The pick, seen from outside: what is taken, what is filtered, what is unknown. `test_scoring_fleets`: every fleet."""

from typing import Any

import msgspec
import pytest

from kvcore.cards import Choice, Edge, Held, Learned, Replicate, TierLoad
from kvcore.policies import Policy, built_in
from kvcore.scoring import score
from tests.kvcore.workers import BLOCK, CURVE, UNKNOWN, asking, worker

POLICY = built_in()
WIRE = Edge(12.5e6, 0.0)


def policy(**params: float) -> Policy:
    return msgspec.structs.replace(POLICY, params={**POLICY.params, **params})


def picked(choice: Choice) -> int:
    assert choice.prefill is not None
    return choice.prefill.candidate


def plan(choice: Choice) -> list[tuple[int, int, str, int, str]]:
    assert choice.prefill is not None
    return [msgspec.structs.astuple(r) for r in choice.prefill.plan]


# ------------------------------------------------------------------ seen from outside
@pytest.mark.parametrize(("queue_ms", "takes"), [(300.0, 0), (1500.0, 1)])
def test_80k_cached_behind_a_queue(queue_ms: float, takes: int) -> None:
    held = [Held(0, ((5000, "hbm"),))]
    choice = score(asking(80_000), [worker("busy", queue_ms), worker("idle")], held, {}, POLICY)
    assert picked(choice) == takes
    totals = {c.candidate: c.total_ms for c in choice.cards}
    assert totals[1] == pytest.approx(1408.80 + 11, abs=0.01)
    # the last block is computed again: without a token nothing comes out
    assert totals[0] == pytest.approx(queue_ms + CURVE.suffix_ms(79_984, 80_000) + 11, abs=0.01)


def test_a_12_5_gb_edge_flips_at_36_4k_tokens() -> None:
    def source(tokens: int) -> str:
        choice = score(
            asking(tokens), [worker("holder", 1e6), worker("idle")], [Held(0, ((tokens // BLOCK, "hbm"),))],
            {"holder": {"idle": WIRE}}, POLICY,
        )  # fmt: skip
        assert picked(choice) == 1
        return plan(choice)[0][2]

    flip = next(n for n in range(30_000, 45_000, BLOCK) if source(n) == "remote")
    assert abs(flip - 36_400) <= 500
    assert all(source(n) == "compute" for n in range(1_000, flip, 1_600))
    assert all(source(n) == "remote" for n in range(flip, 60_000, 1_600))


def test_a_plan_of_three_sources() -> None:
    workers = [worker("a", tiers=(TierLoad("dram", 25e6, 0.2),)), worker("b", 400.0)]
    held = [Held(0, ((1000, "hbm"), (2000, "dram"))), Held(1, ((4000, "hbm"),))]
    choice = score(asking(80_000), workers, held, {"b": {"a": Edge(50e6, 0.1)}}, POLICY)
    assert plan(choice) == [
        (0, 1000, "local", 0, "hbm"), (1000, 4000, "remote", 1, "hbm"), (4000, 5000, "compute", 0, "")
    ]  # fmt: skip
    slow = score(asking(80_000), workers, held, {"b": {"a": Edge(20e6, 0.1)}}, POLICY)
    assert plan(slow)[1:3] == [(1000, 2000, "local", 0, "dram"), (2000, 4000, "remote", 1, "hbm")]
    assert slow.prefill is not None
    assert slow.prefill.terms.cache_load == pytest.approx(
        0.2 + 1000 * 16 * 163_840 / 25e6 + 0.1 + 2000 * 16 * 163_840 / 20e6
    )


# ------------------------------------------------------------------ who may and who may not
def test_filters_name_the_reason_and_permission_comes_first() -> None:
    workers = [
        worker("a", refused="rights", state="lost"), worker("b", state="silent"), worker("c", used_share=0.9, high=0.9),
        worker("d", role="decode"), worker("e", 500.0), worker("f", refused="unknown-candidate"),
    ]  # fmt: skip
    held = [Held(0, ((4000, "hbm"),)), Held(1, ((4000, "hbm"),))]
    wires = {n: {"e": Edge(50e6, 0.0)} for n in "abc"}
    choice = score(asking(80_000), workers, held, wires, POLICY)
    assert {(f.candidate, f.filtered_by) for f in choice.filtered} == {
        (0, "rights"), (1, "health"), (2, "watermark"), (3, "role"), (5, "unknown-candidate")
    }  # fmt: skip
    assert picked(choice) == 4
    # what may not be read, or is not heard, is no source either
    assert [r[2] for r in plan(choice)] == ["compute"]


@pytest.mark.parametrize("why", ["quota", "watermark", "cordoned"])
def test_who_takes_no_more_may_still_give(why: str) -> None:
    full: dict[str, Any] = {
        "quota": {"refused": "quota"}, "watermark": {"used_share": 0.99, "high": 0.9}, "cordoned": {"state": "cordoned"}
    }[why]  # fmt: skip
    choice = score(
        asking(80_000), [worker("full", **full), worker("b")], [Held(0, ((4000, "hbm"),))],
        {"full": {"b": Edge(50e6, 0.0)}}, POLICY,
    )  # fmt: skip
    assert plan(choice)[0] == (0, 4000, "remote", 0, "hbm")


def test_where_all_are_full_somebody_makes_room() -> None:
    choice = score(asking(100), [worker("a", 5.0, used_share=1.0), worker("b", used_share=1.0)], [], {}, POLICY)
    assert picked(choice) == 1
    assert choice.filtered == ()


def test_nobody() -> None:
    none = score(asking(100), [], [], {}, POLICY)
    assert (none.prefill, none.decode, none.cards, none.why) == (None, None, (), "no-candidates")
    all_out = score(asking(100), [worker("a", state="lost")], [], {}, POLICY)
    assert (all_out.prefill, all_out.why, all_out.filtered[0].filtered_by) == (None, "all-filtered", "health")
    alone = score(asking(100), [worker("p", role="prefill")], [], {}, POLICY)
    assert (alone.prefill, alone.filtered[0].filtered_by) == (None, "no-decode")


# ------------------------------------------------------------------ two workers for one request
def test_decode_elsewhere_costs_the_transfer_of_what_it_lacks() -> None:
    workers = [worker("p", role="prefill"), worker("d1", role="decode", decode_queue_ms=5.0),
               worker("d2", role="decode", decode_queue_ms=30.0)]  # fmt: skip
    wires = {"p": {"d1": Edge(50e6, 1.0), "d2": Edge(50e6, 1.0)}}
    choice = score(asking(32_768), workers, [], wires, POLICY)
    assert choice.decode == workers[1]
    assert choice.prefill is not None
    t = choice.prefill.terms
    assert t.transfer == pytest.approx(1.0 + 32_768 * 163_840 / 50e6)
    assert (t.queue_d, t.first_decode) == (5.0, 10.0)
    # who holds nearly all of it already waits for less
    held = [Held(2, ((2000, "hbm"),))]
    near = score(asking(32_768), workers, held, wires, POLICY)
    assert near.decode == workers[2]
    assert near.prefill is not None
    assert near.prefill.terms.transfer == pytest.approx(1.0 + 48 * 16 * 163_840 / 50e6)
    hidden = score(asking(32_768), workers, [], wires, policy(transfer_exposed=0.25))
    assert hidden.prefill is not None
    assert hidden.prefill.terms.transfer == pytest.approx(t.transfer / 4)


def test_an_edge_that_nobody_knows_is_named() -> None:
    workers = [worker("p", role="prefill"), worker("d", role="decode")]
    choice = score(asking(1_600), workers, [], {}, POLICY)
    assert choice.prefill is not None
    assert choice.prefill.unknowns == ("transfer",)
    assert choice.prefill.terms.transfer == pytest.approx(2.0 + 1_600 * 163_840 / 1.25e6)


def test_who_does_both_hands_over_only_where_some_only_decode() -> None:
    both = [worker("a", decode_queue_ms=500.0), worker("b", 2000.0)]
    assert score(asking(100), both, [], {}, POLICY).decode == both[0]
    mixed = [both[0], worker("d", role="decode")]
    assert score(asking(100), mixed, [], {"a": {"d": Edge(50e6, 0.1)}}, POLICY).decode == mixed[1]


# ------------------------------------------------------------------ what is unknown
def test_without_a_report_a_worker_has_the_fleets_median_and_not_nothing() -> None:
    silent = worker("new", None, load_age_ms=None, decode_queue_ms=None, first_decode_ms=None)
    choice = score(asking(100), [worker("a", 10.0), worker("b", 20.0), worker("c", 90.0), silent], [], {}, POLICY)
    cards = {c.candidate: c for c in choice.cards}
    assert cards[3].terms.queue_p == 20.0
    assert cards[3].unknowns == ("queue_p", "queue_d", "first_decode")
    assert cards[0].unknowns == ()
    alone = score(asking(100), [silent], [], {}, POLICY)
    assert alone.prefill is not None
    assert (alone.prefill.terms.queue_p, alone.prefill.terms.first_decode) == (200.0, 50.0)


@pytest.mark.parametrize(
    ("age_ms", "queue"), [(1_000, 0.0), (2_000, 0.0), (6_000, 50.0), (10_000, 100.0), (1e9, 100.0)]
)
def test_a_report_that_grows_old_drifts_to_the_median(age_ms: float, queue: float) -> None:
    workers = [worker("old", 0.0, load_age_ms=age_ms), worker("b", 100.0), worker("c", 200.0)]
    choice = score(asking(100), workers, [], {}, POLICY)
    card = next(c for c in choice.cards if c.candidate == 0)
    assert card.terms.queue_p == queue
    assert ("queue_p" in card.unknowns) == (queue > 0)


def test_an_unmeasured_curve_is_its_classes_and_a_silent_tier_the_fleets() -> None:
    slow = msgspec.structs.replace(CURVE, linear_ms=1.0)
    workers = [worker("a", 9.0, cls="slow", curve=slow), worker("b", 9.0),
               worker("new", 0.0, cls="slow", curve=UNKNOWN),
               worker("odd", 0.0, cls="odd", curve=UNKNOWN, tiers=())]  # fmt: skip
    held = [Held(3, ((5, "dram"),))]
    cards = {c.candidate: c for c in score(asking(100, router_ms=None), workers, held, {}, POLICY).cards}
    assert cards[2].terms.prefill == cards[0].terms.prefill
    assert cards[2].unknowns == ("router", "prefill")
    assert cards[0].terms.router == 1.0
    assert cards[3].terms.cache_load == pytest.approx(0.2 + 5 * 16 * 163_840 / 25e6)
    assert cards[3].unknowns == ("router", "prefill", "cache_load")
    nobody = score(asking(100), [worker("x", curve=UNKNOWN)], [], {}, POLICY)
    assert nobody.prefill is not None
    assert nobody.prefill.terms.prefill == pytest.approx(2.0)


# ------------------------------------------------------------------ sessions and hot prompts
def test_a_session_reads_no_less_than_it_wrote() -> None:
    workers = [worker("idle"), worker("home", 60.0)]
    held = [Held(0, ((90, "hbm"),)), Held(1, ((100, "hbm"),))]
    ask = asking(1_700, session_node="home", session_floor_blocks=100)
    choice = score(ask, workers, held, {}, POLICY)
    assert (picked(choice), choice.why) == (1, "below-floor")
    assert choice.cards[1].notes == ("below-floor",)
    # who can fetch it reads no less, either
    assert picked(score(ask, workers, held, {"home": {"idle": Edge(50e6, 0.1)}}, POLICY)) == 0
    # where nobody has it any more there is nothing to wait for
    gone = score(ask, workers, held[:1], {}, POLICY)
    assert picked(gone) == 0


def test_a_session_stays_where_it_costs_little() -> None:
    workers = [worker("a"), worker("home", 1.0), worker("c", 900.0)]
    choice = score(asking(1_600, session_node="home"), workers, [], {}, POLICY)
    assert (picked(choice), choice.why) == (1, "session")
    assert choice.prefill is not None
    assert choice.prefill.notes == ("session",)
    assert picked(score(asking(1_600, session_node="home"), workers, [], {}, policy(session_slack=0.0))) == 0
    assert picked(score(asking(1_600, session_node="c"), workers, [], {}, POLICY)) == 0


def test_a_hot_prompt_does_not_stick_beyond_the_cap() -> None:
    workers = [worker("hot", 100.0), worker("b"), worker("c"), worker("d")]
    held = [Held(0, ((5000, "hbm"),))]
    ask = asking(80_000, hot_share=0.8, hot_blocks=4096)
    choice = score(ask, workers, held, {}, POLICY)
    assert picked(choice) != 0
    assert choice.why == "over-cap"
    assert choice.replicate == Replicate(4096, 1, 3, None)
    hot = next(c for c in choice.cards if c.candidate == 0)
    assert hot.notes == ("over-cap",)
    assert picked(score(ask, workers, held, {}, policy(stickiness_cap=0.0))) == 0
    assert picked(score(asking(80_000, hot_share=0.2, hot_blocks=4096), workers, held, {}, POLICY)) == 0
    # while there is no queue it stays, and the hint names who should have it next
    calm = score(ask, [worker("hot"), *workers[1:]], held, {}, POLICY)
    assert picked(calm) == 0
    assert calm.replicate is not None
    assert calm.replicate.target in (1, 2, 3)
    # three copies are enough: the fourth worker is left to others
    enough = [Held(i, ((5000, "hbm"),)) for i in range(3)]
    full = score(ask, [worker(n, 100.0) for n in "abc"] + [worker("d")], enough, {}, POLICY)
    assert picked(full) < 3
    assert full.replicate is None


def test_equal_workers_are_told_apart_by_the_prompt() -> None:
    workers = [worker(f"n{i}") for i in range(4)]
    takes = [picked(score(asking(100, affinity=a * 977), workers, [], {}, POLICY)) for a in range(400)]
    assert all(60 <= takes.count(i) <= 140 for i in range(4))
    assert score(asking(100, affinity=5), workers, [], {}, POLICY).why == "tie"
    for a in range(50):
        least = picked(score(asking(100, affinity=a), workers, [], {}, POLICY))
        without = [w for i, w in enumerate(workers) if i != (least + 1) % 4]
        again = score(asking(100, affinity=a), without, [], {}, POLICY)
        assert without[picked(again)] == workers[least]


def test_what_is_learned_scales_the_terms() -> None:
    factors = (1.0, 2.0, 1.0, 3.0, 1.0, 1.0, 0.5, 4.0, 2.0, 7.0)
    w = worker("a", 10.0, waiting=2, running=3)
    plain = score(asking(100), [w], [], {}, POLICY).prefill
    known = score(asking(100), [w], [], {}, POLICY, Learned({"a": factors}, 1)).prefill
    assert plain is not None
    assert known is not None
    assert known.terms.queue_p == 2 * 10 + 4 * 2 + 2 * 3 + 7
    assert known.terms.prefill == pytest.approx(3 * plain.terms.prefill)
    assert known.terms.first_decode == 5.0
    off = score(asking(100), [w], [], {}, policy(use_learned=0), Learned({"a": factors}, 1)).prefill
    assert off == plain
