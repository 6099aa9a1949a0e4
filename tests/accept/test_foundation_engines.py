"""Foundation, seen from outside: recorded engine frames end to end, and what must never be found anywhere."""

import base64
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvconsole.infra.keyepochs import KeyEpochs
from kvconsole.infra.keystore import KeyStore, namespace_name
from kvconsole.serverprocess import CLONE
from kvcore.dialects import vllm
from kvcore.keys import ROOT, block_key, engine_salt, subkey
from tests.accept.fleet import catalog, rows, say, until
from tests.golden.bytes import WIRE
from tests.golden.frames import expected, messages
from tests.nodeagent.publisher import Publisher
from tests.running import Console

pytestmark = [pytest.mark.accept, pytest.mark.walk]
BLOCK = 32
TENANTS = {"": "acme-code", "tenant-a": "borealis-bank", "tenant-b": "cobalt-support"}
"""Salt in the recording → whose namespace it becomes."""
SEED = """
from kvconsole.infra.access import system, tenant_context
from tenants import services
who = system("accept")
config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
          "hidden_size": 32, "head_dim": 16, "torch_dtype": "bfloat16"}
with tenant_context(who):
    model = services.model_register(name="tiny", config=config, block_tokens=32, actor=who)
    services.epoch_create(model=model, weights_digest="sha256:tiny", actor=who)
    for slug in ("acme-code", "borealis-bank", "cobalt-support"):
        print(slug, bytes(services.namespace_resolve(tenant=slug, model="tiny", actor=who).digest).hex())
"""


class Engine:
    """A console with the host of one listener, and a publisher in place of the engine."""

    def __init__(self, console: Console) -> None:
        self.console = console
        shell = subprocess.run(
            [sys.executable, "manage.py", "shell", "-v", "0", "-c", SEED], capture_output=True, text=True, cwd=CLONE,
            env=console.env,
        )  # fmt: skip
        assert shell.returncode == 0, shell.stderr
        self.spaces = {
            slug: bytes.fromhex(digest) for slug, digest in (x.split() for x in shell.stdout.splitlines() if " " in x)
        }
        store = KeyStore(console.state / "keys", KeyEpochs(console.state / "epochs"))
        secrets = {slug: store.secret(namespace_name(ns, 1)) for slug, ns in self.spaces.items()}
        self.blk = {slug: subkey(secret, "blk") for slug, secret in secrets.items()}
        self.salts = {s: engine_salt(subkey(secrets[t], "salt")) for s, t in TENANTS.items() if s}
        self.directory = console.node("engine-host")
        self.publisher: Publisher
        self.source = ""

    def listen(self, source: str) -> None:
        """The listener speaks for the publisher, until the test is over."""
        command = [sys.executable, "-m", "nodeagent", "listen", "--dir", str(self.directory), "--source", source]
        command += ["--engine", self.publisher.endpoint, "--replay", self.publisher.replay]
        command += ["--namespace-default", self.spaces["acme-code"].hex(), "--bytes-per-token", "256"]
        self.source = source
        self.console._spawn(source, command, {k: v for k, v in os.environ.items() if not k.startswith("KVC_")})
        until(lambda: self.publisher.asked > 0, 30, "the listener asks for the ring")

    def resalt(self, payload: bytes) -> bytes:
        """The recorded batch with the salts that our gateway would have given; everything else as recorded."""
        batch = msgspec.msgpack.decode(payload)
        for event in batch[1]:
            if isinstance(event, dict) and event.get("extra_keys"):
                event["extra_keys"] = [[self.salts.get(x, x) for x in k] if k else k for k in event["extra_keys"]]
        return msgspec.msgpack.encode(batch)


@pytest.fixture(scope="module")
def host(fleet_console: Console) -> Engine:
    return Engine(fleet_console)


@pytest.fixture
def engine(host: Engine) -> Iterator[Engine]:
    host.publisher, host.source = Publisher(), ""
    yield host
    if host.source:
        host.console.kill(host.source)
    host.publisher.close()


