"""The road over real HTTP: tokens, limits, hostile bodies, and a second writer that waits and takes over."""

import os
import random
import subprocess
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import psycopg
import pytest

from kvconsole import reaper
from kvconsole.infra.sql import PLATFORM
from kvconsole.serverprocess import CLONE, free_port
from kvcore.events import REFUSALS, Mark
from kvcore.messages import Answer
from tenants import tokens
from tests.catalog.ingest.rig import BYTES, Sim, add, keys, plant_namespace, plant_node, superuser

decode = msgspec.msgpack.Decoder(Answer).decode
encode = msgspec.msgpack.encode


def plant_token(cx: psycopg.Connection, node) -> str:
    plaintext, parsed = tokens.generate("node")
    now = datetime.now(UTC)
    cx.execute(
        "INSERT INTO tenants_token (id, kind, tenant_id, holder, name, secret_hash, roles, scopes, cidr, created_at,"
        " expires_at) VALUES (%s, 'node', %s, %s, '', %s, '{node}', '{}', '', %s, %s)",
        (parsed.id, PLATFORM, str(node), parsed.secret_hash, now, now + timedelta(days=1)),
    )
    return plaintext


class Site:
    """A running ingest process on a database of its own."""

    def __init__(self, console) -> None:
        self.console = console
        self.cx = superuser(console.database.postgres, console.database.name)
        self.ns = plant_namespace(self.cx, "a")
        self.url = console.ingest_url

    def node(self, name: str, **kw) -> tuple[Sim, dict[str, str]]:
        node = plant_node(self.cx, name, **kw)
        return Sim(node), {"authorization": f"Bearer {plant_token(self.cx, node)}"}

    def holdings(self, sim: Sim) -> dict:
        rows = self.cx.execute(
            "SELECT k.digest, k.generation, k.cache_group, o.tier, h.blocks, h.lo, h.hi FROM catalog_holding h"
            " JOIN catalog_owner o ON o.id = h.owner JOIN catalog_keyspace k ON k.id = h.keyspace"
            " JOIN catalog_source s ON s.id = o.source_id WHERE NOT o.retired AND h.blocks > 0 AND s.node_id = %s",
            (sim.node,),
        ).fetchall()
        return {(bytes(d), g, c, t): (b, lo % 2**64, hi % 2**64) for d, g, c, t, b, lo, hi in rows}

    def refused(self) -> dict[str, int]:
        return dict(self.cx.execute("SELECT code, sum(count)::int FROM catalog_refusal GROUP BY code").fetchall())


def wait(truth, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not truth():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.05)


@pytest.fixture
def site(console):
    console.start("ingest")
    running = Site(console)
    wait(lambda: httpx.get(running.url + "/readyz").status_code == 200)
    yield running
    running.cx.close()


def post(site: Site, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return httpx.post(site.url + path, content=body, headers=headers, timeout=20)


EVENTS, INVENTORY = "/api/v1/ingest/events", "/api/v1/ingest/inventory"


def test_the_road_over_http(site):
    sim, token = site.node("n1")
    got = post(site, EVENTS, encode(sim.frame(add(site.ns, 1, 2))), token)
    assert got.status_code == 200, got.text
    assert got.headers["content-type"] == "application/msgpack"
    answer = decode(got.content)
    assert (answer.state, answer.committed_seq) == ("reset", 0)
    assert site.holdings(sim) == sim.sums()
    got = decode(post(site, INVENTORY, encode(sim.digest()), token).content)
    assert got.state == "equal"
    got = decode(post(site, f"/api/v1/nodes/{sim.node}:heartbeat", encode(sim.beat()), token).content)
    assert got.state == "ok"
    _rights(site, sim, token)
    _sizes(site, sim, token)
    _plumbing(site)
    _hostile(site, sim, token)


def _rights(site, sim, token):
    frame = encode(sim.frame())
    for headers in ({}, {"authorization": "Bearer nonsense"}, {"authorization": token["authorization"][:-1] + "0"}):
        got = post(site, EVENTS, frame, headers)
        assert (got.status_code, got.json()["code"]) == (401, "foreign-token")
        assert got.headers["content-type"] == "application/problem+json"
        assert got.headers["www-authenticate"]
    other, others = site.node("n2")
    got = post(site, EVENTS, frame, others)
    assert (got.status_code, got.json()["code"]) == (403, "foreign-token")
    got = post(site, f"/api/v1/nodes/{sim.node}:heartbeat", encode(sim.beat()), others)
    assert (got.status_code, got.json()["code"]) == (403, "foreign-token")
    wait(lambda: site.refused().get("foreign-token") == 2)
    named = site.cx.execute(
        "SELECT s.node_id, s.state FROM catalog_refusal r JOIN catalog_source s ON s.id = r.source"
        " WHERE r.code = 'foreign-token'"
    ).fetchall()
    assert named == [(other.node, "degraded")]  # it is the token's node that is shown, not the one it claimed
    assert post(site, EVENTS, frame, token).status_code == 200


def _sizes(site, sim, token):
    got = post(site, EVENTS, bytes(8 * 2**20 + 1), token)
    assert (got.status_code, got.json()["code"]) == (413, "frame-too-large")

    def stream():
        for _ in range(9):
            yield bytes(2**20)

    try:
        got = httpx.post(site.url + EVENTS, content=stream(), headers=token, timeout=20)
        assert got.status_code == 413
    except httpx.HTTPError:
        pass  # the connection was closed while the rest was on its way
    wait(lambda: site.refused().get("frame-too-large", 0) >= 2)
    assert httpx.get(site.url + "/healthz").status_code == 200


def _plumbing(site):
    assert "kvc_ingest_commits" in httpx.get(site.url + "/metrics").text
    assert httpx.get(site.url + "/readyz").json()["writer"] is True
    assert httpx.get(site.url + "/nothing").json()["code"] == "not-found"
    assert httpx.get(site.url + EVENTS).status_code == 405


def hostile(rng: random.Random, sim: Sim, ns: bytes, i: int) -> bytes:
    """One body or item nobody should send."""
    good = encode(add(ns, 10_000 + i))
    plain = msgspec.msgpack.decode(good)
    makers = [
        lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(1, 60))),
        lambda: good[: rng.randrange(1, len(good))],
        lambda: encode({**plain, "k": "explode"}),
        lambda: encode({**plain, "tokens": -5}),
        lambda: encode({**plain, "bytes": -1}),
        lambda: encode({**plain, "tokens": "16"}),
        lambda: encode({**plain, "keys": keys(1)[:31]}),
        lambda: encode({**plain, "keys": keys(1, 1)}),
        lambda: encode({**plain, "parent": plain["keys"]}),
        lambda: encode({**plain, "tier": "floppy"}),
        lambda: encode({**plain, "tokens": 64}),
        lambda: encode({**plain, "bytes": BYTES * 3}),
        lambda: encode({**plain, "from_owner": 99_999_999}),
        lambda: b"\x81\xa1k" + b"\x91" * 900 + b"\xc0",
        lambda: encode(Mark(tier="hbm", used=9, capacity=1, high=0.9, low=0.1)),
        lambda: encode({"k": "mark", "tier": "hbm", "used": float("nan"), "capacity": 1, "high": 0.9, "low": 0.1}),
        lambda: encode([1, 2, 3]),
        lambda: encode({"k": "gap", "since": 1.0, "reason": "boredom"}),
        lambda: encode({"k": "drop", "ns": ns, "gen": 1, "keys": keys(3), "tier": "hbm", "reason": "why"}),
    ]
    return rng.choice(makers)()


