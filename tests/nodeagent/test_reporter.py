"""An agent says when it begins, when something changed and when it ends, in few lines without secrets."""

import time

from kvcore.blocks import Tier
from nodeagent.config import TierConfig
from nodeagent.reporter import AGAIN_SECONDS, COUNTED_SECONDS, Reporter, begun, ended
from tests.nodeagent.conftest import config, eventually
from tests.nodeagent.test_agent import drive, results


def test_the_first_and_the_last_line():
    made = config({"hbm": TierConfig(capacity_bytes=64 * 2**20), "dram": TierConfig(capacity_bytes=3 * 2**29)})
    made = config(made.tiers, name="fra-p1", node="0190", console_url="https://user:s3cret@console.example:8443/x")
    assert begun(made) == (
        "fra-p1 begins: node 0190, agent 0.1.0, profile ref-64, listens on 127.0.0.1:1, "
        "console https://console.example:8443, tiers hbm 64 MiB, dram 1.5 GiB"
    )
    assert ended(made, seconds=61.4, why="it was told to") == "fra-p1 ends after 61 s: it was told to"


def test_changes_are_said_once_and_not_more_often_than_they_may(far, joined, running):
    ns, lines = far.namespace(), []
    agent = running(joined()).agent
    eventually(lambda: agent.sender.heard_at and agent.ring.live())
    reporter, now = Reporter(agent, say=lines.append), time.time()
    reporter.look(now)
    assert set(lines) == {"the console answers", "keys of namespaces are leased"}
    lines.clear()
    agent.sender.heard_at = now - 6
    reporter.look(now + 1)
    assert lines == [], "it was said a second ago that the console answers"
    reporter.look(now + AGAIN_SECONDS)
    assert lines[0] == "the console does not answer; what is not acknowledged waits in the outbox"
    lines.clear()
    agent.sender.heard_at = now + 20
    agent.ring.fence(7, ())
    agent.pool.down_until[agent.pool.order[-1]] = now + 25
    agent.sender.halted["reference", 0] = "fenced-boot"
    for second in (20, 21, 22):
        reporter.look(now + second)
    last = agent.pool.order[-1].value
    assert [x for x in lines if "keys" not in x] == [
        "the console answers", "fences up to 7 are applied", f"the tier {last} is down",
        "the console hears source reference/0 no more: fenced-boot",
    ]  # fmt: skip
    lines.clear()
    agent.sender.heard_at = now + 40
    reporter.look(now + 40)
    assert f"the tier {last} is up again" in lines
    assert ns.hex() not in "".join(lines)


def test_refusals_are_counted_and_not_told_one_by_one(far, joined, running):
    ns, lines = far.namespace(), []
    loop = running(joined())
    agent = loop.agent
    results(drive(loop, far, ns, 1))
    reporter, now = Reporter(agent, say=lines.append), time.time()
    for _ in range(3):
        drive(loop, far, ns, 1, ticket=far.ticket(ns, seconds=-5))
        drive(loop, far, far.namespace(), 1, gen=9)
    agent.sender.counts["refused_truncated-frame"] += 2
    agent.sender.rejected["bad-keys"] += 1
    agent.pool.cleared[Tier.SSD] += 4
    agent.ring.unkept += 2
    said = lambda: sorted(x for x in lines if x[0].isdigit())  # noqa: E731
    for second in range(30):
        reporter.look(now + second)
    assert said() == [
        "1 items were refused by the console: bad-keys", "2 messages were refused by the console: truncated-frame",
        "2 times fences could not be written to the journal: they hold, and are not acknowledged",
        "3 requests were not taken: lease-over", "3 requests were not taken: ticket-expired",
        "4 blocks were fenced while this node was away, and are erased: ssd",
    ]  # fmt: skip
    lines.clear()
    agent.sender.rejected["bad-keys"] += 5
    reporter.look(now + 31)
    assert said() == []
    reporter.look(now + COUNTED_SECONDS)
    assert said() == ["5 items were refused by the console: bad-keys"]
