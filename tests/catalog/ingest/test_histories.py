"""Random histories through a bad network: whatever is lost, doubled, late or killed, the catalog ends equal to the
sources, and no row ever calls a source exact while a gap is open."""

import random

import pytest

from kvcore.events import Clear, Drop, Gap, Move
from kvcore.messages import Answer
from tests.catalog.ingest.rig import Rig, Sim, add, keys, plant_namespace, plant_node


class Link:
    """An agent's sender, in miniature: go back N, inventories when asked, over a road that loses and repeats."""

    def __init__(self, rig: Rig, sim: Sim, rng: random.Random) -> None:
        self.rig, self.sim, self.rng = rig, sim, rng
        self.next = 0
        self.owes = False
        self.late: list = []
        self.seen: list[tuple[str, str, int]] = []
        self.life = (sim.boot, sim.stream)

    def messages(self) -> list:
        """What arrives in the next batch."""
        rng, sim, out = self.rng, self.sim, []
        if self.owes:
            out += sim.inventory(pages=rng.choice((1, 1, 3)))
            if rng.random() < 0.2:
                out.pop(rng.randrange(len(out)))
            self.owes = False
            self.next = sim.seq + 1
        while self.next <= sim.seq:
            if (frame := sim.frames.get(self.next)) is not None:
                roll = rng.random()
                if roll < 0.1:
                    self.late.append(frame)
                elif roll > 0.05:
                    out += [frame] * (2 if roll > 0.9 else 1)
            self.next += 1
        if self.late and rng.random() < 0.5:
            out.append(self.late.pop(rng.randrange(len(self.late))))
        if rng.random() < 0.1:
            rng.shuffle(out)
        return out

    def answered(self, answer: object) -> None:
        if not isinstance(answer, Answer):
            return
        if answer.inventory or answer.state == "differs":
            self.owes = True
        if answer.state == "gap" and not self.owes:
            if answer.expect_seq in self.sim.frames:
                self.next = min(self.next, answer.expect_seq)
            else:
                self.owes = True


def act(rng: random.Random, sim: Sim, namespaces: list[bytes], top: list[int]) -> None:
    """Something happens in the source, and becomes a frame."""
    ns, roll = rng.choice(namespaces), rng.random()
    mine = [p for p in sim.held if p.ns == ns]
    if roll < 0.02:
        sim.restart()
        sim.frame()
    elif roll < 0.04:
        sim.new_stream()
        sim.frame(add(ns, 1 + rng.randrange(40), tier="hbm"))
    elif roll < 0.06:
        sim.frame(Clear(tiers=(rng.choice(("hbm", "dram")),)))
    elif roll < 0.07:
        sim.frame(Gap(since=1.0, reason="ring"))
    elif roll < 0.25 and mine:
        p = rng.choice(mine)
        sim.frame(Drop(ns=ns, gen=p.gen, keys=p.key, tier=p.tier, reason="value"))
    elif roll < 0.4 and (warm := [p for p in mine if p.tier == "hbm"]):
        p = rng.choice(warm)
        sim.frame(Move(ns=ns, gen=p.gen, keys=p.key, from_="hbm", to=rng.choice(("dram", "ssd"))))
    else:
        if rng.random() < 0.7:
            top[0] += 5
            chain = range(top[0], top[0] + 1 + rng.randrange(5))
        else:
            at = 1 + rng.randrange(max(1, top[0]))
            chain = range(at, at + 1 + rng.randrange(5))
        sim.frame(add(ns, *chain, tier=rng.choice(("hbm", "dram")), parent=chain[0] - 1))


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(i, marks=pytest.mark.slow) for i in range(3, 20))])
def test_the_catalog_ends_equal_to_the_sources(planted, seed):
    rng = random.Random(seed)
    namespaces = [plant_namespace(planted, "a"), plant_namespace(planted, "b"), bytes(range(1, 33))]
    sims = [Sim(plant_node(planted, f"n{i}", tiers=("hbm", "dram", "ssd"))) for i in range(3)]
    rig = Rig(defer=rng.choice((0.0, 0.05, 5.0)))
    links = [Link(rig, sim, rng) for sim in sims]
    top = [1]
    for sim in sims:
        sim.frame()
    for step in range(70):
        for sim in sims:
            for _ in range(rng.randrange(4)):
                act(rng, sim, namespaces, top)
        if step % 25 == 24:
            rig.open()  # the writer before is deposed unannounced
        for link in links:
            if link.life != (link.sim.boot, link.sim.stream):
                link.life, link.next = (link.sim.boot, link.sim.stream), 0
        exchange(rig, links)
        check_states(rig, links)
    for _ in range(40):
        for link in links:
            link.rng = random.Random(0)
            link.rng.random = lambda: 0.5  # the road is good now
            link.late = []
        rig.now += 1.0
        exchange(rig, links)
        for link, answer in zip(links, rig.batch(*((sim.node, sim.digest()) for sim in sims)), strict=True):
            link.answered(answer)
    for sim in sims:
        assert rig.holdings(sim.node) == sim.sums()
        assert rig.state(sim.node) == ("exact", "")
    rig.close()


def exchange(rig: Rig, links: list[Link]) -> None:
    batch = [(link, m) for link in links for m in link.messages()]
    for (link, m), answer in zip(batch, rig.batch(*((link.sim.node, m) for link, m in batch), step=0.1), strict=True):
        if hasattr(m, "seq") and not hasattr(m, "inventory"):
            link.seen.append((m.boot, m.stream, m.seq))
        link.answered(answer)


def check_states(rig: Rig, links: list[Link]) -> None:
    """No row says exact while a frame of the life it follows was seen and is not folded."""
    for link in links:
        rows = rig.rows("SELECT state, boot, stream, seq FROM catalog_source WHERE node_id = %s", link.sim.node)
        for state, boot, stream, seq in rows:
            ahead = [s for b, t, s in link.seen if (b, t) == (boot, stream) and s > seq]
            assert not (state == "exact" and ahead), (state, seq, ahead)


def test_keys_are_distinct():
    assert len({keys(i) for i in range(1000)}) == 1000
