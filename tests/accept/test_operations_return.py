"""A node that was off, words that come too late, moves under readers, a dump of yesterday: seen from outside, what was
fenced stays out of reach, and what moves is in one place."""

import json
import os
import random
import shutil
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kvconsole.embedded import Postgres
from nodeagent.keys import KeyRing
from tests.accept.conftest import a_console
from tests.accept.deleting import Fleet, fact
from tests.accept.fleet import catalog, inventories, quiet, rows, say, until
from tests.accept.late import KINDS, Voice, counted, late, metered, node_of, since, space_of
from tests.accept.reading import Readers
from tests.accept.stolen import guesses, opens, own_way, sealed
from tests.accept.tenancy import Caller
from tests.running import Console

pytestmark = [
    pytest.mark.accept,
    pytest.mark.walk,
    pytest.mark.timeout(1800 if os.environ.get("KVC_ACCEPT") == "full" else 900),
]
LONG = os.environ.get("KVC_ACCEPT") == "full"
NODES, LABELS = ("n1", "n2"), ("off", "gone", "stays")
PROMPTS = 200 if LONG else 12
GUESSES = None if LONG else 20_000
LEASE_SECONDS = 300
MOVES, PROMPTS_MOVED = (10_000, 16) if LONG else (128, 2)
"""Blocks that change nodes, and the prompts of 32 blocks that they are of."""
LATE, EACH = 1_000, 1 if LONG else 10
"""Messages that come too late, and how many in one frame."""
UNROUTED_SECONDS = 1.0 if LONG else 3.0
"""Alone on the machine it is a second; in the suite other tests take the processors."""


class Dump:
    """What `pg_dump` made of the database, and the way back."""

    def __init__(self, database: Any, path: Path) -> None:
        self.database, self.path = database, path
        self._run("pg_dump", "--format=custom", f"--file={path}", database.dsn("superuser"))

    def _run(self, program: str, *arguments: str) -> None:
        binary = self.database.postgres._bin(program)
        done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]

    def restore(self) -> None:
        """The database is what it was then."""
        name = self.database.name
        with psycopg.connect(self.database.postgres.superuser_dsn(), autocommit=True) as cx:
            cx.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
            cx.execute(f'CREATE DATABASE "{name}" OWNER kv_owner')
        self._run("pg_restore", "--exit-on-error", f"--dbname={self.database.dsn('superuser')}", str(self.path))


