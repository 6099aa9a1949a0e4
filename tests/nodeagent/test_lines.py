"""The order in which copies leave when whose they are matters."""

from kvcore.blocks import BlockState, Tier
from nodeagent.watermarks import Queue
from tests.nodeagent.rig import Rig, blocks


def make(tmp_path):
    rig = Rig(tmp_path, {"hbm": blocks(60)})
    keys = {name: rig.lease(tenant=name) for name in "abc"}
    rig.allow(a={"hbm": (20, 4)}, b={"hbm": (20, 20)})
    for name, key in keys.items():
        for i in range(3):
            rig.now += 600
            rig.lease(ns=key.ns, tenant=name)
            rig.ask(keys[name], [i])
    return rig, keys


def who(victims):
    return [run.space.tenant for run, _ in victims]


def test_lines_that_would_fall_below_their_floor_are_passed_over(tmp_path):
    rig, _ = make(tmp_path)
    queue = rig.pool.queues[Tier.HBM]
    assert who(queue.pop(10**9)) == ["a", "a", "c", "c", "c"]
    assert who(queue.pop(10**9, asker="b")) == ["a", "b", "b", "b"]  # its own floor does not protect it from itself
    rig.close()


def test_what_was_not_taken_stays_in_order(tmp_path):
    rig, _ = make(tmp_path)
    queue = rig.pool.queues[Tier.HBM]
    before = len(queue)
    assert who(queue.pop(1)) == ["a"]
    assert len(queue) == before - 1
    assert who(queue.own("b", 1)) == ["b"]
    assert who(queue.own("nobody", 1)) == []
    rig.close()


def test_copies_in_use_are_passed_over_and_come_back(tmp_path):
    rig, _ = make(tmp_path)
    queue = rig.pool.queues[Tier.HBM]
    copies = [run.copies[Tier.HBM] for run in rig.pool.runs.values()]
    for copy in copies:
        copy.acquire()
    assert list(queue.pop(10**9)) == []
    assert list(queue.own("a", 10**9)) == []
    for copy in copies:
        copy.release()
    assert len(list(queue.own("a", 10**9))) == 3
    rig.close()


def test_one_queue_gives_what_is_good_and_forgets_what_left(tmp_path):
    rig, _ = make(tmp_path)
    queue = Queue(Tier.HBM, rig.pool.policy)
    runs = list(rig.pool.runs.values())
    for run in runs:
        queue.push(run, run.copies[Tier.HBM])
    rig.pool.drop(runs[0], Tier.HBM, "value")
    busy = []
    got = []
    while (best := queue.best(busy)) is not None:
        got.append(best[1])
    assert set(got) == set(runs[1:])
    assert all(run.copies[Tier.HBM].state is BlockState.COMMITTED for run in got)
    rig.close()
