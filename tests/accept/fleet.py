"""What the accept tests ask of a running console: what the agents hold, and what the catalog says."""

import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from catalog.store_reads import exact_facts
from tests.running import Console

BESIDE = Path(__file__).resolve().parents[3] / "shared/traces/mooncake_conversation.jsonl"
TRACE = os.environ.get("KVC_TRACE") or str(BESIDE)


class Held(NamedTuple):
    """One block on one owner, as both sides can name it."""

    node: str
    source: str
    dp_rank: int
    tier: str
    digest: bytes
    generation: int
    group: int
    key: bytes


def say(name: str, **figures: Any) -> None:
    """Print a figure of an accept test as one line."""
    print(f"\nACCEPT {name}: " + json.dumps(figures, default=str), flush=True)


def agent_get(console: Console, name: str, path: str, *, secret: bool = False) -> Any:
    """JSON of an agent's GET route."""
    config = json.loads((console.agents[name] / "agent.json").read_text())
    request = urllib.request.Request(f"http://{config['listen']}{path}")
    if secret:
        request.add_header("Authorization", f"Bearer {(console.agents[name] / 'drive.token').read_text().strip()}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def inventories(console: Console) -> set[Held]:
    """The union of what the running agents hold, from the agents themselves."""
    held: set[Held] = set()
    for name in console.agents:
        listing = agent_get(console, name, "/v1/inventory", secret=True)
        for row in listing["lists"]:
            place = (listing["node"], row["source"], row["dp_rank"], row["tier"], bytes.fromhex(row["ns"]))
            held.update(Held(*place, row["gen"], row["group"], bytes.fromhex(k)[:16]) for k in row["keys"])
    return held


def catalog(console: Console) -> set[Held]:
    """What the catalog says is where, read by SQL behind the barrier."""
    with psycopg.connect(console.database.dsn("operator"), autocommit=True) as cx:
        return {
            Held(str(f.node), f.source, f.dp_rank, f.tier, bytes(f.digest), f.generation, f.group, bytes(f.key))
            for f in exact_facts(cx)
        }


def rows(console: Console, query: str, *args: Any) -> list[tuple[Any, ...]]:
    """Rows of a query as the superuser: a test may look at everything."""
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
        return cx.execute(query, args).fetchall()


def quiet(console: Console) -> bool:
    """No agent has anything left that the console has not acknowledged."""
    return all(all(s["idle"] for s in agent_get(console, n, "/v1/status")["sources"]) for n in console.agents)


def until(check: Callable[[], bool], seconds: float, what: str, pause: float = 0.1) -> float:
    """Seconds until `check` held. Raises AssertionError when it did not in time."""
    start = time.monotonic()
    while not check():
        assert time.monotonic() - start < seconds, f"{what} did not hold within {seconds} s"
        time.sleep(pause)
    return time.monotonic() - start


def difference(ours: set[Held], theirs: set[Held]) -> str:
    """Where two sets differ, by owner."""
    missing, extra = theirs - ours, ours - theirs
    per = Counter((h.node[-4:], h.source, h.tier, "missing") for h in missing)
    per.update((h.node[-4:], h.source, h.tier, "extra") for h in extra)
    return f"catalog {len(ours)}, agents {len(theirs)}; {dict(per)}"


def equal_within(console: Console, seconds: float) -> tuple[float, int]:
    """(seconds, blocks) until the catalog was the union of the agents' inventories, set-equal per owner.

    The catalog counts as of the moment the reading began: how long it takes to read it all back is not its delay.
    """
    start = time.monotonic()
    while True:
        took = time.monotonic() - start
        ours, theirs = catalog(console), inventories(console)
        if ours == theirs:
            return took, len(ours)
        assert took < seconds, difference(ours, theirs)
        time.sleep(0.1)


def source_states(console: Console) -> dict[tuple[str, str], str]:
    """(node name, source) → state."""
    query = "SELECT n.name, s.name, s.state FROM catalog_source s JOIN catalog_node n ON n.id = s.node_id"
    return {(node, source): state for node, source, state in rows(console, query)}


def all_exact(console: Console) -> bool:
    """Every source of every node is exact."""
    states = source_states(console)
    return bool(states) and set(states.values()) == {"exact"}
