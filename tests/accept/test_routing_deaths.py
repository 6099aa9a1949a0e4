"""The node that computes is killed at random, again and again: nobody waits for it, and nothing of it stays behind.

The node that decodes is in this process, so that every byte that it charged and every run that it holds can be counted;
the one that computes is a process of its own, and is killed as the kernel kills.
"""

import os
import random
import threading
import time

import pytest

from nodeagent.serving.receiving import LEASE_SECONDS
from tests.accept.fleet import say
from tests.nodeagent.conftest import eventually
from tests.nodeagent.serving.conftest import fleet
from tests.nodeagent.serving.fleet import wrong_blocks

__all__ = ["fleet"]
pytestmark = [pytest.mark.accept, pytest.mark.timeout(1800)]
KILLS = 50 if os.environ.get("KVC_ACCEPT", "") == "full" else 4
EACH, TOKENS = 4, 6 * 512


def killed(fleet, d, p, round_, r):
    """What four requests came to whose prefill node was killed within the time that they take."""
    orders = [fleet.order(d, [round_ * 1000 + 10 * n + i for i in range(6)], prefill=p, readable=0)
              for n in range(EACH)]  # fmt: skip
    delay = r.uniform(0.0, 0.35)
    killer = threading.Timer(delay, p.kill)
    killer.start()
    began = time.perf_counter()
    answers = fleet.at_once(d, orders)
    took = time.perf_counter() - began
    killer.join()
    return delay, took, answers


def test_kill_9_of_the_prefill_agent_at_random_nothing_stuck_in_transferring_no_byte_leaked_all_answered(fleet):
    (d,) = fleet.add("d")
    (p,) = fleet.add("p", process=True, time_scale=3.0, prefill_slots=EACH)
    r, asked, answered, told, fell = random.Random(11), 0, 0, [], 0
    for round_ in range(KILLS):
        delay, _, answers = killed(fleet, d, p, round_, r)
        for answer in answers:
            asked += 1
            o = answer.outcome
            answered += o["hit_tokens"] + o["computed_tokens"] == TOKENS
            if o["fell_back"]:
                fell += 1
                assert set(o["fell_back"]) <= {"prefill-lost"}, o["fell_back"]
                told.append(o["fell_back"]["prefill-lost"] - max(0.0, delay * 1000 - answer.at("arrived")))
        p.start(process=True)
    waited, limit = time.monotonic(), LEASE_SECONDS + 2
    eventually(lambda: not any(stuck(d)), limit)
    waited = time.monotonic() - waited
    eventually(lambda: d.status()["idle"], 20)
    pool = d.agent.pool
    with pool.lock:
        charged = sum(pool.budget.charged.values())
        held = sum(run.blocks * 1024 for run in pool.runs.values() for _ in run.copies)
        lying = {t.value: store.used_bytes for t, store in pool.tiers.items()}
        slots = {t.value: sum(run.meta.size_bytes for run in pool.runs.values() if t in run.copies) for t in pool.tiers}
    wrong = wrong_blocks(fleet, d)
    say("routing-deaths", kills=KILLS, asked=asked, answered=answered, fell_back=fell,
        told_ms_most=round(max(told, default=0.0), 1), stuck=dict(zip(STUCK, stuck(d), strict=True)),
        free_after_s=round(waited, 2), leaked_bytes=charged - held, wrong_blocks=wrong)  # fmt: skip
    assert answered == asked == KILLS * EACH
    assert fell > 0, "nobody was on the way when it died: nothing was shown"
    assert max(told) < 1000.0
    assert stuck(d) == (0, 0, 0)
    assert charged == held
    assert lying == slots
    assert wrong == 0


STUCK = ("transferring", "reserved_blocks", "reservations")


def stuck(member):
    """What the node says of promises that it has not ended."""
    state = member.serving()
    return tuple(state[name] for name in STUCK)
