"""Real processes, a real agent, steady traffic: a new epoch takes over in four steps, the old one is fenced meanwhile.

No request is of another epoch than its share says, none reads from behind the fence, and the bytes of the old epoch
are what the forecast says at most.
"""

import json
import time
import uuid
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import httpx
import msgspec
import psycopg
import pytest

from tests.accept.tenancy import People

pytestmark = [pytest.mark.walk, pytest.mark.timeout(180)]
TRAFFIC = """
import json, random, time, uuid
from datetime import UTC, datetime
from pathlib import Path
import httpx, msgspec
from catalog.models import Node
from catalog.services import node_ticket
from kvconsole.infra.access import system, tenant_context
from tenants.services import namespace_resolve
who, rnd, tickets, turn = system("walk"), random.Random(1), {}, 0
end, stop, http = time.time() + 150, Path("STOP"), httpx.Client(trust_env=False, timeout=30)
with open("OUT", "a", buffering=1) as out:
    while time.time() < end and not stop.exists():
        lots = {}
        with tenant_context(who):
            node = Node.objects.get(name="n1")
            for _ in range(16):
                turn += 1
                ns = namespace_resolve(tenant="walk", model="ref-64", request=f"r{turn}")
                at, ticket = tickets.get((ns.model_epoch, ns.generation), (0, None))
                if time.time() - at > 10:
                    ticket = node_ticket(node=node, namespace=ns, now=datetime.now(UTC))
                    ticket = {f: getattr(ticket, f) for f in ticket.__struct_fields__}
                    tickets[ns.model_epoch, ns.generation] = time.time(), ticket
                lots.setdefault((ns.model_epoch, ns.generation), (ticket, []))[1].append(
                    {"request": str(uuid.uuid4()), "ns": bytes(ns.digest), "gen": ns.generation,
                     "hash_ids": [rnd.randrange(20)], "hash_tokens": 512, "input_length": 512, "output_length": 0,
                     "session": None})
        for (epoch, gen), (ticket, requests) in lots.items():
            at = time.time()
            answer = http.post(node.agent_url + "/v1/requests",
                               content=msgspec.msgpack.encode({"ticket": ticket, "requests": requests}))
            good = msgspec.msgpack.decode(answer.content)["results"] if answer.status_code == 200 else []
            for i in range(len(requests)):
                hit = good[i].get("hit_tokens", 0) if good else 0
                out.write(json.dumps({"at": at, "epoch": epoch, "gen": gen, "hit": hit, "code": answer.status_code}))
                out.write(chr(10))
        time.sleep(0.02)
"""
BUMP = """
import json
from datetime import UTC, datetime
from catalog.epochs import epoch_bytes_tell
from catalog.models import Node
from catalog.services import node_ticket
from kvconsole.infra.access import system, tenant_context
from tenants.models import Namespace
from tenants.services import generation_bump
who = system("walk")
with tenant_context(who):
    ns = Namespace.objects.get(tenant__slug="walk", model_epoch=1)
    ticket = node_ticket(node=Node.objects.get(name="n1"), namespace=ns, now=datetime.now(UTC))
    generation_bump(namespace=ns, reason="walk", actor=who)
    epoch_bytes_tell(now=datetime.now(UTC))
print(json.dumps({f: v.hex() if isinstance(v := getattr(ticket, f), bytes) else v for f in ticket.__struct_fields__}))
"""
TELL = """
from datetime import UTC, datetime
from catalog.epochs import epoch_bytes_tell
from kvconsole.infra.access import system, tenant_context
with tenant_context(system("walk")):
    epoch_bytes_tell(now=datetime.now(UTC))
"""
STEPS = (0, 10, 50, 100)


def shell(console, code):
    return console.manage("shell", "-v", "0", "-c", code).splitlines()


