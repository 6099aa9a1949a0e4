"""An agent whole, over HTTP, against a far side that folds what it is told."""

import time
import uuid

import msgspec

from kvcore.erasure import object_ref, objects_root
from kvcore.messages import Receipt, Signed, receipt_hash, signed_bytes
from kvcore.receipts import EraseArgs, ErasedDetail, EraseTarget, VerifiedDetail
from kvcore.targets import Bound
from tests.nodeagent.conftest import eventually
from tests.nodeagent.farside import held


def drive(loop, far, ns, count=5, *, gen=1, shared=2, own=3, output=0, ticket=None, seed=0):
    requests = [
        {
            "request": str(uuid.uuid4()), "ns": ns, "gen": gen, "hash_tokens": 512,
            "hash_ids": [*range(shared), *(1000 + seed * 1000 + i * 10 + j for j in range(own))],
            "input_length": (shared + own) * 512 - 5, "output_length": output, "session": None, "model_seed": 0,
        }
        for i in range(count)
    ]  # fmt: skip
    body = {"ticket": ticket or far.ticket(ns, gen), "requests": requests}
    return loop.http.post("/v1/requests", content=msgspec.msgpack.encode(body))


def results(answer):
    assert answer.status_code == 200, answer.text
    return msgspec.msgpack.decode(answer.content)["results"]


