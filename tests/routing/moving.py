"""Moves on a real writer, under readers of a replica that follows its ledger: where each saw each block."""

import random
import sys
import threading
import uuid
from datetime import UTC, datetime

from django.db import connection, connections

from catalog.models import Operation, OperationTarget, Step
from kvcore.events import Drop
from routing.services import fingerprints
from routing.view import Space
from tests.catalog.ingest.rig import Sim, add, keys, plant_namespace, plant_node

PER_FRAME = 10


def plant(cx, row) -> None:
    """The row, past all triggers."""
    fields = [f for f in row._meta.concrete_fields if f.column]
    values = [f.get_db_prep_save(getattr(row, f.attname), connection) for f in fields]
    names = ", ".join(f.column for f in fields)
    cx.execute(f"INSERT INTO {row._meta.db_table} ({names}) VALUES ({', '.join(['%s'] * len(fields))})", values)


class Mover:
    """Nodes between which single blocks are moved, each block at one of them."""

    def __init__(self, planted, rig, *, nodes: int = 3, blocks: int = 60, seed: int = 0) -> None:
        self.planted, self.rig, self.rng = planted, rig, random.Random(seed)
        self.ns = plant_namespace(planted, "moved")
        self.sims = [Sim(plant_node(planted, f"n{i}")) for i in range(nodes)]
        self.at = {number: number % nodes for number in range(1, blocks + 1)}
        self.gone: list[tuple[int, list[int]]] = []
        self.moving: list[int] = []
        self.steps: dict[tuple[int, int], str] = {}
        rig.tick(1.1)
        for place, sim in enumerate(self.sims):
            mine = [n for n, where in self.at.items() if where == place]
            rig.send(sim.node, sim.frame(*[add(self.ns, n) for n in mine]))
        self.operation = self.open()

    def open(self) -> uuid.UUID:
        """An operation with a step for each pair of places, as the engine keeps them."""
        operation, tenant, now = uuid.uuid4(), uuid.uuid4(), datetime.now(UTC)
        asked = Operation(
            id=operation, tenant_id=tenant, kind="migration", selector={}, plan_hash=b"", risk="R0", requester={},
            deadline=now, not_after=now, order_event=1, created_at=now, due_at=now,
        )  # fmt: skip
        plant(self.planted, asked)
        target = OperationTarget(tenant_id=tenant, operation=operation, digest=self.ns, min_gen=2, fence_seq=0)
        plant(self.planted, target)
        for source, a in enumerate(self.sims):
            for target, b in enumerate(self.sims):
                if a is b:
                    continue
                step = uuid.uuid4()
                party = {"node": str(a.node), "source": "ref", "dp_rank": 0, "tier": "hbm", "owner": 100 + source}
                taking = Step(
                    id=step, operation=operation, tenant_id=tenant, intent_generation=1, node=b.node, source="ref",
                    tier="hbm", owner=100 + target, kind="take", args={"party": party}, created_at=now, due_at=now,
                )  # fmt: skip
                plant(self.planted, taking)
                self.steps[source, target] = str(step)
        return operation

    def move(self) -> int:
        """One frame of one destination: it announces what it took of another; how many blocks that were."""
        source, target = self.rng.sample(range(len(self.sims)), 2)
        held = [n for n, where in self.at.items() if where == source]
        chosen = self.rng.sample(held, min(PER_FRAME, len(held)))
        if not chosen:
            return 0
        self.moving = chosen
        more = {"from_owner": 100 + source, "step": self.steps[source, target]}
        sim = self.sims[target]
        answer = self.rig.send(sim.node, sim.frame(*[add(self.ns, n, **more) for n in chosen]))
        assert answer.rejected == []
        for n in chosen:
            self.at[n] = target
        self.gone.append((source, chosen))
        return len(chosen)

    def release(self) -> None:
        """The sources let go what was taken, each in a frame of its own; some say again before what they hold."""
        for source, numbers in self.gone:
            sim = self.sims[source]
            if self.rng.random() < 0.2:
                self.rig.send(sim.node, sim.frame(*[add(self.ns, n) for n in numbers]))
            still = [n for n in numbers if self.at[n] != source]
            drop = [Drop(ns=self.ns, gen=1, keys=keys(n), tier="hbm", reason="hot_move") for n in still]
            self.rig.send(sim.node, sim.frame(*drop))
        self.gone.clear()

    def run(self, moves: int, reader, readers: int = 4) -> list[int]:
        """So many moves under readers; how often each looked. Fails if one saw a block twice or not at all.

        The replica follows in a thread of its own, as it does in a router: readers look while it takes in a row.
        """
        stop, wrong, looks = threading.Event(), list[object](), [0] * readers
        replica, interval = reader(), sys.getswitchinterval()

        def follow() -> None:
            try:
                while not stop.is_set():
                    replica.turn()
            except Exception as e:
                wrong.append(e)
            finally:
                connections.close_all()

        def look(number: int) -> None:
            rng, every = random.Random(number), sorted(self.at)
            while not stop.is_set() and not wrong:
                for n in [*self.moving, *rng.sample(every, 10)]:
                    found = replica.lookup(Space(self.ns, 1, 0), fingerprints(keys(n)))
                    places = [w.node for _, run in found.runs for w in run]
                    looks[number] += 1
                    if len(places) != 1:
                        wrong.append((n, places))
                stop.wait(0.001)

        threads = [threading.Thread(target=follow), *(threading.Thread(target=look, args=(i,)) for i in range(readers))]
        sys.setswitchinterval(1e-5)  # so that they meet within a row
        for thread in threads:
            thread.start()
        try:
            done = 0
            while done < moves and not wrong:
                done += self.move()
                if len(self.gone) >= 3 or done >= moves:
                    self.release()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)
        assert wrong == []
        return looks
