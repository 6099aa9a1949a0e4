"""What is on its way is reached by an erase."""

from tests.nodeagent.moving import D, H, filled, network, offer, pair
from tests.nodeagent.ordering import everything

__all__ = ["network", "pair"]


def test_an_erase_takes_what_is_held_for_others_and_what_is_staged(pair):
    a, b = pair
    key = filled(a, b)
    offer(a, D, b, D, everything(key))
    done, detail = a.erase(D, everything(key))
    assert (done.outcome, detail.remaining.blocks) == ("done", 0)
    assert a.all(D) == set()
    run = next(iter(a.pool.runs.values()))
    raw = a.pool.tiers[H].read(run.meta, run.copies[H].place)
    b.desk.staging.put("s", D, run.meta, raw)
    ((_, _, staged),) = b.desk.staging._held.values()
    done, detail = b.erase(D, everything(key))
    assert (done.outcome, detail.blocks) == ("done", run.blocks)
    assert staged == bytes(len(raw))
    assert b.desk.staging.take("s", run.meta.version) is None
