"""The road over real HTTP: tokens, limits, hostile bodies, and a second writer that waits and takes over."""

import os
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import psycopg
import pytest

from kvconsole import reaper
from kvconsole.infra.sql import PLATFORM
from kvconsole.serverprocess import CLONE, free_port
from kvcore.keys import digest_add, unpack
from kvcore.messages import Answer
from tenants import tokens
from tests.catalog.ingest.rig import Sim, add, plant_namespace, plant_node, superuser
from tests.golden.hostile import hostile_frames

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]
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

    def holdings(self, sim: Sim, name: str = "ref") -> dict:
        rows = self.cx.execute(
            "SELECT k.digest, k.generation, k.cache_group, o.tier, h.blocks, h.lo, h.hi FROM catalog_holding h"
            " JOIN catalog_owner o ON o.id = h.owner JOIN catalog_keyspace k ON k.id = h.keyspace"
            " JOIN catalog_source s ON s.id = o.source_id WHERE NOT o.retired AND h.blocks > 0 AND s.node_id = %s"
            " AND s.name = %s",
            (sim.node, name),
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


HOSTILE = 300
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


def _hostile(site, sim, token):
    """Each bad item alone is refused, its neighbours are exact; whole bodies are refused and counted."""
    before = sum(site.refused().values())
    head = {"node": str(sim.node), "source": "enemy", "boot": str(uuid.uuid4()), "stream": str(uuid.uuid4())}
    held = (0, 0, 0)
    refused = 0
    with httpx.Client(headers=token, timeout=20) as client:
        for h in hostile_frames(HOSTILE, 7, ns=site.ns, **head):
            got = client.post(site.url + EVENTS, content=h.body)
            if h.frame_code is not None:
                assert got.json()["code"] == h.frame_code, h.kind
                refused += 1
                continue
            answer = decode(got.content)
            codes: list[str | None] = [None] * len(h.item_codes)
            for r in answer.rejected:
                codes[r.index] = r.code
            assert codes == h.item_codes, h.kind
            refused += len(answer.rejected)
            for packed in h.neighbours:
                for key in unpack(packed):
                    held = digest_add(held, key)
    wait(lambda: sum(site.refused().values()) == before + refused)
    assert site.holdings(sim, "enemy") == {(site.ns, 1, 0, "hbm"): held}
    assert httpx.get(site.url + "/readyz").status_code == 200
    state = site.cx.execute("SELECT state FROM catalog_source WHERE name = 'enemy'").fetchone()
    assert state == ("degraded",)


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