class Before(Fleet):
    """Two agents with blocks of three labels, a router that can ask for each, and the dump of that moment."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, (*LABELS, "moves"))
        for at, label in enumerate(LABELS):
            self.fill(label, {name: range(at * 1_000, at * 1_000 + PROMPTS) for name in NODES})
        self.fill("moves", {"n1": range(9_000, 9_000 + PROMPTS_MOVED)})
        until(lambda: quiet(console), 60, "blocks are told")
        held = catalog(console)
        self.keys = {label: sorted(h.key for h in held if h.digest == ns) for label, ns in self.namespaces.items()}
        assert all(self.keys.values()), "each label is in the catalog"
        self.router = self.people.token("operator", "operator", "viewer")
        until(lambda: all(self.found(label) for label in LABELS), 20, "all of it is routed to")
        self.told = space_of(console, "n2", self.namespaces["off"])
        self.yesterday = Dump(console.database, console.state / "yesterday.dump")

    def looked(self, label: str, most: int = 400 if LONG else 20) -> list[tuple[int, bool]]:
        """Status, and whether anybody is said to hold it, of some keys of the label's generation that was there."""
        sample = self.keys[label][:: max(1, len(self.keys[label]) // most)][:most]
        body = {"namespace": self.namespaces[label].hex(), "generation": 1}
        answers = [
            self.router("POST", "/prefixes:lookup", {**body, "keys": [key.ljust(32, b"\0").hex()]}) for key in sample
        ]
        return [(answer.status_code, bool(answer.json().get("runs"))) for answer in answers]

    def found(self, label: str) -> int:
        """How many of them are routed to."""
        return sum(found for _, found in self.looked(label))


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, template: str, service_base: Path) -> Iterator[Before]:
    """Real processes without a broker's worker: reconciliation alone carries operations on."""
    with a_console(postgres, template, service_base) as made:
        made.start("web", "ingest", "signer", "sequencer")
        made.seed()
        made.nodes(*NODES, tiers=("hbm=64KiB", "dram=64KiB", f"ssd={PROMPTS * 160}KiB"))
        yield Before(made)


def leased(console: Console, name: str, digest: bytes) -> dict[int, bytes]:
    """Generation → the subkey for files, as the console gives it to who has this node's token."""
    node = Caller(console.url, (console.agents[name] / "node.token").read_text().strip())
    held = [{"namespace": digest.hex(), "generation": generation} for generation in (1, 2)]
    answer: httpx.Response = node("POST", "/key-leases", {"held": held, "fence_seq": 0, "all": True})
    assert answer.status_code == 200, answer.text
    found = [one for one in answer.json()["leases"] if one["namespace"] == digest.hex()]
    return {one["generation"]: bytes.fromhex(one["subkeys"]["enc"]) for one in found}


def test_with_one_agent_stopped_nobody_routes_it_is_named_its_disk_is_unreadable_and_its_return_completes(
    fleet: Before, tmp_path: Path
) -> None:
    """Not routed within a second; open and named; its key gone: nothing on the disk opens it; completed in the end."""
    console, digest = fleet.console, fleet.namespaces["off"]
    old = leased(console, "n2", digest)[1]
    console.kill("n2")
    home = Path(shutil.copytree(console.agents["n2"], tmp_path / "n2"))
    objects = sealed(home, digest)
    assert objects, "some of it lies on the disk"
    assert all(opens(one, old) for one in objects), "with the key they can be read"

    operation = fleet.delete(options={"crypto_erase": True}, tenant="erase", label="off")
    asked = time.monotonic()
    until(lambda: not fleet.looked("off", most=1)[0][1], 20, "nobody is sent there", pause=0.01)
    unrouted = (datetime.now(UTC) - datetime.fromisoformat(fleet.operation(operation)["t_fence"])).total_seconds()
    assert not fleet.found("off")
    found = fleet.until(operation, lambda now: fact(now, "NodesReachable") == "false", "n2 is missed", 30)
    assert "n2" in next(one["message"] for one in found["conditions"] if one["type"] == "NodesReachable")
    found = fleet.until(
        operation, lambda now: {c["state"] for c in now["progress"]["cells"] if c["node"] == "n1"} == {"verified"},
        "the other node is done", 120,
    )  # fmt: skip
    assert (found["done"], found["certificate"]) == (False, None)
    assert {cell["state"] for cell in found["progress"]["cells"] if cell["node"] == "n2"} == {"silent"}

    if not LONG:  # the node is dead, so that nothing happens meanwhile
        with psycopg.connect(console.database.dsn("superuser")) as cx:
            cx.execute("UPDATE tenants_keylease SET until = now() WHERE until > now() AND holder ="
                       " (SELECT id::text FROM catalog_node WHERE name = 'n2')")  # fmt: skip

    def unreadable(now: dict[str, Any]) -> str:
        return next((str(c["message"]) for c in now["conditions"] if c["type"] == "Unreadable"), "")

    found = fleet.until(operation, lambda now: "n2 since" in unreadable(now), "its lease is over", LEASE_SECONDS + 60)
    lease_over = time.monotonic() - asked
    now_leased = leased(console, "n2", digest)
    assert 1 not in now_leased, "the console gives the old key to nobody"
    tried = [*now_leased.values(), *_some(guesses(home))]
    opened = sum(opens(objects[0], guess) for guess in tried)
    said = own_way(home, objects, KeyRing().enc) | own_way(
        home, objects, lambda ns, gen: next(iter(now_leased.values()))
    )

    console.start("n2")
    certificate = fleet.certificate(operation)
    body = certificate["body"]
    left = [one for one in inventories(console) if one.digest == digest and one.generation == 1]
    say("operations-agent-off", unrouted_s=round(unrouted, 3), fence=found["t_fence"], routed=found["t_unroutable"],
        named=["n2"], unreadable=unreadable(found), lease_over_s=round(lease_over, 1), objects=len(objects),
        guesses=len(tried), opened=opened, own_way=sorted(said), cls=body["class"], left=len(left),
        nodes=len({copy["node"] for copy in body["copies"]}))  # fmt: skip
    assert unrouted <= UNROUTED_SECONDS
    assert (opened, said) == (0, {"LeaseOver", "BlockRefused"})
    assert len({copy["node"] for copy in body["copies"]}) == 2
    assert left == []


def _some(every: Iterator[bytes]) -> list[bytes]:
    """All of them, or a sample in the short form."""
    found = list(every)
    return found if GUESSES is None or len(found) <= GUESSES else random.Random(5).sample(found, GUESSES)


def test_of_a_thousand_late_messages_to_the_running_writer_none_brings_anything_back(fleet: Before) -> None:
    """A node goes on to speak of what a certificate says is gone: nobody is sent there, each word is counted."""
    console, ns = fleet.console, fleet.told.digest
    if not rows(console, "SELECT 1 FROM tenants_namespace WHERE digest = %s AND min_gen > 1", ns):
        fleet.certificate(fleet.delete(tenant="erase", label="off"))  # this test alone was asked for
    console.kill("n2")
    operator = fleet.people.browser("operator")
    ((owner,),) = rows(console, "SELECT o.id FROM catalog_owner o JOIN catalog_source s ON s.id = o.source_id JOIN"
                       " catalog_node n ON n.id = s.node_id WHERE n.name = 'n1' AND s.name = 'reference' AND"
                       " o.tier = 'hbm' AND NOT o.retired")  # fmt: skip
    page, meter = counted(operator, "n2"), metered(console)
    routed = fenced = 0
    with Voice(console, "n2") as voice:
        for at in range(0, LATE, EACH):
            answer = voice.say([late(fleet.told, number, owner) for number in range(at, at + EACH)])
            assert (answer.state, answer.committed_seq) == ("next", voice.seq)
            fenced += any(bytes(f.ns) == ns and f.min_gen == 2 for f in answer.fences_after)
            if at % 100 == 0:
                routed += fleet.found("off")
    believed = sum(h.digest == ns and h.generation == 1 for h in catalog(console))
    time.sleep(1.0)
    routed += sum(found for _, found in fleet.looked("off", most=400))
    shown, measured = since(page, counted(operator, "n2")), since(meter, metered(console))
    supplement = "SELECT id FROM catalog_operation WHERE options->>'supplements' IS NOT NULL AND concluded_at IS NULL"
    until(lambda: bool(rows(console, supplement)), 30, "what it announces opens a supplementary operation")
    ((again,),) = rows(console, supplement)
    console.start("n2")
    certificate = fleet.certificate(str(again))
    say("operations-late-running", messages=LATE, frames=LATE // EACH, resurrected=routed, shown=shown,
        metered=measured, told_of_the_fence=fenced, in_catalog=believed,
        supplement=certificate["body"]["class"])  # fmt: skip
    of = {kind: sum(number % len(KINDS) == at for number in range(LATE)) for at, kind in enumerate(KINDS)}
    assert routed == 0
    assert believed > 0, "it is in the catalog as what it is: announced, and behind the fence"
    assert fenced == LATE // EACH, "each answer says that it is fenced"
    assert shown["stale-generation"] == of["add"] + of["move"], shown
    assert shown["foreign-owner"] == of["transfer"], shown
    assert measured == shown, "pages and metrics say the same"


def test_of_blocks_that_move_between_nodes_no_reader_sees_two_places_or_none(fleet: Before) -> None:
    """Agents hand blocks to each other and back, while four readers ask the router where they are."""
    console, digest, operator = fleet.console, fleet.namespaces["moves"], fleet.people.browser("operator")

    def moved(**what: str) -> None:
        selector = {"tenant": "erase", "label": "moves"}
        asked = operator("POST", "/migrations", {"selector": selector, "reason": "seen from outside", **what},
                         **{"Idempotency-Key": str(uuid.uuid4())})  # fmt: skip
        assert asked.status_code == 202, asked.text
        done = fleet.until(asked.json()["id"], lambda now: now["done"], "it ends", 300)
        assert done["state"] == "completed", json.dumps(done, indent=1)[:6000]

    def held() -> Counter[tuple[str, str]]:
        return Counter((h.node, h.tier) for h in catalog(console) if h.digest == digest)

    keys, at = sorted(space_of(console, "n1", digest).keys), {name: node_of(console, name) for name in NODES}
    assert len(keys) == PROMPTS_MOVED * 32
    for tier in ("hbm", "dram"):
        if any(h.digest == digest and h.tier == tier for h in inventories(console)):
            moved(from_tier=tier, to_tier="ssd")
    until(lambda: held() == {(at["n1"], "ssd"): len(keys)}, 60, "all of it is on the disk of n1")
    moves, began = 0, time.monotonic()
    callers = [fleet.people.token("operator", "operator", "viewer") for _ in range(4)]
    with Readers(callers, digest, keys) as readers:
        while moves < MOVES and not readers.wrong:
            target = "n1" if moves // len(keys) % 2 else "n2"
            moved(from_tier="ssd", to_tier="ssd", to_node=target)
            moves += len(keys)
            until(lambda target=target: held() == {(at[target], "ssd"): len(keys)}, 30, "they lie there alone")
    say("operations-moves-running", moves=moves, blocks=len(keys), readers=4, looks=sum(readers.looks),
        places=sorted(readers.places), both_or_neither=len(readers.wrong),
        seconds=round(time.monotonic() - began, 1))  # fmt: skip
    assert readers.wrong == []
    assert min(readers.looks) > 20, readers.looks
    assert readers.places == {("n1", "ssd"), ("n2", "ssd")}


def test_after_the_restore_of_yesterdays_dump_no_fenced_key_is_visible_before_the_first_answer(fleet: Before) -> None:
    """The dump believes in what was deleted since: nobody hears of it, neither at first nor once fences are whole."""
    console = fleet.console
    operation = fleet.delete(tenant="erase", label="gone")
    fleet.certificate(operation)
    fences = "SELECT 1 FROM tenants_namespace WHERE digest = %s AND min_gen > 1"
    fenced = [label for label in LABELS if rows(console, fences, fleet.namespaces[label])]
    assert "gone" in fenced
    assert "stays" not in fenced
    digests = [fleet.namespaces[label] for label in fenced]
    for name in ("web", "ingest", "sequencer", "n2"):
        console.kill(name)
    fleet.yesterday.restore()
    console.site.extra["KVC_FENCES_COMPARED"] = "on"
    stands = "SELECT count(*) FROM tenants_namespace WHERE digest = ANY(%s) AND min_gen = %s"
    seen: dict[str, list[tuple[int, bool]]] = {label: [] for label in LABELS}

    def look() -> dict[str, set[int]]:
        now = {label: fleet.looked(label) for label in LABELS}
        for label, answers in now.items():
            seen[label] += answers
        return {label: {status for status, _ in answers} for label, answers in now.items()}

    assert rows(console, stands, digests, 1) == [(len(fenced),)], "fenced by nobody, and believed to be there"
    begun = time.monotonic()
    console.start("web", "sequencer", "ingest")
    assert set.union(*look().values()) == {503}, "the journal of n2 may know more"
    until(lambda: rows(console, stands, digests, 2) == [(len(fenced),)], 60, "the key store knows the fences")
    assert set.union(*look().values()) == {503}
    closed = time.monotonic() - begun
    console.start("n2")
    until(lambda: set.union(*look().values()) == {200}, 60, "the fences are whole")
    assert rows(console, "SELECT whole, jsonb_array_length(answered) FROM tenants_fencelife") == [(True, 2)]
    until(lambda: bool(look() and any(found for _, found in seen["stays"])), 60, "what was not deleted is there")
    visible = {label: sum(found for _, found in answers) for label, answers in seen.items()}
    say("operations-restore", fenced=fenced, asked={label: len(answers) for label, answers in seen.items()},
        visible=visible, closed_s=round(closed, 1), whole_s=round(time.monotonic() - begun, 1))  # fmt: skip
    assert [visible[label] for label in fenced] == [0] * len(fenced), json.dumps(visible)