def _hostile(site, sim, token):
    """Each bad item alone is refused, its neighbours are exact; whole bodies are refused and counted."""
    rng = random.Random(4)
    before = sum(site.refused().values())
    items = 0
    with httpx.Client(headers=token, timeout=20) as client:
        for i in range(150):
            raw = hostile(rng, sim, site.ns, i)
            try:
                msgspec.msgpack.decode(raw)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                raw = encode({"k": "explode", "n": i})  # a frame's items are one msgpack; bodies are broken below
            frame = encode(sim.frame(add(site.ns, 2 * i + 500), raw, add(site.ns, 2 * i + 501, tier="dram")))
            answer = decode(client.post(site.url + EVENTS, content=frame).content)
            assert [r.index for r in answer.rejected] == [1], (raw, answer)
            assert answer.rejected[0].code in REFUSALS or answer.rejected[0].code == "step-unknown"
            items += 1
        good = encode(sim.frame(add(site.ns, 9_000)))
        bodies = 0
        for i in range(150):
            roll = i % 4
            body = good[: rng.randrange(1, len(good) - 1)]
            if roll == 1:
                body = bytes(rng.randrange(256) for _ in range(80))
            if roll == 2:
                body = encode({**msgspec.msgpack.decode(good), "v": 99})
            got = client.post(site.url + (INVENTORY if roll == 3 else EVENTS), content=body)
            assert got.status_code in (200, 400, 403, 413, 421, 422), got.text
            bodies += got.status_code != 200
        assert client.post(site.url + EVENTS, content=good).status_code == 200
    wait(lambda: sum(site.refused().values()) >= before + items + bodies)
    assert {k for k, v in site.holdings(sim).items() if v == sim.sums()[k]} == set(sim.sums())
    assert httpx.get(site.url + "/readyz").status_code == 200


def test_a_second_writer_waits_and_takes_over(site):
    sim, token = site.node("n1")
    assert post(site, EVENTS, encode(sim.frame(add(site.ns, 1))), token).status_code == 200
    port = free_port()
    command = site.console.site.command("ingest")
    command[command.index("--port") + 1] = str(port)
    with (site.console.state / "second.log").open("wb") as log:
        second = subprocess.Popen(
            command, cwd=CLONE, env=site.console.site.env("ingest"), stdout=log, stderr=log, start_new_session=True
        )
    reaper.shared().watch(second.pid)
    url = f"http://127.0.0.1:{port}"
    try:
        wait(lambda: _beat(site, sim, token) and _status(url + "/healthz") == 200, 30)
        got = httpx.post(url + EVENTS, content=encode(sim.frame(add(site.ns, 2))), headers=token)
        assert (got.status_code, got.json()["code"], got.headers["retry-after"]) == (503, "shard-unavailable", "1")
        assert _status(url + "/readyz") == 503
        site.console.kill("ingest")
        wait(lambda: _status(url + "/readyz") == 200)
        answer = decode(httpx.post(url + EVENTS, content=encode(sim.frames[1]), headers=token, timeout=20).content)
        assert (answer.state, answer.committed_seq) == ("next", 1)
        assert site.holdings(sim) == sim.sums()
        assert site.cx.execute("SELECT writer FROM catalog_shard").fetchone() == (2,)
    finally:
        os.killpg(second.pid, 15)
        assert second.wait(15) in (0, -15)
        reaper.shared().forget(second.pid)


def _beat(site, sim, token) -> bool:
    """The node is not silent while others take their time."""
    return post(site, f"/api/v1/nodes/{sim.node}:heartbeat", encode(sim.beat()), token).status_code == 200


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as got:
            return got.status
    except urllib.error.HTTPError as e:
        return e.code
    except OSError:
        return 0
