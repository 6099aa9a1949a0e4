"""The store's oracle: random histories of frames, folded by the store and by `kvcore.fold`, compared by SQL alone.

A history is made of deliveries again, out of order and with lost replies, new boots, clears, states, moves, drops in
any order and with holes, inventories, unknown parents, sweeps, writers that are deposed, and PostgreSQL killed -9.
"""

import collections
import contextlib
import random
import threading
import uuid
from typing import Any

import psycopg

from catalog import store as store_module
from catalog import store_reads
from catalog.index.steps import Touched, Work, replacement
from catalog.store import Deposed, Store
from kvcore import fold
from kvcore.blocks import VOLATILE
from kvcore.events import Add, Adds, Clear, Drop, Item, Move, State
from kvcore.keys import ROOT, digest_add, pack

TIERS = ("hbm", "dram", "ssd")
TENANT = uuid.UUID("00000000-0000-7000-8000-000000000001")
SPACES = [(bytes([n]) * 32, gen, group) for n, gen, group in ((1, 1, 0), (1, 2, 0), (2, 1, 0), (2, 1, 1))]


class Model:
    """What every source holds, block by block, by the reference fold."""

    def __init__(self) -> None:
        self.cursor: dict[str, fold.Cursor] = collections.defaultdict(fold.Cursor)
        self.held: dict[str, dict[fold.Place, str]] = collections.defaultdict(dict)

    def apply(self, frame: dict[str, Any]) -> fold.Verdict:
        name, held = frame["source"], self.held[frame["source"]]
        self.cursor[name], verdict = self.cursor[name].advance(frame["boot"], frame["stream"], frame["seq"])
        if isinstance(verdict, fold.Reset):
            fold.apply(held, fold.reset(held)[0])
        if isinstance(verdict, fold.Next | fold.Reset):
            for item in frame["items"]:
                fold.apply(held, fold.fold(held, item)[0])
        return verdict

    def listed(self, inventory: dict[str, Any]) -> fold.Verdict:
        name, before = inventory["source"], self.held[inventory["source"]]
        self.cursor[name], verdict = self.cursor[name].listed(inventory["boot"], inventory["stream"], inventory["seq"])
        if isinstance(verdict, fold.Duplicate):
            return verdict
        if isinstance(verdict, fold.Reset):
            fold.apply(before, fold.reset(before)[0])
        now: dict[fold.Place, str] = {}
        for item in inventory["items"]:
            for place in fold._places(item, item.tier):
                state = before.get(place)
                now[place] = state if state in fold.HELD else "committed"
        self.held[name] = now
        return verdict

    def facts(self) -> set[tuple[Any, ...]]:
        return {(name, p.tier, p.ns, p.gen, p.group, p.key[:16], state)
                for name, held in self.held.items() for p, state in held.items()}  # fmt: skip


