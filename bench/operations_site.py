"""A fleet for the benches of operations: a console of real processes, and reference agents, several in each process.

Sixty-four agents as processes of their own are too much for two cores, so each of `HOSTS` processes runs some of them
(`bench.operations_agents`), every one with its own directory, key, journal, boot and port.
"""

import contextlib
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import psycopg

from bench.store_sides import Cluster
from kvconsole import reaper
from kvconsole.embedded import Valkey
from kvconsole.serverprocess import CLONE
from nodeagent.config import Home, TierConfig
from nodeagent.join import draft_of, join
from tests.conftest import Database
from tests.running import Console

HOSTS = 4
PROMPT, BLOCKS = 8, 256
"""Hash ids of a prompt, and its blocks."""
SLOT = 1024 + 256
"""Bytes of a block with its head and some room."""
AT_ONCE, SLICE = 8, 8
"""Nodes that are filled at a time, and prompts of a call."""


@contextlib.contextmanager
def fleet(agents: int, blocks: int) -> Iterator["Fleet"]:
    """A console with so many agents that have room for so many blocks each."""
    base, cluster = Path(tempfile.mkdtemp(prefix="kvc-bench-")), Cluster()
    broker = Valkey(base / "valkey", persist=False)
    try:
        broker.start()
        with cluster.database() as name:
            database = Database(cluster.postgres, name)
            console = Console(base / "site", database=database, broker=broker)
            made = Fleet(console, database)
            try:
                console.start("signer", "sequencer", "web", "ingest", "worker", "beat")
                made.begin(agents, blocks)
                yield made
            finally:
                made.close()
    finally:
        broker.remove()
        cluster.close()
        reaper.close_shared()
        shutil.rmtree(base, ignore_errors=True)


def quiet_ports(count: int) -> list[int]:
    """So many free ports, below those that the system gives to whoever calls: so they are still free a minute later."""
    found: list[int] = []
    port = random.randrange(15_000, 25_000)
    while len(found) < count:
        port += 1
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


