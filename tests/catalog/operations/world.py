"""A console on the test database with its signed log and its writer, and far sides that erase as agents do."""

import contextlib
import time
import uuid
from datetime import UTC, datetime

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from catalog.operation_requests import deletion_request, plan_create
from catalog.operations.engine import reconcile
from catalog.services import node_create, node_enrol
from kvconsole.infra.access import Principal
from kvcore.erasure import objects_root
from kvcore.events import Add
from kvcore.messages import PROTOCOL, Command, Receipt, open_command, receipt_hash, seal
from tests.catalog.farnode import FarNode
from tests.catalog.ingest.rig import BYTES, TOKENS, Rig, Sim, add, superuser
from tests.tenants.making import a_model, a_namespace, a_tenant

TIERS = [
    {"tier": "hbm", "capacity_bytes": 2**20, "emulated": True, "encrypted": False, "high": 0.9, "low": 0.8},
    {"tier": "dram", "capacity_bytes": 2**20, "emulated": False, "encrypted": False, "high": 0.9, "low": 0.8},
]
FIRST, FILLED = "0" * 64, 100


class Eraser(FarNode):
    """The agent of one node: what it holds, by tier, goes when it is told to; `mood` makes it do something else.

    `lies`: says that it erased, and finds it again. `hides`: says that it found nothing. `denies`: says that it erased
    and looked, and has it still. `yesterday`, `borrows`: answers with an earlier receipt of its own, or with another
    node's. `miscounts`: its counters are of something else. `blind`: sees no medium of others.
    """

    def __init__(self):
        super().__init__()
        self.prev, self.held, self.orders, self.receipts, self.sim = FIRST, {}, [], {}, None
        self.here, self.others = True, []
        self.skew = self.lag = 0.0
        """How far its clock is off, and what its receipts say of the time."""

    def answer(self, http, envelope):
        if self.mood == "off":
            return http.close_connection
        command = open_command(envelope, self._verify, node=self.node, now=time.time() + self.skew)
        if not isinstance(command, Command):
            return self._send(http, 403, msgspec.json.encode({"code": command}))
        self.orders.append(command)
        if self.mood == "busy":
            return self._send(http, 202, msgspec.json.encode({"done_bytes": 1, "total_bytes": 2}))
        if self.mood in ("yesterday", "borrows"):
            return self._send(http, 200, self._not_mine(command))
        if command.step not in self.receipts:
            self.receipts[command.step] = self._receipt(command)
        return self._send(http, 200, self.receipts[command.step])

    def _not_mine(self, command):
        """A whole receipt for the same kind of step: its own of an earlier one, or another node's."""
        side = self if self.mood == "yesterday" else next(side for side in self.others if side is not self)
        kinds = {raw: msgspec.json.decode(raw)["body"]["kind"] for raw in side.receipts.values()}
        return next((raw for raw, kind in kinds.items() if kind == command.kind), b"{}")

    def _receipt(self, command):
        outcome, detail = "done", {}
        position = {"boot": self.sim.boot, "stream": self.sim.stream, "seq": self.sim.seq}
        readback = {"method": "readback", "sampled": 4, "clean": 4, "evidence": ""}
        medium = {"type": "memory", "encrypted": False, "emulated": command.args.get("tier") == "hbm"}
        tier = command.args.get("tier", "")
        if command.kind == "erase":
            blocks = 0 if self.mood == "hides" else self.held.get(tier, 0)
            left = min(blocks, 2) if self.mood == "leased" and not command.args["force"] else 0
            outcome = "partial" if left else "done"
            gone = blocks - left
            if self.mood not in ("lies", "hides", "denies"):
                self.held[tier] = left
            detail = {
                "objects_root": objects_root(bytes([n]) * 32 for n in range(gone)), "objects": gone, "blocks": gone,
                "bytes": gone * BYTES * TOKENS, "technique": "memset" if gone else "none", "readback": readback,
                "medium": medium, "class_claimed": 3, "stream_pos": position, "started_us": 1, "finished_us": 2,
                "residual": [], "remaining": {"blocks": left, "leased_until": time.time() + 600 if left else None},
            }  # fmt: skip
        elif command.kind == "verify":
            found = 0 if self.mood in ("hides", "denies") else self.held.get(tier, 0)
            clean = {**readback, "clean": 4 if not found else 3}
            detail = {
                "found_blocks": found, "found_bytes": found * BYTES * TOKENS, "listed_at_us": 3,
                "counters": {"used_bytes": 0, "blocks": FILLED + found + 5 * (self.mood == "miscounts")},
                "readback": clean, "medium": medium,
                "stream_pos": position,
            }  # fmt: skip
        elif command.kind == "probe":
            if self.mood == "blind":
                outcome = "refused"
            other = next(side for side in self.others if side.node == command.args["node"])
            detail = {
                "node": other.node, "source": "reference", "tier": tier, "method": "scan",
                "asked": len(command.args["canaries"]), "found": other.held.get(tier, 0), "evidence": "", "at_us": 4,
            }  # fmt: skip
        elif command.kind == "shred":
            detail = {"objects": 0, "key_medium": "memory", "lease_dropped": True, "flags": []}
        if command.kind in ("erase", "verify", "shred"):
            detail["targets_root"] = "00" * 32 if self.mood == "strays" else command.args["targets_root"]
        receipt = Receipt(v=PROTOCOL, outcome=outcome, at=time.time() + self.lag, prev=self.prev, step=command.step,
                          kind=command.kind, node=self.node, detail=detail,
                          code="blocks-leased" if outcome == "partial" else "")  # fmt: skip
        if self.mood != "forks":
            self.prev = receipt_hash(receipt)
        return msgspec.json.encode(seal("receipt", receipt, self.key.sign, self.public))