class Agent:
    """A source with a memory of its own; it keeps every frame it sent."""

    def __init__(self, name: str, rnd: random.Random, world: list[tuple[tuple[bytes, int, int], list[bytes]]]) -> None:
        self.name, self.rnd, self.world = name, rnd, world
        self.sent: list[dict[str, Any]] = []
        self.mine: dict[fold.Place, str] = {}
        self.boots = 0
        self.reboot()

    def reboot(self) -> None:
        self.boots, self.seq = self.boots + 1, 0
        self.mine = {p: s for p, s in self.mine.items() if p.tier not in VOLATILE}

    def frame(self) -> dict[str, Any]:
        items = []
        for _ in range(self.rnd.randint(1, 6)):
            if item := self.item():
                fold.apply(self.mine, fold.fold(self.mine, item)[0])
                items.append(item)
        boot = f"{self.name}.{self.boots}"
        frame = {"source": self.name, "boot": boot, "stream": boot + "/s", "seq": self.seq, "items": items}
        self.seq += 1
        self.sent.append(frame)
        return frame

    def item(self) -> Item | None:
        r = self.rnd
        (ns, gen, group), chain = r.choice(self.world)
        start = 0 if r.random() < 0.5 else r.randrange(len(chain))
        part = chain[start : start + r.choice((1, 3, 64, 100, 300))]
        tier = r.choice(TIERS)
        to = r.choice([t for t in TIERS if t != tier])
        kind = r.choices(("add", "drop", "leaf", "move", "state", "clear", "clear_ns", "wrong"),
                         (9, 3, 2, 2, 2, 0.15, 0.15, 0.5))[0]  # fmt: skip
        own = [k for k in chain if fold.Place(tier, ns, gen, group, k) in self.mine]
        if kind == "clear":
            return Clear(tiers=(tier,) if r.random() < 0.5 else TIERS)
        if kind == "clear_ns":
            return Clear(tiers=(tier,), ns=ns, gen_upto=r.choice((None, 1)))
        if kind == "leaf":
            part = own[-r.randint(1, 80) :][::-1]
        elif kind in ("drop", "move", "state"):
            part = [k for k in own if r.random() < r.choice((0.1, 1))]
        if not part:
            return None
        name: dict[str, Any] = {"ns": ns, "gen": gen, "group": group, "keys": pack(part)}
        if kind == "add" and len(part) < 4:
            parents = [chain[i - 1] if i else ROOT for i in map(chain.index, part)]
            return Adds(**name, parents=pack(parents), tier=tier, tokens=16, bytes=64)
        if kind == "add":
            at = chain.index(part[0])
            return Add(**name, parent=chain[at - 1] if at else None, tier=tier, tokens=16, bytes=64)
        if kind == "move":
            return Move(**name, from_=tier, to=to)
        if kind == "state":
            return State(**name, tier=tier, state=r.choice(("referenced", "evicting", "committed", "quarantined")))
        return Drop(**name, tier=tier, reason="watermark")  # "wrong" drops or moves what may not be held

    def inventory(self) -> dict[str, Any]:
        """Everything it holds, as of its last frame."""
        boot, items = f"{self.name}.{self.boots}", []
        for tier in TIERS:
            for (ns, gen, group), chain in self.world:
                own = [k for k in chain if fold.Place(tier, ns, gen, group, k) in self.mine]
                if own:
                    parents = [chain[i - 1] if i else ROOT for i in map(chain.index, own)]
                    items.append(Adds(ns=ns, gen=gen, group=group, keys=pack(own), parents=pack(parents), tier=tier,
                                      tokens=16, bytes=64))  # fmt: skip
        return {"source": self.name, "boot": boot, "stream": boot + "/s", "seq": self.seq - 1, "items": items}


class Road:
    """The shortest pipeline: frames to steps, positions by `kvcore.fold.Cursor`."""

    folds: tuple[type, ...] = (fold.Next, fold.Reset)

    def __init__(self, store: Store) -> None:
        self.store, self.touched = store, Touched()

    def source(self, name: str) -> Any:
        node = uuid.uuid5(TENANT, name)
        return self.store.memory.source(node, name, 0, self.touched, 1.0)

    def keyspace(self, ns: bytes, gen: int, group: int) -> int:
        return self.store.memory.keyspace(ns, gen, group, self.touched, tenant_id=TENANT).id

    def advance(self, row: Any, cursor: fold.Cursor) -> None:
        row.boot, row.stream, row.seq, row.old_boots = cursor.boot, cursor.stream, cursor.seq, cursor.old_boots
        self.touched.sources.add(row.id)

    def judge(self, cursor: fold.Cursor, frame: dict[str, Any]) -> tuple[fold.Cursor, fold.Verdict]:
        advance = cursor.listed if "listing" in frame else cursor.advance
        return advance(frame["boot"], frame["stream"], frame["seq"])

    def steps(self, row: Any, item: Item, tag: int = 0) -> Work:
        if isinstance(item, Clear):
            known = self.store.memory.keyspaces.values()
            of = tuple(k.id for k in known
                       if k.digest == item.ns and (item.gen_upto is None or k.generation <= item.gen_upto))  # fmt: skip
            return Work("clear", row.id, tiers=item.tiers, keyspaces=None if item.ns is None else of)
        ks = self.keyspace(item.ns, item.gen, item.group)
        match item:
            case Add():
                return Work("add", row.id, item.tier, ks, item.keys, item.parent, tag=tag)
            case Adds():
                return Work("adds", row.id, item.tier, ks, item.keys, parents=item.parents, tag=tag)
            case Move():
                return Work("move", row.id, item.from_, ks, item.keys, to=item.to, tag=tag)
            case State():
                return Work("state", row.id, item.tier, ks, item.keys, state=item.state, tag=tag)
            case Drop():
                return Work("drop", row.id, item.tier, ks, item.keys, reason=item.reason, tag=tag)
        raise AssertionError(item)

    def frames(self, frames: list[dict[str, Any]]) -> list[fold.Verdict]:
        """The frames are folded; `commit` makes them durable."""
        work, verdicts = [], []
        for frame in frames:
            row = self.source(frame["source"])
            cursor = fold.Cursor(row.boot, row.stream, row.seq, row.old_boots)
            inventory = "listing" in frame
            cursor, verdict = self.judge(cursor, frame)
            verdicts.append(verdict)
            if not isinstance(verdict, self.folds):
                continue
            self.advance(row, cursor)
            if isinstance(verdict, fold.Reset):
                work.append(Work("reset", row.id))
            steps = [self.steps(row, item) for item in frame["items"]]
            work += replacement(row.id, steps) if inventory else steps
        self.merge(self.store.memory.apply(work))
        return verdicts

    def merge(self, touched: Touched) -> None:
        for name in ("sources", "keyspaces", "owners"):
            getattr(touched, name).update(getattr(self.touched, name))
        self.touched = touched

    def commit(self, **options: Any) -> None:
        touched, self.touched = self.touched, Touched()
        self.store.commit(touched, **options)


