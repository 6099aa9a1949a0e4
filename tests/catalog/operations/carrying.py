"""Far sides that move blocks as agents do: what they announce waits in `outgoing` until somebody delivers it."""

import time

import msgspec

from kvcore.events import Add, Drop, Move
from kvcore.messages import PROTOCOL, Receipt, receipt_hash, seal
from kvcore.moves import MOVES, places_in, stretches
from tests.catalog.ingest.rig import BYTES, TOKENS, keys
from tests.catalog.operations.world import Eraser


class Carrier(Eraser):
    """The agent of one node. `blocks`: tier → (namespace, numbers) that it holds. `full`: it takes nothing."""

    def begin(self):
        self.blocks, self.outgoing, self.offered = {}, [], {}
        return self

    def says(self, item):
        self.outgoing.append(self.sim.frame(item))

    def _receipt(self, command):
        if command.kind not in MOVES:
            return super()._receipt(command)
        outcome, code, detail = getattr(self, f"_{command.kind}")(command.step, command.args)
        at = {"boot": self.sim.boot, "stream": self.sim.stream, "seq": self.sim.seq}
        receipt = Receipt(v=PROTOCOL, outcome=outcome, at=time.time(), prev=self.prev, step=command.step, code=code,
                          kind=command.kind, node=self.node, detail={**detail, "stream_pos": at})  # fmt: skip
        self.prev = receipt_hash(receipt)
        return msgspec.json.encode(seal("receipt", receipt, self.key.sign, self.public))

    def _count(self, numbers):
        return {"runs": len(numbers), "blocks": len(numbers), "bytes": len(numbers) * BYTES * TOKENS}

    def _move(self, step, args):
        ns, numbers = self.blocks.pop(args["tier"], (b"", []))
        if numbers:
            self.blocks[args["to_tier"]] = ns, numbers
            self.says(Move(ns=ns, gen=1, keys=keys(*numbers), from_=args["tier"], to=args["to_tier"]))
        return "done", "", {**self._count(numbers), "refused": {}, "pinned": 0}

    def _offer(self, step, args):
        ns, numbers = self.blocks.get(args["tier"], (b"", []))
        spared, numbers = (len(numbers), []) if ns.hex() in args["spare"] else (0, numbers)
        self.offered[step] = args["tier"], ns, list(numbers)
        return "done", "", {**self._count(numbers), "pinned": 0, "spared": spared}

    def _take(self, step, args):
        source = next(side for side in self.others if side.node == args["party"]["node"])
        _, ns, numbers = source.offered[args["offer"]]
        if self.mood == "full":
            left = stretches(range(len(numbers)))
            return "partial", "target-full", {**self._count([]), "left": left, "refused": {"target-full": len(numbers)}}
        self.blocks[args["tier"]] = ns, numbers
        self.says(
            Add(ns=ns, gen=1, keys=keys(*numbers), tier=args["tier"], tokens=TOKENS, bytes=BYTES * TOKENS,
                from_owner=args["party"]["owner"], step=step)
        )  # fmt: skip
        return "done", "", {**self._count(numbers), "left": [], "refused": {}, "there": 0}

    def _release(self, step, args):
        tier, ns, numbers = self.offered.pop(args["offer"])
        left = places_in(args["left"], len(numbers))
        spared = len(numbers) if ns.hex() in args["spare"] else 0
        gone = [] if args["keep"] or spared else [n for at, n in enumerate(numbers) if at not in left]
        if gone:
            del self.blocks[tier]
            self.says(Drop(ns=ns, gen=1, keys=keys(*gone), tier=tier, reason="hot_move"))
        return "done", "", {**self._count(gone), "gone": 0, "kept": len(numbers) - len(gone), "leased": 0,
                            "spared": spared}  # fmt: skip


def carrier(world, name):
    """A node of the world that moves blocks."""
    side = world.node(name)
    side.__class__ = Carrier
    return side.begin()


def holds(world, side, namespace, *numbers, tier="hbm"):
    """The node has these blocks, and told it."""
    world.hold(side, namespace, *numbers, tier=tier)
    side.blocks[tier] = bytes(namespace.digest), list(numbers)


def deliver(world):
    """What nodes announced reaches the catalog."""
    for side in world.nodes:
        while side.outgoing:
            assert world.rig.send(side.sim.node, side.outgoing.pop(0)).rejected == []


def where(world, namespace):
    """(node, tier) → (blocks, states of theirs that are not plain) of the namespace, as the catalog has it."""
    found = {}
    memory = world.rig.folder.memory
    for (source, tier), owner in memory.owner_of.items():
        for keyspace, (blocks, _, _) in memory.holding.get(owner, {}).items():
            if memory.keyspaces[keyspace].digest == bytes(namespace.digest) and blocks:
                states = {s for (o, _), by in memory.states.items() if o == owner for s in by}
                found[str(memory.sources[source].node_id), tier] = blocks, states
    return found