class World:
    """Tenants, nodes, a writer and a log; `close` at the end."""

    def __init__(self, postgres, sealed):
        self.sealed, self.cx, self.nodes = sealed, superuser(postgres), []
        self.rig = Rig(now=time.time())
        self.tenant = a_tenant(erasure_scope="label")
        self.model = a_model(block_tokens=TOKENS)
        other = a_tenant()
        self.filler = bytes(a_namespace(other, self.model).digest)

    def close(self):
        self.rig.close()
        self.cx.close()
        for node in self.nodes:
            node.close()

    def namespace(self, label="gone"):
        return a_namespace(self.tenant, self.model, label=label)

    def node(self, name):
        """An enrolled node that was heard, with blocks of others, so that one label is a small part."""
        side = Eraser()
        made, token = node_create(name=name, region="eu")
        answer = node_enrol(token=token, public_key=side.public, agent_url=side.url, agent_version="1", tiers=TIERS,
                            engine={"kind": "reference", "version": "1"})  # fmt: skip
        side.node = str(made.id)
        side.console_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(answer["console_public_key"]))
        side.sim = Sim(made.id, "reference")
        self.nodes.append(side)
        side.others = self.nodes
        for tier in ("hbm", "dram"):
            self.send(side, *(add(self.filler, n, tier=tier, bytes=BYTES * TOKENS) for n in range(100, 100 + FILLED)))
        self.heard(side)
        return side

    def send(self, side, *items):
        return self.rig.send(side.sim.node, side.sim.frame(*items))

    def hold(self, side, namespace, *numbers, tier="hbm"):
        """The node has these blocks, and told it."""
        self.send(side, *(add(bytes(namespace.digest), n, tier=tier, bytes=BYTES * TOKENS) for n in numbers))
        side.held[tier] = side.held.get(tier, 0) + len(numbers)

    def heard(self, side, state="ready"):
        side.here = state != "lost"
        ago = 0 if side.here else 60
        self.cx.execute(
            "UPDATE catalog_node SET state = CASE %s WHEN 'ready' THEN wanted ELSE %s END,"
            " last_heard_at = now() - %s * interval '1 second' WHERE id = %s",
            (state, state, ago, side.sim.node),
        )

    def returned(self, side):
        """A node that was lost is heard again, and has listed what it holds."""
        self.heard(side)
        self.rig.folder.nodes.dirty = True
        self.rig.tick(1.0)
        (page,) = side.sim.inventory()
        items = [
            msgspec.Raw(msgspec.msgpack.encode(msgspec.structs.replace(item, bytes=BYTES * TOKENS)))
            for item in (msgspec.msgpack.decode(raw, type=Add) for raw in page.items)
        ]
        self.rig.send(side.sim.node, msgspec.structs.replace(page, items=items))

    def acknowledged(self):
        """All nodes have applied all fences."""
        for side in self.nodes:
            self.cx.execute(
                "INSERT INTO tenants_fenceack (tenant_id, holder_kind, holder, seq, at) VALUES"
                " ('00000000-0000-7000-8000-000000000001', 'node', %s, 1000000, now())"
                " ON CONFLICT (tenant_id, holder_kind, holder) DO UPDATE SET seq = excluded.seq",
                (str(side.sim.node),),
            )

    def ordered_anew(self, operation):
        """As of a deadline that is over. Past what guards the row: nobody who works for the console may do that."""
        late = "now() - interval '1 second'"
        self.cx.execute(f"UPDATE catalog_operation SET deadline = {late}, order_event = NULL WHERE id = %s",
                        (operation.id,))  # fmt: skip

    def left(self, namespace):
        """Blocks of the fenced generation that the catalog believes somewhere."""
        rows = self.rig.rows(
            "SELECT coalesce(sum(h.blocks), 0)::int FROM catalog_keyspace k JOIN catalog_holding h ON h.keyspace = k.id"
            " WHERE k.digest = %s AND k.generation = 1", bytes(namespace.digest),
        )  # fmt: skip
        return rows[0][0]

    def go_on(self, operation, rounds=6):
        """The engine, the sealer and the writer, in turns, until nothing more comes of it; the outcome."""
        for _ in range(rounds):
            self.sealed()
            for side in self.nodes:
                if side.here:
                    self.heard(side)
            found = reconcile(operation_id=operation.id, holder="test")
            self.rig.tick(0.6)
            operation.refresh_from_db()
            if operation.concluded_at:
                break
        return operation.outcome or found


def person(*roles, tenant=None):
    """Somebody who has just proved who they are."""
    return Principal(kind="user", id=str(uuid.uuid4()), roles=frozenset(roles or ("destructive-operator",)),
                     proved_at=time.time() - 100, tenant_id=tenant.id if tenant else None,
                     tenant_slug=tenant.slug if tenant else "")  # fmt: skip


def planned(world, actor, **selector):
    said = selector or {"tenant": world.tenant.slug, "label": "gone"}
    return plan_create(selector=said, options={}, actor=actor, now=datetime.now(UTC))


def asked(world, actor=None, **more):
    """The deletion of the label."""
    actor = actor or person()
    plan = planned(world, actor, **more.pop("selector", {}))
    return deletion_request(plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), actor=actor,
                            now=datetime.now(UTC), **more)  # fmt: skip


@contextlib.contextmanager
def a_world(postgres, sealed):
    made = World(postgres, sealed)
    try:
        yield made
    finally:
        made.close()