def read(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def behind_the_fence(ticket):
    """What a request reads that still carries a ticket of the fenced generation."""
    ticket = {k: bytes.fromhex(v) if k in ("ns", "mac") else v for k, v in ticket.items()}
    requests = [
        {"request": str(uuid.uuid4()), "ns": ticket["ns"], "gen": ticket["gen"], "hash_ids": [n], "hash_tokens": 512,
         "input_length": 512, "output_length": 0, "session": None}
        for n in range(20)
    ]  # fmt: skip
    return msgspec.msgpack.encode({"ticket": ticket, "requests": requests})


def stepped(console, operator, out):
    """Shares go up step by step under traffic, and the old epoch's generation on the way; (share, from, to) of each."""
    spans, fenced = [], 0.0
    for share in STEPS:
        shares = {"1": 100 - share, "2": share}
        operator.put("/models/ref-64/rollout", {"shares": shares, "horizon_seconds": 60})
        begin = time.time()
        if share == 50:
            ticket = json.loads(shell(console, BUMP)[-1])
            fenced = time.time()
            time.sleep(1.0)
            body = behind_the_fence(ticket)
            url = json.loads((console.agents["n1"] / "agent.json").read_text())["listen"]
            answer = httpx.post(f"http://{url}/v1/requests", content=body, trust_env=False, timeout=30)
            if answer.status_code == 200:
                assert not any(r.get("hit_tokens") for r in msgspec.msgpack.decode(answer.content)["results"])
            else:
                assert answer.status_code == 409, answer.text
        time.sleep(7.0 if share == 100 else 2.5)
        spans.append((share, begin, time.time()))
    assert read(out)
    return spans, fenced


def test_from_0_over_10_and_50_to_100_per_cent_with_a_fence_under_traffic(console, fresh_database):
    console.start("web", "ingest", "signer")
    people = People(console)
    operator = people.token("operator", "operator", "viewer")
    operator.post("/tenants", {"slug": "walk", "name": "Walk"})
    console.node("n1", tiers=("hbm=1MiB",))
    operator.put("/models/ref-64/rollout", {"shares": {"1": 100}})
    operator.post("/models/ref-64/epochs", {"weights_digest": "sha256:walk-2"})
    out, stop = console.state / "traffic.jsonl", console.state / "stop"
    out.touch()
    console.background("traffic", "shell", "-v", "0", "-c", TRAFFIC.replace("OUT", str(out)).replace("STOP", str(stop)))
    deadline = time.monotonic() + 40
    while not any(line["hit"] for line in read(out)):
        assert time.monotonic() < deadline, console.log("traffic")[-2000:]
        time.sleep(0.2)
    spans, fenced = stepped(console, operator, out)
    stop.touch()
    console.processes["traffic"].wait(20)
    lines = read(out)
    for share, begin, end in spans:
        mine = [line["epoch"] for line in lines if begin + 0.5 < line["at"] < end]
        assert len(mine) > 60, (share, len(mine))
        got = 100 * mine.count(2) / len(mine)
        assert abs(got - share) <= (0 if share in (0, 100) else 14), (share, got, len(mine))
    hits = {(1, 1), (1, 2), (2, 1)} - {(x["epoch"], x["gen"]) for x in lines if x["hit"]}
    assert not hits, f"nobody read from {hits}"
    assert not [x for x in lines if (x["epoch"], x["gen"]) == (1, 1) and x["at"] > fenced + 0.5]
    shell(console, TELL)
    view = operator.get("/models/ref-64/rollout")
    assert {e["epoch"]: e["share"] for e in view["epochs"]} == {1: 0, 2: 100}
    assert [e["stale_hit_tokens"] for e in view["epochs"]] == [0, 0]
    with psycopg.connect(fresh_database.dsn("superuser")) as cx:
        assert cx.execute("SELECT count(*) FROM catalog_stalehit").fetchone() == (0,)
    old = next(int(e["size_bytes"]) for e in view["epochs"] if e["epoch"] == 1)
    points = [(datetime.fromisoformat(p["at"]).timestamp(), int(p["old_bytes"])) for p in view["forecast"]]
    assert points[0][1] > 0
    assert old <= expected(points, time.time()), (old, points)


def expected(points, at):
    """Bytes of the old epoch that the forecast says, between its points."""
    for (t0, a), (t1, b) in pairwise(points):
        if t0 <= at <= t1:
            return a + (b - a) * (at - t0) / (t1 - t0)
    return points[-1][1]
