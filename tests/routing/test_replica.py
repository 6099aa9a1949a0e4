"""The replica against the writer: after every batch it answers what the sources hold, whatever happened in between."""

import random
import threading
import time
from datetime import UTC, datetime

import pytest

from kvconsole.infra import sql
from kvcore.events import Clear, Drop, Move, State
from kvcore.keys import KEY_BYTES
from routing.forms import best
from routing.index import DictIndex
from routing.models import IndexLease
from routing.replica import Replica
from routing.selectors import fence_in_force
from routing.services import fingerprints
from routing.view import Space
from tests.catalog.ingest.rig import Sim, add, keys, plant_namespace, plant_node

pytestmark = pytest.mark.django_db(transaction=True)


class Hand(Replica):
    """A replica that is turned by hand."""

    def open(self):
        self._connection = sql.connect("operator")
        self._load()
        return self

    def turn(self):
        self._turn()
        return self

    def shut(self):
        if self._connection:
            self._connection.close()


@pytest.fixture(params=[DictIndex, best], ids=["dict", "packed"])
def hand(request):
    made = []

    def make(**kw):
        made.append(Hand(role="operator", make=request.param, **kw))
        return made[-1].open()

    yield make
    for replica in made:
        replica.shut()


def depths(replica, ns, numbers, gen=1):
    """(node, tier) → depth of what the replica answers."""
    found = replica.lookup(Space(ns, gen, 0), fingerprints(keys(*numbers)))
    return {(w.node, w.tier): depth for depth, run in found.runs for w in run}


def truth(sims, ns, numbers, gen=1):
    """The same from what the sources hold."""
    wanted = [keys(n) for n in numbers]
    out = {}
    for sim in sims:
        for tier in {p.tier for p in sim.held}:
            have = {
                p.key: state for p, state in sim.held.items() if (p.ns, p.gen, p.group, p.tier) == (ns, gen, 0, tier)
            }
            depth = 0
            while depth < len(wanted) and have.get(wanted[depth]) in ("committed", "referenced"):
                depth += 1
            if depth:
                out[sim.node, tier] = depth
    return out


def some_item(rng, ns):
    start = rng.randrange(1, 60)
    chain = list(range(start, min(64, start + rng.randrange(1, 20))))
    tier, other = rng.sample(["hbm", "dram", "ssd"], 2)
    match rng.randrange(8):
        case 0 | 1 | 2:
            return add(ns, *range(1, rng.randrange(2, 64)), tier=tier)
        case 3:
            return add(ns, *chain, tier=tier, parent=start - 1 if start > 1 else None)
        case 4:
            return Drop(ns=ns, gen=1, keys=keys(*rng.sample(chain, len(chain))), tier=tier, reason="value")
        case 5:
            return Move(ns=ns, gen=1, keys=keys(*chain), from_=tier, to=other)
        case 6:
            return State(ns=ns, gen=1, keys=keys(*chain), tier=tier, state=rng.choice(["evicting", "quarantined"]))
        case _:
            return Clear(tiers=(tier,))


@pytest.mark.parametrize("seed", range(3))
def test_any_history_answers_what_the_sources_hold(planted, rig, hand, seed):
    rng = random.Random(seed)
    ns = plant_namespace(planted, "repo")
    sims = [Sim(plant_node(planted, f"n{i}")) for i in range(3)]
    rig.tick(1.1)
    follower = hand()
    for round_ in range(25):
        for sim in sims:
            if rng.random() < 0.08:
                sim.restart()
            rig.send(sim.node, sim.frame(*[some_item(rng, ns) for _ in range(rng.randrange(4))]))
        follower.turn()
        for numbers in (range(1, 64), range(1, 20), [1, 2, 3, 40, 41]):
            assert depths(follower, ns, list(numbers)) == truth(sims, ns, list(numbers)), round_
        if round_ % 8 == 7:  # one that comes later and reads rows and ledger
            late = hand()
            assert depths(late, ns, list(range(1, 64))) == truth(sims, ns, list(range(1, 64)))
    assert follower.loads == 1


def test_rows_that_lag_are_made_up_from_the_ledger(planted, rig, hand):
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig.writer.close()
    rig.defer = 3600.0
    rig.open()
    rig.tick(1.1)
    rig.send(sim.node, sim.frame(add(ns, *range(1, 400))))
    rig.send(sim.node, sim.frame(Drop(ns=ns, gen=1, keys=keys(300), tier="hbm", reason="ttl")))
    assert rig.rows("SELECT count(*)::int FROM catalog_placement") == [(0,)]
    assert depths(hand(), ns, list(range(1, 400))) == {(sim.node, "hbm"): 299}


def test_a_gap_in_the_ledger_is_a_new_load_while_the_old_view_serves(planted, rig, hand):
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    rig.send(sim.node, sim.frame(add(ns, 1, 2)))
    replica = hand()
    rig.send(sim.node, sim.frame(add(ns, 3, parent=2)))
    rig.send(sim.node, sim.frame(add(ns, 4, parent=3)))
    rig.writer.store.commit(rig.folder.memory.apply([]), flush=True)
    planted.execute("DELETE FROM catalog_ledger WHERE seq <= %s", (max(replica.view.at.values()) + 1,))
    served = []
    keep = replica._rows

    def rows(cx, view):
        served.append((replica.mode, depths(replica, ns, [1, 2, 3, 4])))
        return keep(cx, view)

    replica._rows = rows
    replica.turn()
    assert served == [("rebuilding", {(sim.node, "hbm"): 2})]
    assert replica.loads == 2
    assert depths(replica, ns, [1, 2, 3, 4]) == {(sim.node, "hbm"): 4}
    assert replica.mode == "live"


