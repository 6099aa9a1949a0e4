"""No more is in flight than was granted, the small ones go first, nobody waits for ever, and rates are kept to."""

import threading
import time

import pytest

from nodeagent import transfer_target
from nodeagent.jobs import Stopped
from nodeagent.transfer_pace import Credits, Pace
from tests.nodeagent.moving import TIERS, D, Node, filled, network, offer, pair, take
from tests.nodeagent.ordering import everything
from tests.nodeagent.rig import blocks
from tests.nodeagent.test_pool import check

__all__ = ["network", "pair"]


def test_a_rate_is_kept_to(pair, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 4 * 1104)
    a, b = pair
    key = filled(a, b)
    size = len(a.all(D)) * 1104
    _, step = offer(a, D, b, D, everything(key))
    began = time.monotonic()
    done, _ = take(a, D, b, D, step, everything(key), rate_bytes_per_s=size * 4)
    took = time.monotonic() - began
    assert done.outcome == "done"
    assert took > 0.2  # a quarter of a second, less the last window


def test_no_more_is_in_flight_than_was_granted(tmp_path, network, monkeypatch):
    monkeypatch.setattr(transfer_target, "WINDOW_BYTES", 8 * 1104)
    b = Node(tmp_path / "b", {**TIERS, "dram": blocks(2000)}, network, "b", 9)
    sources = [Node(tmp_path / n, TIERS, network, n, i) for i, n in enumerate("cde")]
    b.desk.credits.most_bytes = 12 * 1104
    done = []

    def one(source):
        key = filled(source, b)
        _, step = offer(source, D, b, D, everything(key))
        done.append(take(source, D, b, D, step, everything(key)))

    threads = [threading.Thread(target=one, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {d.outcome for d, _ in done} == {"done"}
    assert 0 < b.desk.credits.peak <= 12 * 1104
    assert b.desk.credits.in_flight == 0
    check(b)
    for node in (b, *sources):
        node.close()


def test_who_has_least_to_move_goes_first_but_nobody_waits_for_ever():
    now = [0.0]
    credits, order = Credits(10, clock=lambda: now[0]), []
    credits.take(10, left=10)

    def wait(name, left):
        credits.take(10, left=left)
        order.append(name)
        credits.give(10)

    threads = []
    for name, left in (("large", 900), ("small", 5), ("middle", 50)):
        threads.append(threading.Thread(target=wait, args=(name, left)))
        threads[-1].start()
        while len(credits._waiting) < len(threads):
            time.sleep(0.001)
        now[0] += 0.1
    credits.give(10)
    for thread in threads:
        thread.join()
    assert order == ["small", "middle", "large"]
    credits.take(10, left=10)
    threads = [threading.Thread(target=wait, args=(name, left)) for name, left in (("old", 900), ("new", 5))]
    threads[0].start()
    while not credits._waiting:
        time.sleep(0.001)
    now[0] += 3.0
    threads[1].start()
    while len(credits._waiting) < 2:
        time.sleep(0.001)
    credits.give(10)
    for thread in threads:
        thread.join()
    assert order[3:] == ["old", "new"]
    assert credits.in_flight == 0


def test_a_turn_that_nobody_wants_any_more_is_given_up():
    credits = Credits(10)
    credits.take(10, left=10)

    def stopped():
        raise Stopped

    with pytest.raises(Stopped):
        credits.take(5, left=5, check=stopped)
    assert (credits._waiting, credits.in_flight) == ([], 10)
    assert credits.take(0, left=0) == 0
    assert Credits(10).take(99, left=99) == 10


def test_tiers_and_links_are_paid_for_one_after_the_other():
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    assert pace.spend(("tier", "link a"), 100, 50) == 0.0
    assert pace.spend(("tier", "link b"), 100, 50) == 2.0
    assert pace.spend(("link a",), 100, 50) == 2.0
    assert pace.spend(("tier",), 100, None) == 0.0
    now[0] = 9.0
    assert pace.spend(("tier",), 100, 50) == 0.0
