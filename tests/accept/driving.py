"""How the accept tests put requests on a node: tickets as the console gives them, requests as a gateway sends them."""

import json
import uuid
from collections.abc import Iterable
from typing import Any

import httpx
import msgspec

from tests.running import Console

MAKE = """
import json
from datetime import UTC, datetime
from catalog.models import Node
from catalog.services import node_ticket
from kvconsole.infra.access import system, tenant_context
from tenants import services
who, now = system("accept"), datetime.now(UTC)
with tenant_context(who):
    ns = services.namespace_resolve(tenant={tenant!r}, model="ref-64", data_class={data_class!r}, actor=who)
    for node in Node.objects.filter(name__in={nodes!r}):
        ticket = node_ticket(node=node, namespace=ns, now=now)
        print(json.dumps(dict(name=node.name, url=node.agent_url, ticket=dict(
            (f, v.hex() if isinstance(v := getattr(ticket, f), bytes) else v) for f in ticket.__struct_fields__))))
"""


class Drive:
    """One tenant's requests for one class of data. A ticket lasts 30 s; then it is asked for anew."""

    def __init__(self, console: Console, tenant: str, nodes: Iterable[str], data_class: str = "") -> None:
        self.console, self.tenant, self.nodes, self.data_class = console, tenant, list(nodes), data_class
        self.places: dict[str, Any] = {}
        self.refresh()

    def refresh(self) -> None:
        """Tickets of now."""
        code = MAKE.format(tenant=self.tenant, nodes=self.nodes, data_class=self.data_class)
        for line in self.console.manage("shell", "-v", "0", "-c", code).splitlines():
            place = json.loads(line)
            ticket = place["ticket"]
            place["ticket"] = {k: bytes.fromhex(v) if k in ("ns", "mac") else v for k, v in ticket.items()}
            self.places[place["name"]] = place

    def send(self, node: str, numbers: Iterable[int], tokens: int = 512) -> list[Any]:
        """What the node answers to requests with these prompts (numbers; equal ones are equal prompts)."""
        place = self.places[node]
        requests = [
            {"request": str(uuid.uuid4()), "ns": place["ticket"]["ns"], "gen": place["ticket"]["gen"], "hash_ids": [n],
             "hash_tokens": 512, "input_length": tokens, "output_length": 0, "session": None}
            for n in numbers
        ]  # fmt: skip
        body = msgspec.msgpack.encode({"ticket": place["ticket"], "requests": requests})
        answer = httpx.post(f"{place['url']}/v1/requests", content=body, trust_env=False, timeout=60)
        if answer.status_code == 401 and "ticket-expired" in answer.text:
            self.refresh()
            return self.send(node, numbers, tokens)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return list(msgspec.msgpack.decode(answer.content)["results"])

    def status(self, node: str) -> dict[str, Any]:
        """The node's own account of itself."""
        found: dict[str, Any] = httpx.get(f"{self.places[node]['url']}/v1/status", trust_env=False, timeout=30).json()
        return found
