"""Days are the sums of their requests; what may be missing is a gap that says why."""

import random
from datetime import UTC, datetime, timedelta

from catalog.usage import usage_view
from kvcore.events import Gap, Use
from tests.catalog.ingest.rig import BYTES, TOKENS, Rig, Sim, add, plant_namespace, plant_node, plant_tenant


def use(ns, hit, tiers, saved, *, measured=True, request="r"):
    return Use(ns=ns, gen=1, head=None, hit_tokens=hit, tiers=tiers, prompt_tokens=hit + 100, saved_ms=saved,
               measured=measured, request=request)  # fmt: skip


def view(rig, tenant, days=1):
    now = datetime.fromtimestamp(rig.now, UTC)
    start = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return usage_view(tenant=tenant, since=start, until=start + timedelta(days=days), now=now)


def test_a_day_is_the_sum_of_its_requests_and_says_what_is_unknown(planted):
    tenant = plant_tenant(planted)
    ns = plant_namespace(planted, "a", tenant=tenant)
    node = plant_node(planted, "n")
    nobody = view(Rigless(), tenant)
    assert (nobody.complete, nobody.incomplete, nobody.hits) == (False, ["never-counted"], None)
    assert {h.used_bytes for h in nobody.tiers.values()} == {None}
    rnd = random.Random(5)
    rig, sim = Rig(1_790_035_200.0), Sim(node)  # a midnight, UTC: the day is seen whole
    rig.send(node, sim.frame(add(ns, 1, 2, 3)))
    wanted = [0, 0, 0, 0]
    for i in range(50):
        tokens = {t: TOKENS * rnd.randrange(4) for t in ("hbm", "dram")}
        hit, saved = sum(tokens.values()), round(rnd.random() * 50, 3)
        rig.send(node, sim.frame(use(ns, hit, tokens, saved, request=f"r{i}")))
        wanted = [a + b for a, b in zip(wanted, (1, hit, hit // TOKENS * BYTES, round(saved * 1000)), strict=True)]
        if i == 25:
            rig.open()  # another writer in between loses and doubles nothing
    rig.tick(3)
    got = view(rig, tenant)
    assert [got.hits.requests, got.hits.tokens, got.hits.bytes, round(got.hits.saved_prefill_ms * 1000)] == wanted
    lines = {line.tier: line for line in got.days}
    assert set(lines) == {"", "hbm", "dram"}
    for name in ("hit_tokens", "hit_bytes"):
        assert getattr(lines[""], name) == sum(getattr(lines[t], name) for t in ("hbm", "dram"))
    saved = {tier: round(line.saved_prefill_ms * 1000) for tier, line in lines.items()}
    assert saved[""] == saved["hbm"] + saved["dram"]
    assert (got.complete, got.incomplete) == (True, [])
    assert got.tiers["hbm"].used_bytes == 3 * BYTES
    rig.send(node, sim.frame(use(ns, TOKENS, {"hbm": TOKENS}, 1.0, measured=False)))
    assert view(rig, tenant).incomplete == ["unmeasured"]
    rig.send(node, sim.frame(Gap(since=rig.now - 5, reason="ring")))
    assert view(rig, tenant).incomplete == ["engine-events-lost", "unmeasured"]
    for _ in range(12):
        rig.tick(1)
    assert "node-silent" in view(rig, tenant).incomplete
    rig.now += 3600
    assert "writer-away" in view(rig, tenant).incomplete
    assert view(rig, tenant).tiers["hbm"].used_bytes is None
    rig.open()
    rig.tick(1)
    assert "writer-away" in view(rig, tenant).incomplete  # that hour stays unknown
    rig.close()


class Rigless:
    """A time at which no writer ever was."""

    now = 1_790_035_200.0