def test_requests_become_blocks_that_the_console_knows(far, joined, running):
    ns = far.namespace()
    loop = running(joined())
    first, *rest = results(drive(loop, far, ns))
    assert first["hit_tokens"] == 0 if "hit_tokens" in first else True
    assert all(r["hit_tokens"] == 1024 and r["saved_ms"] > 0 for r in rest)
    eventually(lambda: loop.status()["idle"])
    assert far.believed("reference") == held(loop.inventory(), "reference") != set()
    again = results(drive(loop, far, ns))
    assert all(r["hit_tokens"] == 5 * 512 // 16 * 16 - 16 for r in again)
    assert not [n for n in far.notes if type(n).__name__ != "StaleGeneration"]


def test_pressure_moves_blocks_down_and_the_console_follows(far, joined, running):
    ns = far.namespace()
    loop = running(joined())
    for i in range(30):
        results(drive(loop, far, ns, 4, seed=i, output=100))
    eventually(lambda: loop.status()["idle"])
    inventory = loop.inventory()
    assert far.believed("reference") == held(inventory, "reference")
    assert {line["tier"] for line in inventory["lists"]} >= {"hbm", "pinned", "dram", "ssd"}
    status = loop.status()
    for name, tier in status["tiers"].items():
        assert tier["used_bytes"] <= tier["capacity_bytes"], name
    assert far.notes == []


def test_commands_are_signed_and_answered_once(far, joined, running):
    loop = running(joined())
    step = str(uuid.uuid4())
    body = msgspec.json.encode(far.command("ping", step=step))
    answer = loop.http.post("/v1/commands", content=body)
    assert answer.status_code == 200
    signed = msgspec.json.decode(answer.content, type=Signed)
    receipt = msgspec.convert(signed.body, Receipt)
    assert receipt.outcome == "done"
    assert receipt.prev == "0" * 64
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(far.node_key)
    key.verify(bytes.fromhex(signed.signature), signed_bytes("receipt", signed.body))
    assert loop.http.post("/v1/commands", content=body).content == answer.content
    second = loop.http.post(
        "/v1/commands", content=msgspec.json.encode(far.command("inventory", step=str(uuid.uuid4())))
    )
    chained = msgspec.convert(msgspec.json.decode(second.content, type=Signed).body, Receipt)
    assert chained.prev == receipt_hash(receipt)
    eventually(lambda: far.counts["inventories"] >= 1)


def test_restart_is_a_new_boot_and_ssd_is_announced_again(far, joined, running):
    ns = far.namespace()
    home = joined()
    loop = running(home)
    for i in range(30):  # prompts of one run each, so that what is on ssd needs nothing that was in memory
        results(drive(loop, far, ns, 4, seed=i, shared=0, own=1))
    eventually(lambda: loop.status()["idle"])
    boot = loop.status()["boot"]
    on_ssd = {x for x in held(loop.inventory(), "reference") if x[0] == "ssd"}
    assert on_ssd
    loop.end()
    again = running(home)
    assert again.status()["boot"] != boot
    eventually(lambda: again.status()["idle"])
    assert far.believed("reference") == held(again.inventory(), "reference") == on_ssd
    hits = [r for i in range(30) for r in results(drive(again, far, ns, 4, seed=i, shared=0, own=1))]
    assert any(r.get("tiers", {}).get("ssd") for r in hits)


def test_a_fenced_generation_is_never_served_again(far, joined, running):
    ns = far.namespace()
    loop = running(joined())
    results(drive(loop, far, ns, 2))
    far.fence(ns, 2)
    far.namespace(ns, 2)
    eventually(lambda: loop.status()["console"]["fence_seq"] == 1)
    assert drive(loop, far, ns, 1).json()["code"] == "lease-over"
    fresh = results(drive(loop, far, ns, 1, gen=2))
    assert "hit_tokens" not in fresh[0]
    eventually(lambda: loop.status()["idle"])
    assert far.believed("reference") == held(loop.inventory(), "reference")


def test_console_away_keeps_the_node_working(far, joined, running):
    ns = far.namespace()
    loop = running(joined())
    results(drive(loop, far, ns, 2))
    far.status = 503
    for i in range(5):
        results(drive(loop, far, ns, 2, seed=i))
    assert not loop.status()["idle"]
    far.status = 200
    eventually(lambda: loop.status()["idle"])
    assert far.believed("reference") == held(loop.inventory(), "reference")


def test_a_lossy_road_ends_in_the_same_picture(far, joined, running):
    ns = far.namespace()
    far.drop, far.double, far.reorder = 0.15, 0.15, 0.15
    loop = running(joined())
    for i in range(40):
        results(drive(loop, far, ns, 2, seed=i, output=64))
    far.drop = far.double = far.reorder = 0.0
    eventually(lambda: loop.status()["idle"], 20)
    assert far.counts["frame_Duplicate"] > 0
    assert far.believed("reference") == held(loop.inventory(), "reference")


def test_allowances_are_kept_and_what_is_malformed_is_left_out(far, joined, running):
    ns = far.namespace()
    loop = running(joined())
    results(drive(loop, far, ns, 4))
    shares = {"hbm": [10 * 1024, 0], "tape": [5, 0], "dram": [-1, 0], "ssd": "much"}
    far.allowances = {"version": 1, "tenants": {"t1": shares, "xyz": {"hbm": [1, 0]}, "00": 7}, "arenas": 5}
    eventually(lambda: loop.status()["dropped_blocks"].get("hbm/quota", 0) > 0)
    eventually(lambda: loop.status()["idle"])
    assert loop.status()["tiers"]["hbm"]["blocks"] <= 10
    assert far.believed("reference") == held(loop.inventory(), "reference")


def test_a_digest_command_names_every_line(far, joined, running):
    ns = far.namespace()
    loop = running(joined())
    results(drive(loop, far, ns, 1))
    answer = loop.http.post("/v1/commands", content=msgspec.json.encode(far.command("digest", step="d1")))
    receipt = msgspec.convert(msgspec.json.decode(answer.content, type=Signed).body, Receipt)
    blocks = receipt.detail["blocks"]["hbm"]
    assert [line[:5] for line in receipt.detail["lines"]] == [[ns.hex(), "1", 0, "hbm", blocks]]
    assert receipt.positions[0].source == "reference"


def test_the_remote_store_is_a_second_source(far, joined, running, tmp_path_factory):
    from kvconsole.embedded import Valkey
    from nodeagent.config import TierConfig
    from tests.nodeagent.conftest import SMALL

    base = tmp_path_factory.mktemp("remote")
    store = Valkey(base, persist=False, test=True)
    store.start()
    try:
        tiers = {"hbm": SMALL["hbm"], "remote": TierConfig(capacity_bytes=8 * 2**20)}
        ns = far.namespace()
        loop = running(joined(tiers, remote_url=store.url))
        for i in range(12):
            results(drive(loop, far, ns, 4, seed=i))
        eventually(lambda: loop.status()["idle"])
        assert far.believed("remote") == held(loop.inventory(), "remote") != set()
        before = far.believed("reference")
        store.stop()
        store.start()
        eventually(lambda: loop.status()["tiers"]["remote"]["blocks"] == 0, 20)
        eventually(lambda: loop.status()["idle"], 20)
        assert far.believed("reference") == before
        eventually(lambda: far.sources["remote", 0].cursor.old_boots, 20)  # the console sees the store's old life end
        loop.end()
    finally:
        store.remove()


# Orders


def order(loop, far, kind, tier, ns, *, step=None, source="reference", seconds=30, **more):
    """The answer to an order about everything of a namespace up to its first generation."""
    bound = Bound([EraseTarget(ns=ns.hex(), gen_upto="2")])
    args = EraseArgs(
        operation="o", generation=1, source=source, dp_rank=0, tier=tier, owner=1,
        targets=list(bound.targets), part=bound.parts(1)[0], targets_root=bound.root, **more,
    )  # fmt: skip
    command = far.command(kind, step=step or str(uuid.uuid4()), seconds=seconds, args=msgspec.to_builtins(args))
    return loop.http.post("/v1/commands", content=msgspec.json.encode(command))


def obeyed(loop, far, kind, tier, ns, *, step=None, **more):
    """As `order`, for what takes as long as it takes: it is sent again while it runs, as the console does."""
    step = step or str(uuid.uuid4())
    while (answer := order(loop, far, kind, tier, ns, step=step, **more)).status_code == 202:
        time.sleep(0.02)
    return answer


def receipt_of(answer):
    assert answer.status_code == 200, answer.text
    return msgspec.convert(msgspec.json.decode(answer.content, type=Signed).body, Receipt)


def crowd(loop, far, *spaces):
    """Blocks of the namespaces on every tier."""
    for i in range(30):
        for ns in spaces:
            results(drive(loop, far, ns, 2, seed=i, shared=0, own=1))
    eventually(lambda: loop.status()["idle"])


def test_an_order_empties_every_tier_and_the_console_follows_by_frames_alone(far, joined, running):
    mine, other = far.namespace(), far.namespace()
    loop = running(joined())
    crowd(loop, far, mine, other)
    had = {x for x in held(loop.inventory(), "reference") if x[1] == mine}
    assert {x[0] for x in had} == {"hbm", "pinned", "dram", "ssd"}
    for tier in ("hbm", "pinned", "dram", "ssd"):
        step = str(uuid.uuid4())
        answer = obeyed(loop, far, "erase", tier, mine, step=step, fencing=True)
        receipt = receipt_of(answer)
        detail = msgspec.convert(receipt.detail, ErasedDetail)
        assert (receipt.outcome, detail.blocks) == ("done", sum(x[0] == tier for x in had))
        assert detail.objects_root == objects_root(object_ref("0" * 64, x[3]) for x in had if x[0] == tier)
        place = next(p for p in receipt.positions if p.source == "reference")
        assert (place.boot, place.stream) == (detail.stream_pos.boot, detail.stream_pos.stream)
        assert place.seq >= detail.stream_pos.seq
        eventually(lambda at=detail.stream_pos: far.sources["reference", 0].cursor.seq >= at.seq)
        assert not {x for x in far.believed("reference") if x[:2] == (tier, mine)}
        assert order(loop, far, "erase", tier, mine, step=step, fencing=True).content == answer.content
        seen = msgspec.convert(receipt_of(obeyed(loop, far, "verify", tier, mine)).detail, VerifiedDetail)
        assert (seen.found_blocks, seen.readback.clean) == (0, seen.readback.sampled)
    assert receipt_of(obeyed(loop, far, "shred", "ssd", mine)).detail["lease_dropped"]
    assert drive(loop, far, mine, 1).json()["code"] == "lease-over"
    eventually(lambda: loop.status()["idle"])
    assert far.believed("reference") == held(loop.inventory(), "reference") != set()
    assert loop.status()["fences"] == 1
    assert far.notes == []


def test_a_long_erase_holds_up_nothing(far, joined, running):
    mine, other = far.namespace(), far.namespace()
    loop = running(joined())
    crowd(loop, far, mine, other)
    blocks = loop.status()["tiers"]["ssd"]["blocks"]
    step, rate = str(uuid.uuid4()), blocks * 1104 // 3
    answer = order(loop, far, "erase", "ssd", mine, step=step, rate_bytes_per_s=rate)
    assert (answer.status_code, answer.json()["code"], answer.json()["step"]) == (202, "running", step)
    while not answer.json()["total_bytes"]:  # it has not been counted yet
        answer = order(loop, far, "erase", "ssd", mine, step=step, rate_bytes_per_s=rate)
        assert answer.status_code == 202
    heard = len(far.bodies)
    began = time.monotonic()
    assert receipt_of(loop.http.post("/v1/commands", content=msgspec.json.encode(far.command("ping", step="p"))))
    assert results(drive(loop, far, other, 1, seed=1))
    assert time.monotonic() - began < 1.0
    assert not loop.status()["idle"]
    assert step in loop.status()["running_steps"]
    answer = obeyed(loop, far, "erase", "ssd", mine, step=step, rate_bytes_per_s=rate)
    assert receipt_of(answer).outcome == "done"
    assert len(far.bodies) > heard + 2
    assert loop.status()["running_steps"] == {}


def test_a_node_that_returns_clears_what_was_fenced_meanwhile_before_it_tells_anything(far, joined, running):
    mine, other, home = far.namespace(), far.namespace(), joined()
    loop = running(home)
    crowd(loop, far, mine, other)
    on_ssd = {x for x in held(loop.inventory(), "reference") if x[0] == "ssd"}
    assert {x[1] for x in on_ssd} == {mine, other}
    loop.end()
    heard = len(far.sources["reference", 0].items)
    far.fence(mine, 2)
    again = running(home)
    eventually(lambda: again.status()["idle"])
    told = far.sources["reference", 0].items[heard:]
    assert {getattr(i, "ns", other) for i in told} == {other}
    assert far.believed("reference") == held(again.inventory(), "reference") == {x for x in on_ssd if x[1] == other}
    gone = {x[3] for x in on_ssd if x[1] == mine}
    assert again.status()["cleared_blocks"] == {"ssd": len(gone)}
    again.end()
    again = running(home)  # the order comes late, and its receipt has what the return cleared
    eventually(lambda: again.status()["idle"])
    first, second = (receipt_of(obeyed(again, far, "erase", "ssd", mine)).detail for _ in range(2))
    assert first["objects_root"] == objects_root(object_ref("0" * 64, key) for key in gone)
    assert (first["blocks"], second["blocks"]) == (len(gone), 0)
    assert first["readback"]["sampled"] == first["readback"]["clean"] > 0
    again.end()
    far.fences.clear()  # a console that was restored knows of no fence
    far.min_gen[mine] = 0
    third = running(home)
    eventually(lambda: third.status()["idle"])
    assert third.status()["fences"] == 1
    assert drive(third, far, mine, 1).json()["code"] == "lease-over"
