"""Words of a node that come too late: said with its own token, on its own stream, to the running writer."""

import html
import re
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx
import msgspec

from kvcore.events import Add, Item, Move
from kvcore.messages import Answer
from tests.accept.fleet import agent_get, rows
from tests.accept.tenancy import Caller
from tests.running import Console

KINDS = ("add", "move", "transfer")
POSITION = """
SELECT s.node_id, s.name, s.dp_rank, s.boot, s.stream, s.seq FROM catalog_source s JOIN catalog_node n
    ON n.id = s.node_id WHERE n.name = %s AND s.name = 'reference'"""
_LINE = re.compile(r'class="mono">([a-z-]+)</a>.*?<td class="n">([^<]*)</td>', re.S)


class Space(NamedTuple):
    """What a node held of a namespace generation, and how large its blocks were."""

    digest: bytes
    keys: Sequence[bytes]
    tokens: int
    bytes: int


def space_of(console: Console, name: str, digest: bytes) -> Space:
    """As the running agent lists it and the catalog has it."""
    listing = agent_get(console, name, "/v1/inventory", secret=True)
    held = {key: None for row in listing["lists"] if row["ns"] == digest.hex() for key in row["keys"]}
    ((tokens, size),) = rows(
        console, "SELECT DISTINCT block_tokens, block_bytes FROM catalog_keyspace WHERE digest = %s", digest
    )
    return Space(digest, [bytes.fromhex(key) for key in held], tokens, size)


def node_of(console: Console, name: str) -> str:
    """The id of the agent's node."""
    return str(agent_get(console, name, "/v1/status")["node"])


class Voice:
    """Speaks for a node whose agent is dead, from where the writer heard it last."""

    def __init__(self, console: Console, name: str) -> None:
        self.url = f"{console.ingest_url}/api/v1/ingest/events"
        token = (console.agents[name] / "node.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/msgpack"}
        self.http = httpx.Client(headers=headers, timeout=30, trust_env=False)
        ((node, self.source, self.rank, self.boot, self.stream, self.seq),) = rows(console, POSITION, name)
        self.node = str(node)

    def __enter__(self) -> "Voice":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def say(self, items: Sequence[Item]) -> Answer:
        """The answer to the next frame, as an agent sends it."""
        self.seq += 1
        frame = {"v": 1, "node": self.node, "source": self.source, "dp_rank": self.rank, "shard": 0, "boot": self.boot,
                 "stream": self.stream, "seq": self.seq, "ts": time.time(), "fence_seq": 0, "allowances": 0,
                 "items": [msgspec.Raw(msgspec.msgpack.encode(item)) for item in items]}  # fmt: skip
        answer = self.http.post(self.url, content=msgspec.msgpack.encode(frame))
        assert answer.status_code == 200, answer.text
        return msgspec.msgpack.decode(answer.content, type=Answer)


def late(space: Space, number: int, owner: int) -> Item:
    """One message of the erased generation: blocks come, change tiers on the node, or come from another one."""
    key = space.keys[number // len(KINDS) % len(space.keys)]
    kind = KINDS[number % len(KINDS)]
    if kind == "move":
        return Move(ns=space.digest, gen=1, keys=key, from_="hbm", to="dram")
    step = {"from_owner": owner, "step": str(uuid.uuid4())} if kind == "transfer" else {}
    return Add(ns=space.digest, gen=1, keys=key, tier="hbm", tokens=space.tokens, bytes=space.bytes, **step)


def counted(browser: Caller, name: str) -> Counter[str]:
    """What an operator reads on the node's page of what was refused, by code."""
    page = browser.http.get(f"/nodes/{name}")
    assert page.status_code == 200, page.status_code
    found: Counter[str] = Counter()
    for code, count in _LINE.findall(page.text):
        found[code] += int("".join(filter(str.isdigit, html.unescape(count))))
    return found


def metered(console: Console) -> Counter[str]:
    """What the writer's metrics say of the same."""
    text = httpx.get(f"{console.ingest_url}/metrics", timeout=30, trust_env=False).text
    found = re.findall(r'kvc_ingest_refused_total\{code="([a-z-]+)"\} ([0-9.e+]+)', text)
    return Counter({code: int(float(count)) for code, count in found})


def since(before: Counter[str], now: Counter[str]) -> dict[str, Any]:
    """How much more of each there is."""
    return dict(now - before)