def keys_of(run: str, engine: Engine) -> Iterator[tuple[str | None, dict[str, tuple[str, bytes]]]]:
    """After each phase: engine hash → (tenant, key), computed here from the recorded tokens and nothing else."""
    known: dict[Any, tuple[str, bytes]] = {}
    phase: str | None = None
    for m in messages(run):
        if m.kind != "pub":
            continue
        if m.phase != phase and phase is not None:
            yield phase, {_name(h): v for h, v in known.items()}
        phase = m.phase
        for e in msgspec.msgpack.decode(m.payload)[1]:
            if e["type"] != "BlockStored":
                continue
            salt = next((x for k in (e.get("extra_keys") or []) if k for x in k if x in TENANTS), "")
            tenant, at = known.get(e["parent_block_hash"], (TENANTS[salt], ROOT))
            for i, h in enumerate(e["block_hashes"]):
                tokens = b"".join(t.to_bytes(4, "little") for t in e["token_ids"][i * BLOCK : (i + 1) * BLOCK])
                at = block_key(at, tokens, engine.blk[tenant])
                known[h] = (tenant, at)
    yield phase, {_name(h): v for h, v in known.items()}


def _name(engine_hash: int | bytes) -> str:
    return engine_hash.hex() if isinstance(engine_hash, bytes) else str(engine_hash)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("run", ["vllm-s1-connectmode", "vllm-s3-bytes-hash", "vllm-s7-crash-restart"])
def test_captured_vllm_frames_give_the_ownership_written_beside_them(engine: Engine, run: str) -> None:
    """Published on a real ZMQ socket, heard by the listener, committed by the writer, read back by SQL."""
    engine.listen(run)
    time.sleep(0.3)
    wanted = {phase: held for phase, _, held in expected(run)}
    after = dict(keys_of(run, engine))
    phase, checked = None, 0
    tier = {"GPU": "hbm", "CPU": "dram"}

    def check(phase: str | None) -> None:
        names = after[phase]
        want = set()
        for place in wanted[phase]:
            medium, group, name = place.split("/")
            tenant, key = names[name]
            want.add((tier[medium], int(group), engine.spaces[tenant], key[:16]))

        def same() -> bool:
            return {(h.tier, h.group, h.digest, h.key) for h in catalog(engine.console) if h.source == run} == want

        until(same, 10, f"ownership after {phase}: {len(want)} blocks")

    sequence = 0
    for m in messages(run):
        if m.kind != "pub":
            continue
        if m.phase != phase:
            if phase is not None:
                check(phase)
                checked += 1
            phase = m.phase
        if m.seq < sequence:
            engine.publisher.restart()
        sequence = m.seq
        engine.publisher.publish(engine.resalt(m.payload))
    check(phase)
    say(f"captures {run}", phases=checked + 1, blocks=len(wanted[phase]), equal=True)


def test_the_golden_bytes_of_every_vllm_version_decode() -> None:
    """southbound §10: one stored, one removed, one cleared, in every layout."""
    for version, hexed in WIRE.items():
        batch = vllm.decode_batch(bytes.fromhex(hexed))
        assert [type(e).__name__ for e in batch.events] == ["Stored", "Removed", "Cleared"], version
    say("golden bytes", versions=sorted(WIRE))


CANARY_TOKENS = [1_111_111_111 + 37 * i for i in range(64)]
CANARY_HASHES = [0xC0FFEE0123456789, 0xDECAFBAD98765432]
CANARY_TEXT = "canary-prompt-of-nobody"


def traces_of_canaries(engine: Engine) -> dict[str, list[bytes]]:
    """Every form in which a canary could stand somewhere."""
    out: dict[str, list[bytes]] = {"text": [CANARY_TEXT.encode(), base64.b64encode(CANARY_TEXT.encode())[:-3]]}
    for salt in engine.salts.values():
        out.setdefault("salt", []).append(salt.encode())
    for h in CANARY_HASHES:
        out.setdefault("hash", []).extend(
            [h.to_bytes(8, "big"), h.to_bytes(8, "little"), str(h).encode(), f"{h:x}".encode()]
        )
    for t in CANARY_TOKENS:
        out.setdefault("token", []).append(str(t).encode())
    run = CANARY_TOKENS[:4]
    for order in ("little", "big"):
        out["token"].append(b"".join(t.to_bytes(4, order) for t in run))
        out["token"].append(b"".join(t.to_bytes(8, order) for t in run))
    return out


