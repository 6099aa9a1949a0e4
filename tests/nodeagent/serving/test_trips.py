"""What a node says of blocks that its plan promised and that did not come: each token with what kept it away."""

import msgspec
import pytest

from kvcore.lost_hits import CAUSES
from nodeagent.serving.words import Range
from tests.nodeagent.serving.test_road_faults import spoilt


def local(order, node, blocks):
    """The order with a plan that counts on blocks of the node itself."""
    plan = [Range(from_block=0, to_block=blocks, source="local", node=node.node, tier="hbm")]
    return msgspec.structs.replace(order, plan=plan)


def said(outcome):
    assert {one["cause"] for one in outcome["short"]} <= {cause.value for cause in CAUSES}
    return [(one["cause"], one["tokens"]) for one in outcome["short"]]


def test_what_came_as_planned_is_not_short(fleet):
    a, x = fleet.add("a", "x")
    fleet.serve(x, [1, 2], readable=0)
    o = fleet.serve(a, [1, 2, 3], giver=(x, 0, 64), readable=0).outcome
    assert (o["hit_tokens"], said(o)) == (1024, [])
    assert said(fleet.send(a, local(fleet.order(a, [1, 2, 3]), a, 64)).outcome) == []
    assert said(fleet.serve(a, [7, 8], readable=0).outcome) == []  # nothing was planned


def test_what_was_counted_on_and_has_gone_was_evicted(fleet):
    (a,) = fleet.add("a")
    fleet.serve(a, [1], readable=0)
    o = fleet.send(a, local(fleet.order(a, [1, 2, 3]), a, 64)).outcome
    assert (o["hit_tokens"], said(o)) == (512, [("evicted", 512)])


def test_the_block_of_the_last_token_is_nobodys_loss(fleet):
    (a,) = fleet.add("a")
    o = fleet.send(a, local(fleet.order(a, [1, 2]), a, 64)).outcome
    assert said(o) == [("evicted", 1008)]


@pytest.mark.parametrize(("kind", "cause"), [("forged", "target-refused"), ("expired", "target-refused")])
def test_a_ticket_that_is_refused_is_the_targets_refusal(fleet, kind, cause):
    a, x = fleet.add("a", "x")
    fleet.serve(x, [1, 2], readable=0)
    o = fleet.serve(a, [1, 2, 3], giver=(x, 0, 64), tickets={"x": spoilt(kind, fleet, a)}, readable=0).outcome
    assert (o["hit_tokens"], said(o)) == (0, [(cause, 1024)])


def test_a_giver_that_has_gone_is_a_timeout_and_one_that_has_nothing_an_eviction(fleet):
    (a,) = fleet.add("a")
    (x,) = fleet.add("x", process=True)
    fleet.serve(x, [1], readable=0)
    assert said(fleet.serve(a, [5, 6, 7], giver=(x, 0, 64), readable=0).outcome) == [("evicted", 1024)]
    order = fleet.order(a, [1, 3], giver=(x, 0, 32), readable=0)
    x.kill()
    assert said(fleet.send(a, order).outcome) == [("timeout", 512)]


def test_a_limit_on_what_may_be_on_its_way_is_a_rate_limit_and_all_of_the_gap(fleet):
    (x,) = fleet.add("x")
    (a,) = fleet.add("a", fetch_blocks=40)
    fleet.serve(x, [1, 2, 3], readable=0)
    lost = 0
    for i in range(6):
        o = fleet.serve(a, [1, 2, 3, 100 + i], giver=(x, 0, 96), readable=0).outcome
        assert o["hit_tokens"] + o["computed_tokens"] == 2048
        assert said(o) == [("rate-limit", 96 * 16 - o["hit_tokens"])]
        assert list(o["fell_back"]) == ["rate-limited"]
        lost += 96 * 16 - o["hit_tokens"]
    assert lost == 6 * 1536
    fleet.serve(x, [50], readable=0)
    assert said(fleet.serve(a, [50, 51], giver=(x, 0, 32), readable=0).outcome) == []  # as many as may be


def test_the_one_who_computes_says_what_broke_its_plan(fleet):
    p, d, x = fleet.add("p", "d", "x")
    fleet.serve(x, [1, 2, 3], readable=0)
    o = fleet.serve(
        d, [1, 2, 3, 4], prefill=p, readable=0, giver=(x, 0, 96), tickets={"x": spoilt("forged", fleet, d)}
    ).outcome  # fmt: skip
    assert (o["hit_tokens"], said(o)) == (0, [("target-refused", 96 * 16)])