def fence(cx, ns, min_gen, seq):
    cx.execute(
        "INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at)"
        " SELECT %s, tenant_id, id, digest, %s, now() FROM tenants_namespace WHERE digest = %s", (seq, min_gen, ns),
    )  # fmt: skip
    cx.execute("UPDATE tenants_namespace SET min_gen = %s, generation = %s WHERE digest = %s", (min_gen, min_gen, ns))


def test_a_fence_holds_before_it_is_acknowledged_and_for_ever(planted, rig, hand):
    ns, other = plant_namespace(planted, "a"), plant_namespace(planted, "b")
    sim = Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    rig.send(sim.node, sim.frame(add(ns, 1, 2), add(other, 1, 2)))
    replica = hand()
    assert depths(replica, ns, [1, 2])
    seq = (planted.execute("SELECT coalesce(max(seq), 0) FROM tenants_fenceentry").fetchone()[0]) + 1
    fence(planted, ns, 2, seq)
    now = datetime.now(UTC)
    assert not fence_in_force(seq=seq, now=now)
    replica.turn()
    assert fence_in_force(seq=seq, now=now)
    assert depths(replica, ns, [1, 2]) == {}
    assert depths(replica, other, [1, 2])
    rig.tick(1.1)
    rig.send(sim.node, sim.frame(add(ns, 1, 2, 3), add(ns, 1, gen=2)))
    replica.turn()
    assert depths(replica, ns, [1, 2, 3]) == {}
    assert depths(replica, ns, [1], gen=2)
    assert depths(hand(), ns, [1, 2, 3]) == {}


def test_a_lost_node_is_not_routable_and_comes_back_listed(planted, rig, hand):
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    rig.send(sim.node, sim.frame(add(ns, *range(1, 200))))
    replica = hand()
    planted.execute("UPDATE catalog_node SET state = 'lost' WHERE id = %s", (sim.node,))
    rig.tick(1.1)
    rig.tick(1.1)
    replica.turn()
    assert depths(replica, ns, [1, 2]) == {}


def test_without_a_lease_nothing_is_answered(planted, rig, hand):
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    rig.send(sim.node, sim.frame(add(ns, 1)))
    replica = hand()
    lease = IndexLease.objects.get()
    assert lease.mode == "live"
    assert lease.until > datetime.now(UTC)
    replica.leased_until = time.monotonic() - 0.001
    found = replica.lookup(Space(ns, 1, 0), fingerprints(keys(1)))
    assert (found.runs, found.mode) == ([], "recompute")
    replica.renewed_at = 0
    replica.turn()
    assert depths(replica, ns, [1])


def test_the_memory_cap_evicts_whole_keyspaces_and_says_so(planted, rig, hand):
    spaces = [plant_namespace(planted, f"r{i}") for i in range(3)]
    sim = Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    for ns in spaces:
        rig.send(sim.node, sim.frame(add(ns, *range(1, 101))))
    replica = hand(keys_max=250)
    assert replica.mode == "partial"
    assert replica.view.keys <= 250
    answered = [bool(depths(replica, ns, [1, 2])) for ns in spaces]
    assert sum(answered) == 2
    kept = spaces[answered.index(True)]
    depths(replica, kept, [1])
    rig.send(sim.node, sim.frame(add(kept, *range(200, 300))))
    replica.turn()
    assert replica.view.keys <= 250
    assert depths(replica, kept, [1, 2])


def test_the_thread_follows_wakes_and_survives_what_breaks_it(planted, rig, valkey):
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig.tick(1.1)
    replica = Replica(role="operator")
    assert replica.lookup(Space(ns, 1, 0), fingerprints(keys(1))).mode == "loading"
    replica.start()
    replica.start()
    assert sum(t.name == "routing-replica" for t in threading.enumerate()) == 1
    try:
        assert replica.fresh.wait(20)
        rig.send(sim.node, sim.frame(add(ns, 1)))
        deadline = time.monotonic() + 10
        while not depths(replica, ns, [1]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert depths(replica, ns, [1])
        planted.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kvc-operator'"
            " AND pid <> pg_backend_pid()"
        )
        rig.send(sim.node, sim.frame(add(ns, 2, parent=1)))
        deadline = time.monotonic() + 20
        while depths(replica, ns, [1, 2]).get((sim.node, "hbm")) != 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert depths(replica, ns, [1, 2]) == {(sim.node, "hbm"): 2}
    finally:
        replica.close()


def test_a_fence_is_in_force_within_a_second_though_nobody_is_woken(planted, rig, settings):
    settings.VALKEY_URL = "redis://127.0.0.1:1/0"
    ns = plant_namespace(planted, "a")
    replica = Replica(role="operator")
    replica.start()
    try:
        assert replica.fresh.wait(20)
        late = []
        for seq in range(10, 15):
            time.sleep(0.13)
            fence(planted, ns, seq, seq)
            began = time.monotonic()
            while not fence_in_force(seq=seq, now=datetime.now(UTC)) and time.monotonic() - began < 5:
                time.sleep(0.02)
            late.append(time.monotonic() - began)
        assert sorted(late)[2] < 0.6, late
    finally:
        replica.close()


def test_fingerprints_are_the_first_eight_bytes():
    blob = keys(1, 2)
    assert fingerprints(blob) == blob[:8] + blob[KEY_BYTES : KEY_BYTES + 8]