@pytest.mark.timeout(300)
def test_canaries_are_in_no_table_wal_log_dump_or_socket(engine: Engine) -> None:
    """Token ids, salts and raw engine hashes go in with the events; nothing of them is anywhere afterwards."""
    console = engine.console
    engine.listen("canary")
    time.sleep(0.3)
    salt = engine.salts["tenant-a"]
    event = {
        "type": "BlockStored", "block_hashes": CANARY_HASHES, "parent_block_hash": None, "token_ids": CANARY_TOKENS,
        "block_size": BLOCK, "lora_id": None, "medium": "GPU", "lora_name": None,
        "extra_keys": [[salt], None], "group_idx": 0,
    }  # fmt: skip
    lost = event | {"extra_keys": [[CANARY_TEXT], None], "block_hashes": [h ^ 0xFF for h in CANARY_HASHES]}
    engine.publisher.publish(
        msgspec.msgpack.encode([time.time(), [event, lost, {"type": "Nonsense", "x": CANARY_TEXT}], 0])
    )
    engine.publisher.publish(
        b"\x93" + msgspec.msgpack.encode(CANARY_TEXT)
    )  # a malformed batch must not be logged whole
    until(lambda: len([h for h in catalog(console) if h.source == "canary"]) == 2, 15, "the keyed blocks are there")
    frames = socket_frames(console)
    time.sleep(3)  # the write-behind of the rows
    rows(console, "SELECT pg_switch_wal()")
    haystacks = dict(_haystacks(console)) | {"socket": frames}
    found = [
        (place, kind)
        for place, content in haystacks.items()
        for kind, forms in traces_of_canaries(engine).items()
        for form in forms
        if form in content
    ]
    sizes = {place: len(content) for place, content in haystacks.items()}
    say("canaries", places=len(sizes), bytes=sum(sizes.values()), found=found)
    assert b"engine-host" in haystacks["dump"], "the search itself must be able to find something"
    assert sizes["dump"] > 10_000
    assert sizes["wal"] > 2**20
    assert frames
    assert not found


def _haystacks(console: Console) -> Iterator[tuple[str, bytes]]:
    server = console.database.postgres
    dump = subprocess.run(
        [server._bin("pg_dump"), "--inserts", console.database.dsn("superuser")], capture_output=True, check=True
    )
    yield "dump", dump.stdout
    yield "wal", b"".join(p.read_bytes() for p in sorted((server.data / "pg_wal").glob("0000*")))
    tables = [p for p in (server.data / "base").rglob("*") if p.is_file() and p.stat().st_size]
    yield "tables", b"".join(p.read_bytes() for p in tables)
    for name in console.processes:
        yield f"log of {name}", console.log(name).encode()
    key_files = console.state / "keys"
    for path in Path(console.state).rglob("*"):
        if path.is_file() and key_files not in path.parents and path.suffix != ".log":
            yield f"file {path.name} {uuid.uuid4().hex[:4]}", path.read_bytes()


def socket_frames(console: Console) -> bytes:
    """What an operator's browser gets over the live socket in two seconds."""
    import httpx
    import websocket

    password = console.seed()["operator"]
    with httpx.Client(base_url=console.url, trust_env=False, follow_redirects=False) as client:
        page = client.get("/login")
        form = {"username": "operator", "password": password, "csrfmiddlewaretoken": _csrf(page.text)}
        done = client.post("/login", data=form, headers={"Referer": f"{console.url}/login", "Origin": console.url})
        assert done.status_code in (302, 303), done.status_code
        cookie = "; ".join(f"{k}={v}" for k, v in client.cookies.items())
    live = websocket.create_connection(
        f"{console.url.replace('http', 'ws')}/ws/live", cookie=cookie, origin=console.url, timeout=2
    )
    live.send(json.dumps({"subscribe": ["tiles", "watermarks", "map:resident", "node:engine-host"]}))
    out, end = b"", time.monotonic() + 4
    while time.monotonic() < end:
        try:
            got = live.recv()
        except websocket.WebSocketTimeoutException:
            continue
        out += got.encode() if isinstance(got, str) else got
    live.close()
    return out


def _csrf(page: str) -> str:
    import re

    return re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page).group(1)
