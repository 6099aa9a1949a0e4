"""A console with a router and two nodes, driven over HTTP: what walks of the routing app stand on."""

import json
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import psycopg

from tests.frontend.test_walk_database import Line

ALONE = httpx.Limits(max_keepalive_connections=0)
SETUP = """
import json
from datetime import UTC, datetime
from catalog.models import Node
from catalog.services import node_ticket
from kvconsole.infra.access import system, tenant_context
from tenants import selectors, services
who, now = system("walk"), datetime.now(UTC)
with tenant_context(who):
    tenant = selectors.tenant_by_slug("walk") or services.tenant_create(
        slug="walk", name="Walk", erasure_scope="label", actor=who)
    ns = services.namespace_resolve(tenant=tenant, model="ref-64", actor=who)
    made = {}
    for node in Node.objects.all():
        ticket = node_ticket(node=node, namespace=ns, now=now)
        made[node.name] = dict(url=node.agent_url, id=str(node.id), ticket={
            f: v.hex() if isinstance(v, bytes) else v
            for f in ticket.__struct_fields__ if (v := getattr(ticket, f)) is not None})
    tokens = {
        "gateway": services.token_issue("gateway", roles=["gateway"], holder="g1", actor=who)[1],
        "other": services.token_issue("gateway", roles=["gateway"], holder="g2", actor=who)[1],
        "member": services.token_issue("service", tenant_id=tenant.id, roles=["tenant-member"], actor=who)[1],
    }
    foreign = services.tenant_create(slug="foreign", name="Foreign", actor=who)
    tokens["stranger"] = services.token_issue("service", tenant_id=foreign.id, roles=["tenant-member"], actor=who)[1]
print(json.dumps(dict(nodes=made, tokens=tokens, digest=bytes(ns.digest).hex(), tenant=str(tenant.id))))
"""


class Routed:
    """Everything runs; `walk` is a tenant with a namespace, and n1 holds the chain `keys`."""

    def __init__(self, console, *nodes: str, lines: tuple[Line, ...] = ()) -> None:
        """`lines`: ways to PostgreSQL and Valkey that the router alone uses."""
        self.console = console
        console.start("web", "signer", "ingest", "worker", "beat")
        if lines:
            console.site.database = {**console.site.database, "KVC_DB_PORT": str(lines[0].port)}
            whole = urlsplit(console.site.valkey_url)
            console.site.valkey_url = whole._replace(
                netloc=whole.netloc.replace(f":{whole.port}", f":{lines[1].port}")
            ).geturl()
        console.start("router")
        console.seed()
        console.nodes(*(nodes or ("n1", "n2")))
        made = json.loads(console.manage("shell", "-v", "0", "-c", SETUP).splitlines()[-1])
        self.nodes, self.tokens, self.digest = made["nodes"], made["tokens"], bytes.fromhex(made["digest"])
        self.url = console.site.url("router")
        self.http = httpx.Client(trust_env=False, timeout=15, limits=ALONE)

    def drive(self, node: str, numbers: list[int], tokens: int = 512) -> None:
        """The node prefills these chains of one hash each, with a ticket of before."""
        place = self.nodes[node]
        ticket = {**place["ticket"], "ns": self.digest, "mac": bytes.fromhex(place["ticket"]["mac"])}
        requests = [
            {"request": str(uuid.uuid4()), "ns": self.digest, "gen": ticket["gen"], "hash_ids": [n],
             "hash_tokens": tokens, "input_length": tokens, "output_length": 0, "session": None}
            for n in numbers
        ]  # fmt: skip
        body = msgspec.msgpack.encode({"ticket": ticket, "requests": requests})
        answer = self.http.post(f"{place['url']}/v1/requests", content=body)
        assert answer.status_code == 200, answer.text

    def chain(self, blocks: int, seconds: float = 20) -> bytes:
        """The longest chain in the catalog, 16 bytes a key, once it has so many blocks."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with psycopg.connect(self.console.database.dsn("ingest")) as cx:
                rows = cx.execute(
                    "SELECT s.keys FROM catalog_segment s JOIN catalog_keyspace k ON k.id = s.keyspace"
                    " WHERE k.digest = %s ORDER BY length(s.keys) DESC LIMIT 1", (self.digest,)
                ).fetchall()  # fmt: skip
            if rows and len(rows[0][0]) >= 16 * blocks:
                return bytes(rows[0][0])[: 16 * blocks]
            time.sleep(0.1)
        raise AssertionError("the chain is not in the catalog")

    def route(self, token: str = "gateway", **body: Any) -> httpx.Response:
        """POST /route."""
        fields = {"tenant": "walk", "model": "ref-64", **body}
        return self.http.post(f"{self.url}/api/v1/route", json={k: v for k, v in fields.items() if v is not None},
                              headers={"Authorization": f"Bearer {self.tokens[token]}"})  # fmt: skip

    def post(self, path: str, body: Any, token: str = "gateway") -> httpx.Response:
        """POST of anything."""
        headers = {"Authorization": f"Bearer {self.tokens[token]}"}
        return self.http.post(f"{self.url}/api/v1/{path}", json=body, headers=headers)

    def until(self, good, seconds: float = 15, **body: Any) -> dict[str, Any]:
        """The first answer that is good."""
        deadline, last = time.monotonic() + seconds, None
        while time.monotonic() < deadline:
            last = self.route(**body)
            if last.status_code == 200 and good(last.json()):
                return last.json()
            time.sleep(0.1)
        raise AssertionError(last.text if last is not None else "nothing was asked")

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the database says, as the router's role."""
        with psycopg.connect(self.console.database.dsn("router")) as cx:
            return cx.execute(query, values).fetchall()