class Fleet:
    """Nodes by name, and what is put on them."""

    def __init__(self, console: Console, database: Database) -> None:
        self.console, self.database = console, database
        self.homes: dict[str, Path] = {}
        self.hosts: list[subprocess.Popen[bytes]] = []

    def begin(self, agents: int, blocks: int) -> None:
        """The agents are enrolled and run."""
        self.console.seed()
        os.environ.update(self.console.env, KVC_DB_ROLE="operator")
        import django

        django.setup()
        names = [f"n{i:02}" for i in range(agents)]
        ports = quiet_ports(agents)
        listen = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        at = [f"{name}=http://{where}" for name, where in listen.items()]
        made = json.loads(self.console.manage("node_create", "--json", *at, timeout=300))
        room = blocks * SLOT
        sizes = {"hbm": room // 4, "dram": room // 2, "ssd": room * 3 // 2}  # all of it, and others' blocks beside it
        tiers = {tier: TierConfig(capacity_bytes=size) for tier, size in sizes.items()}
        for name in names:
            home = Home(self.console.state / f"agent-{name}")
            draft = draft_of(name=name, listen=listen[name], agent_url="", profile="ref-64", remote_url="",
                             policy="lru", tiers=tiers)  # fmt: skip
            with httpx.Client(timeout=60, trust_env=False) as client:
                join(home, console_url=self.console.url, token=made[name]["enrolment_token"], draft=draft,
                     client=client)  # fmt: skip
            self.homes[name] = home.path
        self.console.agents.update(self.homes)
        for first in range(min(HOSTS, agents)):
            self._host([str(self.homes[name]) for name in names[first::HOSTS]])
        for name in names:
            self.until(lambda name=name: self.status(name)["allowances"], f"{name} works", 120)

    def _host(self, directories: list[str]) -> None:
        with (self.console.state / f"host-{len(self.hosts)}.log").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.operations_agents", *directories], stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, cwd=CLONE, start_new_session=True,
                env={k: v for k, v in os.environ.items() if not k.startswith(("KVC_", "DJANGO_"))},
            )  # fmt: skip
        reaper.shared().watch(process.pid)
        self.hosts.append(process)

    def close(self) -> None:
        """Nothing of it runs."""
        from django.db import connections

        connections.close_all()
        for process in self.hosts:
            process.terminate()
        for process in self.hosts:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            reaper.shared().forget(process.pid)
        self.console.stop()

    # --- what there is ---

    def until(self, check: Any, what: str, seconds: float, pause: float = 0.1) -> Any:
        """What `check` answered when it was true.

        Raises:
            RuntimeError: it was not in time.
        """
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if found := check():
                    return found
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not within {seconds:.0f} s")
            time.sleep(pause)

    def status(self, name: str) -> Any:
        """What an agent says of itself."""
        url = json.loads((self.homes[name] / "agent.json").read_text())["agent_url"]
        return httpx.get(f"{url}/v1/status", trust_env=False, timeout=30).json()

    def keys(self, name: str, digest: bytes) -> set[str]:
        """What an agent holds of a namespace, wherever it lies."""
        url = json.loads((self.homes[name] / "agent.json").read_text())["agent_url"]
        token = (self.homes[name] / "drive.token").read_text().strip()
        answer = httpx.get(f"{url}/v1/inventory", trust_env=False, timeout=120,
                           headers={"Authorization": f"Bearer {token}"})  # fmt: skip
        return {key for row in answer.json()["lists"] if row["ns"] == digest.hex() for key in row["keys"]}

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows, as the superuser."""
        with psycopg.connect(self.database.dsn("superuser"), autocommit=True) as c:
            return c.execute(query, values or None).fetchall()

    def cost(self, seconds: float) -> dict[str, float]:
        """What an agent takes when nothing is asked of it: share of a core, MiB of its own."""
        processes = [psutil.Process(p.pid) for p in self.hosts]
        before = sum(sum(p.cpu_times()[:2]) for p in processes)
        time.sleep(seconds)
        after = sum(sum(p.cpu_times()[:2]) for p in processes)
        size = sum(p.memory_full_info().uss for p in processes)
        count = len(self.homes)
        return {
            "core_percent": round((after - before) / seconds / count * 100, 2),
            "mib": round(size / count / 2**20, 1),
        }

    # --- what is put there ---

    def namespace(self, slug: str, label: str) -> Any:
        """A namespace of this tenant's label."""
        from kvconsole.infra.access import system, tenant_context
        from tenants import selectors, services

        who = system("bench")
        with tenant_context(who):
            tenant = selectors.tenant_by_slug(slug) or services.tenant_create(
                slug=slug, name=slug, erasure_scope="label", actor=who
            )
            return services.namespace_resolve(tenant=tenant, model="ref-64", label=label, actor=who)

    def fill(self, namespace: Any, blocks: int, first: int = 0) -> None:
        """So many blocks of prompts of their own are on each node, and the catalog knows them."""
        prompts = max(1, blocks // BLOCKS)
        names = list(self.homes)
        work = {name: [first + n * 10**6 + prompt for prompt in range(prompts)] for n, name in enumerate(names)}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for at in range(0, len(names), AT_ONCE):
                some = names[at : at + AT_ONCE]
                for slice_ in range(0, prompts, SLICE):
                    urls, tickets = self._tickets(namespace, some)  # good for half a minute
                    todo = [(urls[name], tickets[name], work[name][slice_ : slice_ + SLICE]) for name in some]
                    list(pool.map(lambda one: drive(*one), todo))
        for name in names:
            self.until(lambda name=name: self.status(name)["idle"], f"{name} told everything", 300)

    def _tickets(self, namespace: Any, names: Sequence[str]) -> tuple[dict[str, str], dict[str, Any]]:
        from catalog.models import Node
        from catalog.services import node_ticket
        from kvconsole.infra.access import system, tenant_context

        urls, tickets = {}, {}
        with tenant_context(system("bench")):
            for node in Node.objects.filter(name__in=list(names)):
                ticket = node_ticket(node=node, namespace=namespace, now=datetime.now(UTC))
                tickets[node.name] = {f: getattr(ticket, f) for f in ticket.__struct_fields__}
                urls[node.name] = node.agent_url
        return urls, tickets


def drive(url: str, ticket: dict[str, Any], prompts: Sequence[int]) -> None:
    """These prompts were served."""
    requests = [
        {"request": str(uuid.uuid4()), "ns": ticket["ns"], "gen": ticket["gen"], "hash_tokens": 512,
         "hash_ids": list(range(n * PROMPT, (n + 1) * PROMPT)), "input_length": 512 * PROMPT, "output_length": 0,
         "session": None}
        for n in prompts
    ]  # fmt: skip
    body = msgspec.msgpack.encode({"ticket": ticket, "requests": requests})
    answer = httpx.post(f"{url}/v1/requests", content=body, trust_env=False, timeout=120)
    if answer.status_code != 200:
        raise RuntimeError(f"{url}: {answer.status_code} {answer.text[:300]}")
    codes = {one.get("code", "") for one in msgspec.msgpack.decode(answer.content)["results"]}
    if codes != {""}:
        raise RuntimeError(f"{url}: not served: {codes}")


class Journals:
    """The agents' journals, read from outside."""

    def __init__(self, homes: dict[str, Path]) -> None:
        self.open = {name: sqlite3.connect(f"file:{path}/journal.sqlite3?mode=ro", uri=True, check_same_thread=False)
                     for name, path in homes.items()}  # fmt: skip

    def without(self, digest: bytes, min_gen: int, among: set[str]) -> set[str]:
        """Those of the agents that have not this fence yet."""
        query = "SELECT min_gen FROM fence WHERE ns = ?"
        rows = {name: self.open[name].execute(query, (digest,)).fetchone() for name in among}
        return {name for name, row in rows.items() if row is None or int(row[0]) < min_gen}

    def first_taken(self, kind: str) -> dict[str, float]:
        """When each agent took its first command of a kind."""
        query = "SELECT min(taken_at) FROM step WHERE kind = ?"
        found = {name: cx.execute(query, (kind,)).fetchone()[0] for name, cx in self.open.items()}
        return {name: at for name, at in found.items() if at}

    def close(self) -> None:
        """Files are closed."""
        for cx in self.open.values():
            cx.close()
