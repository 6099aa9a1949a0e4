"""A log in memory, with orders and approvals in it, and a signer over it."""

import json

import msgspec
import rfc8785

from audit.asked import Evidence
from audit.signer import setup
from audit.signer.app import Signer, Tokens
from audit.signer.setup import Files
from audit.signer.state import StateFile
from kvcore import leaf as leaves
from kvcore import proofs
from kvcore.messages import PROTOCOL
from kvcore.receipts import EraseTarget
from kvcore.targets import Bound

NOW = 1_780_000_000.0
NODE, OPERATION, APPROVAL = "019a0000-0000-7000-8000-00000000000a", "op-1", "019a0000-0000-7000-8000-0000000000aa"
ASKER, DECIDER = b"a" * 16, b"d" * 16
TOKENS = Tokens("c" * 40, "l" * 40)
ORIGIN = "console.example/log/eu/1"


class Log:
    """Leaves and bodies; every proof of any size."""

    def __init__(self):
        self.leaves, self.bodies, self._nodes = [], [], {}

    def add(self, body, *, event_type=0x0101, actor_ref=ASKER, **fields):
        raw = body if isinstance(body, bytes) else rfc8785.dumps(body)
        data = leaves.leaf(**{
            "event_type": event_type, "index": len(self.leaves), "time_us": int(NOW * 1e6) - 5_000_000,
            "event_id": len(self.leaves).to_bytes(16, "big"), "tenant_ref": bytes(16), "actor_ref": actor_ref,
            "outcome": 1, "flags": 0, "producer_id": 3, "producer_seq": len(self.leaves) + 1,
            "body_hash": leaves.body_hash(raw), "pii_commit": bytes(32), **fields,
        })  # fmt: skip
        self.leaves.append(data)
        self.bodies.append(raw)
        return len(self.leaves) - 1

    def fill(self, count):
        for n in range(count):
            self.add({"n": n})
        return self

    def node(self, level, index):
        key = (level, index)
        if key not in self._nodes:
            if level == 0:
                self._nodes[key] = proofs.leaf_hash(self.leaves[index])
            else:
                self._nodes[key] = proofs.node_hash(
                    self.node(level - 1, 2 * index), self.node(level - 1, 2 * index + 1)
                )
        return self._nodes[key]

    @property
    def size(self):
        return len(self.leaves)

    def root(self, size=None):
        return proofs.root_at(self.size if size is None else size, self.node)

    def head(self, old, new=None):
        """The body of a request for a head."""
        new = self.size if new is None else new
        proof = proofs.consistency(old, new, self.node) if old <= new else []
        return {"old_size": old, "new_size": new, "new_root": self.root(new).hex(), "proof": [p.hex() for p in proof]}

    def evidence(self, index, size=None):
        path = proofs.inclusion(index, self.size if size is None else size, self.node)
        return Evidence(leaf=self.leaves[index].hex(), index=index, proof=[p.hex() for p in path],
                        body=self.bodies[index].decode())  # fmt: skip


def order_body(**data):
    """The body of an order; `actor_kind`, `action` and `result` change what is not data."""
    kind, action, outcome = (
        data.pop("actor_kind", "user"),
        data.pop("action", "order.approved"),
        data.pop("result", "success"),
    )
    return {
        "action": action,
        "actor": {"kind": kind, "roles": ["destructive-operator"]},
        "data": {"operation": OPERATION, "kinds": ["purge"], "nodes": [NODE], "plan_hash": "ab" * 32,
                 "selector_hash": "cd" * 32, "risk": "R2", "approval": None, "not_after": "2026-05-28T21:00:00Z",
                 **data},
        "object": {"id": data.get("operation", OPERATION), "kind": "operation"},
        "outcome": outcome,
        "request_id": "r",
    }  # fmt: skip


def decision_body(**data):
    kind, object_id = data.pop("actor_kind", "user"), data.pop("object_id", APPROVAL)
    return {
        "action": "approval.decided",
        "actor": {"kind": kind, "roles": ["approver"]},
        "data": {"kind": "operation", "object": OPERATION, "decision": "approved", "risk": "R3", "reason": "", **data},
        "object": {"id": object_id, "kind": "approval"},
        "outcome": "success",
        "request_id": "r",
    }


def command(log, order, **fields):
    return {
        "v": PROTOCOL, "step": "s", "kind": "purge", "node": NODE, "order_hash": log.leaves[order][84:116].hex(),
        "issued_at": NOW, "expires_at": NOW + 60, **fields,
    }  # fmt: skip


TARGETS = tuple(EraseTarget(ns=f"{n:064x}", gen_upto="2") for n in range(1200))


def bound(targets=TARGETS[:3], **data):
    """What an order of these targets says of them; leases may be broken a minute after it, and fences are raised."""
    found = Bound(targets)
    return {"targets_root": found.root, "targets": found.count, "force_after": "2026-05-28T20:27:40Z", "fencing": True,
            **data}  # fmt: skip


def reach(targets=TARGETS[:3], part=0, **args):
    """The arguments of a command for a part of these targets."""
    found = Bound(targets)
    told = found.parts()[part]
    mine = found.targets[told.first : told.first + told.length]
    return {"operation": OPERATION, "targets": msgspec.to_builtins(mine), "part": msgspec.to_builtins(told),
            "targets_root": found.root, **args}  # fmt: skip


def ask(command, order=None, approval=None, **more):
    """The bytes of a request to sign."""
    given = {"order": order, "approval": approval}
    parts = {k: {f: getattr(v, f) for f in v.__struct_fields__} for k, v in given.items() if v is not None}
    return json.dumps({"command": command, **parts, **more}).encode()


def files(directory):
    return Files(directory / "command.key", directory / "log.key", directory / "export.key", directory / "state.json")


def a_signer(directory, *, clock=lambda: NOW):
    """A signer over what is in the directory; it is made where there is nothing. `held.close()` lets go of it."""
    where = files(directory)
    held = StateFile(where.state)
    setup.begin(where, held, origin=ORIGIN)
    keys, state = setup.load(where, held)
    return Signer(keys, state, held, TOKENS, clock)


def signed_up_to(signer, log, size=None):
    """The signer has signed this much of the log; returns the note."""
    status, answer = signer.checkpoint(json.dumps(log.head(signer.state.head.size, size)).encode())
    assert status == 200, answer
    return answer["note"]