def world(rnd: random.Random, chains: int = 12) -> list[tuple[tuple[bytes, int, int], list[bytes]]]:
    """Chains in some keyspaces that branch off each other."""
    out: list[tuple[tuple[bytes, int, int], list[bytes]]] = []
    for _ in range(chains):
        space = rnd.choice(SPACES)
        base = rnd.choice([chain for s, chain in out if s == space] or [[]])
        base = base[: rnd.randrange(len(base) + 1)] if base else []
        out.append((space, base + [rnd.randbytes(32) for _ in range(rnd.randint(1, 700))]))
    return out


def lose_reply(store: Store) -> None:
    """The next transaction commits, and its answer never arrives."""
    real = store._send

    def send(prepared: Any) -> None:
        store._send = real  # type: ignore[method-assign]
        real(prepared)
        raise psycopg.OperationalError("reply lost")

    store._send = send  # type: ignore[method-assign]


def check(dsn: str, model: Model, *, store: Store | None = None) -> int:
    """Facts, digests and adoption, read by SQL alone, are those of the model."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = store_reads.exact_facts(connection, wait=False)
        got = {(f.source, f.tier, f.digest, f.generation, f.group, f.key, f.state) for f in rows}
        want = model.facts()
        assert got == want, (len(got - want), len(want - got), next(iter(got ^ want)))
        digest: dict[tuple[Any, ...], tuple[int, int, int]] = collections.defaultdict(lambda: (0, 0, 0))
        for name, tier, ns, gen, group, key, _ in want:
            at = (name, tier, ns, gen, group)
            digest[at] = digest_add(digest[at], key)
        have = {(at[0], at[1], bytes(at[2]), at[3], at[4]): (at[5], at[6] % 2**64, at[7] % 2**64)
                for at in connection.execute("""SELECT s.name, o.tier, k.digest, k.generation, k.cache_group, h.blocks,
                    h.lo, h.hi FROM catalog_holding h JOIN catalog_keyspace k ON k.id = h.keyspace
                    JOIN catalog_owner o ON o.id = h.owner JOIN catalog_source s ON s.id = o.source_id""")}  # fmt: skip
        assert have == dict(digest), "digest"
        alone = connection.execute("""SELECT count(*) FROM catalog_segment c WHERE c.parent IS NOT NULL
            AND NOT EXISTS (SELECT FROM catalog_segment u WHERE u.keyspace = c.keyspace AND u.id = c.up)
            AND EXISTS (SELECT FROM catalog_segment u WHERE u.keyspace = c.keyspace
                        AND position(c.parent IN u.keys) % 16 = 1)""").fetchone()
        assert alone == (0,), "a segment was not adopted"
        if store is not None:
            resident = collections.Counter[int]()
            for row in connection.execute("""SELECT g.family, p.n FROM catalog_placement p JOIN catalog_segment g
                    ON g.keyspace = p.keyspace AND g.id = p.seg JOIN catalog_owner o ON o.id = p.owner
                    WHERE NOT o.retired"""):  # fmt: skip
                resident[row[0]] += row[1]
            while store.idle():
                pass
            assert store.memory.resident == resident, "resident by family"
    return len(want)


def run(postgres: Any, dsn: str, seed: int, steps: int, mode: str) -> dict[str, int]:
    """One history; mode: plain | writer (others take over) | kill (PostgreSQL is killed while batches run)."""
    rnd = random.Random(seed)
    chains, defer = world(rnd), rnd.choice((0, 0.05, 1e9))
    with contextlib.ExitStack() as stack:
        road = Road(stack.enter_context(contextlib.closing(store_module.Store(dsn, defer=defer, grace=0))))
        return history(road, postgres, dsn, rnd, chains, steps, mode, stack)


def history(road: Road, postgres: Any, dsn: str, rnd: random.Random, chains: Any, steps: int, mode: str,
            stack: contextlib.ExitStack) -> dict[str, int]:  # fmt: skip
    """The history itself; stores that it opens are closed by the stack."""
    model = Model()
    agents = [Agent(f"n{i}", rnd, chains) for i in range(4)]
    seen: collections.Counter[str] = collections.Counter()
    again: list[dict[str, Any]] = []
    for step in range(steps):
        frames, again = again + deliveries(rnd, agents, seen), []
        killer = kill_soon(postgres, rnd) if mode == "kill" and rnd.random() < 0.1 else None
        if rnd.random() < 0.05:
            lose_reply(road.store)
            seen["lost"] += 1
        verdicts = road.frames(frames)
        for frame, verdict in zip(frames, verdicts, strict=True):
            said = model.listed(frame) if "listing" in frame else model.apply(frame)
            assert type(said) is type(verdict), (said, verdict)
            seen[type(said).__name__.lower()] += 1
        road.commit()
        if killer:
            killer.join()
            seen["kill"] += 1
        if mode == "writer" and rnd.random() < 0.1:
            road, again = take_over(road, dsn, agents[0], rnd, stack)
            seen["takeover"] += 1
        if rnd.random() < 0.3:
            before = road.store.stats["swept"]
            while road.store.idle():
                pass
            seen["swept"] += road.store.stats["swept"] - before
        if step % 20 == 19 or step == steps - 1:
            road.commit(flush=True)
            seen["facts"] = check(dsn, model, store=road.store)
    road.store.close()
    last = stack.enter_context(contextlib.closing(store_module.Store(dsn)))
    last.commit(Touched(), flush=True)
    check(dsn, model, store=last)
    return dict(seen)


def deliveries(rnd: random.Random, agents: list[Agent], seen: collections.Counter[str]) -> list[dict[str, Any]]:
    """Frames of a short while: new ones, old ones again, some out of order, now and then an inventory."""
    frames: list[dict[str, Any]] = []
    for _ in range(rnd.randint(1, 8)):
        a = rnd.choice(agents)
        if rnd.random() < 0.02:
            a.reboot()
        if rnd.random() < 0.1 and a.sent:
            frames.append(rnd.choice(a.sent))
        elif rnd.random() < 0.05:
            early, late = a.frame(), a.frame()
            frames += [late, early, late]
        elif rnd.random() < 0.05 and a.seq:
            lost = [a.frame() for _ in range(rnd.randint(0, 2))]  # frames that never arrive: the inventory has them
            seen["unsent"] += len(lost)
            frames.append({**a.inventory(), "listing": True})
            seen["inventory"] += 1
        else:
            frames.append(a.frame())
    return frames


def kill_soon(postgres: Any, rnd: random.Random) -> threading.Timer:
    def kill() -> None:
        postgres.kill()
        postgres.start()

    timer = threading.Timer(rnd.random() * 0.01, kill)
    timer.start()
    return timer


def take_over(road: Road, dsn: str, agent: Agent, rnd: random.Random, stack: contextlib.ExitStack
              ) -> tuple[Road, list[dict[str, Any]]]:  # fmt: skip
    """A second writer comes without warning; what the first writes afterwards changes nothing."""
    new = Road(stack.enter_context(contextlib.closing(store_module.Store(dsn, defer=road.store.defer, grace=0))))
    if rnd.random() < 0.5:
        new.commit()
    late = [agent.frame()]
    road.frames(late)
    with contextlib.suppress(Deposed):
        road.commit()
        raise AssertionError("a deposed writer wrote")
    road.store.close()
    return new, late
