"""What the accept tests of operations stand on: a fleet with blocks of several labels, and raw looks at its media."""

import json
import os
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import redis

from tests.accept.tenancy import Caller, People
from tests.running import Console

SECONDS = 120.0
CANARY_BYTES = 32
FRESH_SECONDS = 15.0
MAKE = """
import json, sys
from datetime import UTC, datetime
from catalog.models import Node
from catalog.services import node_ticket
from kvconsole.infra.access import system, tenant_context
from tenants import selectors, services
who, now, found = system("walk"), datetime.now(UTC), []
with tenant_context(who):
    tenant = selectors.tenant_by_slug("erase") or services.tenant_create(
        slug="erase", name="Erase", erasure_scope="label", actor=who)
    for label in {labels!r}:
        ns = services.namespace_resolve(tenant=tenant, model="ref-64", label=label, actor=who)
        for node in Node.objects.order_by("name"):
            ticket = node_ticket(node=node, namespace=ns, now=now)
            said = {{f: getattr(ticket, f) for f in ticket.__struct_fields__}}
            found.append(dict(label=label, url=node.agent_url, node=node.name, ns=bytes(ns.digest).hex(),
                              ticket={{k: v.hex() if isinstance(v, bytes) else v for k, v in said.items()}}))
print(json.dumps(found))
"""


class Fleet:
    """Agents with blocks, and the people who delete them."""

    def __init__(self, console: Console, labels: Sequence[str] = ()) -> None:
        """`labels`: are filled soon after each other; what is needed for that is asked for at once."""
        self.console, self.people, self._labels = console, People(console), labels
        self._places: dict[str, dict[str, dict[str, Any]]] = {}
        self._places_at = 0.0
        self.namespaces: dict[str, bytes] = {}
        for tenant in (
            "acme-code",
            "borealis-bank",
            "cobalt-support",
        ):  # what they are guaranteed would take whole tiers
            self.people.browser("operator").put(f"/tenants/{tenant}/quotas", {"tiers": {}})

    # --- blocks ---

    def fill(self, label: str, copies: Mapping[str, Sequence[int]]) -> int:
        """Prompts with these numbers were served on these nodes, each a run of 512 tokens; tokens that were found."""
        places = self._places_of(label)
        self.namespaces[label] = bytes.fromhex(places[next(iter(copies))]["ns"])
        with ThreadPoolExecutor(len(copies)) as pool:
            done = [pool.submit(self._drive, places[node], numbers) for node, numbers in copies.items()]
            return sum(one.result() for one in done)

    def _places_of(self, label: str) -> dict[str, dict[str, Any]]:
        """Node → where it is, and a ticket for the label's namespace that is good for half a minute."""
        if label not in self._places or time.monotonic() - self._places_at > FRESH_SECONDS:
            labels = list(self._labels) if label in self._labels else [label]
            self._places, self._places_at = {one: {} for one in labels}, time.monotonic()
            made = self.console.manage("shell", "-v", "0", "-c", MAKE.format(labels=labels), timeout=120)
            for place in json.loads(made.splitlines()[-1]):
                self._places[place["label"]][place["node"]] = place
        return self._places.pop(label)

    def _drive(self, place: dict[str, Any], numbers: Sequence[int]) -> int:
        ticket = {k: bytes.fromhex(v) if k in ("ns", "mac") else v for k, v in place["ticket"].items()}
        hits = 0
        for at in range(0, len(numbers), 50):
            requests = [
                {"request": str(uuid.uuid4()), "ns": ticket["ns"], "gen": ticket["gen"], "hash_ids": [number],
                 "hash_tokens": 512, "input_length": 512, "output_length": 0, "session": None}
                for number in numbers[at : at + 50]
            ]  # fmt: skip
            body = msgspec.msgpack.encode({"ticket": ticket, "requests": requests})
            answer = httpx.post(f"{place['url']}/v1/requests", content=body, trust_env=False, timeout=60)
            assert answer.status_code == 200, answer.text
            results = msgspec.msgpack.decode(answer.content)["results"]
            assert {result.get("code", "") for result in results} == {""}, results
            hits += sum(result.get("hit_tokens", 0) for result in results)
        return hits

    # --- deletions ---

    def plan(self, caller: Caller, *, options: dict[str, Any] | None = None, **selector: Any) -> dict[str, Any]:
        """A frozen plan."""
        return dict(caller.post("/deletion-plans", {"selector": selector, **({"options": options} if options else {})}))

    def start(self, caller: Caller, plan: dict[str, Any], **more: Any) -> httpx.Response:
        """The answer to a request for this plan, with everything that its risk asks of the requester."""
        body = {"plan_id": plan["id"], "plan_hash": plan["plan_hash"], "reason": "seen from outside",
                "confirm_phrase": plan["confirm_phrase"], **more}  # fmt: skip
        return caller("POST", "/deletions", body, **{"Idempotency-Key": str(uuid.uuid4())})

    def delete(self, *, options: dict[str, Any] | None = None, **selector: Any) -> str:
        """The operation that deletes what this selects; a second person agrees where the risk asks for one."""
        destroyer = self.people.browser("destroyer")
        answer = self.start(destroyer, self.plan(destroyer, options=options, **selector))
        assert answer.status_code == 202, answer.text
        found = answer.json()
        if found["state"] == "awaiting_approval":
            self.people.browser("approver").post(f"/approvals/{found['approval']}:approve", {"reason": "agreed"})
        return str(found["id"])

    def operation(self, ident: str) -> dict[str, Any]:
        """What the console says of it now."""
        return dict(self.people.browser("operator").get(f"/operations/{ident}"))

    def until(self, ident: str, check: Callable[[dict[str, Any]], Any], what: str, seconds: float = SECONDS) -> Any:
        """The operation as it was when this held of it.

        Raises:
            AssertionError: it did not within this time; the message holds what the console says of it.
        """
        deadline = time.monotonic() + seconds
        while not check(found := self.operation(ident)):
            assert time.monotonic() < deadline, f"{what}: {json.dumps(found, indent=1)[:6000]}"
            time.sleep(0.05)
        return found

    def certificate(self, ident: str, seconds: float = SECONDS) -> dict[str, Any]:
        """The certificate in which the operation ended."""
        found = self.until(ident, lambda now: now["done"], "it ends", seconds)
        assert found["state"] == "completed", json.dumps(found, indent=1)[:6000]
        return dict(self.people.browser("operator").get(f"/certificates/{found['certificate']}.json"))


def fact(found: dict[str, Any], name: str) -> str:
    """The status of a condition."""
    return next((str(one["status"]) for one in found["conditions"] if one["type"] == name), "absent")


# --- raw media ---------------------------------------------------------------------------


def media(console: Console, name: str) -> dict[str, list[bytes]]:
    """Tier → everything that lies on the node's media, as this process reads it: arenas, files; no words of the agent.

    The keys a node holds are not its media: its key file and journal are read as `files`.
    """
    pid = console.processes[name].pid if name in console.processes else None
    found: dict[str, list[bytes]] = {}
    for link in Path(f"/proc/{pid}/fd").iterdir() if pid else ():
        label = re.search(r"/memfd:kvc:[^:]+:([a-z]+):", os.readlink(link))
        if label:
            found.setdefault(label[1], []).append(link.read_bytes())
    for path in sorted(console.agents[name].rglob("*")):
        if path.is_file() and not path.is_symlink():
            found.setdefault("ssd" if "ssd" in path.parts else "files", []).append(path.read_bytes())
    return found


def remote(console: Console) -> dict[str, list[bytes]]:
    """Everything in the Valkey that the nodes share."""
    store, found = redis.Redis.from_url(console.broker.url), []
    for key in store.scan_iter(count=1000):
        kind = store.type(key)
        if kind == b"string":
            found += [key, store.get(key)]
        elif kind == b"hash":
            found += [key, *(part for pair in store.hgetall(key).items() for part in pair)]
    return {"remote": found}


def everything(console: Console) -> dict[tuple[str, str], list[bytes]]:
    """(node, tier) → what lies there; the shared store stands under the node ''."""
    seen = {(name, tier): parts for name in console.agents for tier, parts in media(console, name).items()}
    return seen | {("", tier): parts for tier, parts in remote(console).items()}


def occurrences(parts: Iterable[bytes], canaries: Iterable[bytes]) -> int:
    """How many of the canaries are in any of the parts."""
    held = list(parts)
    return sum(any(canary in part for part in held) for canary in canaries)


def fragments(old: Iterable[bytes], new: Iterable[bytes], count: int, seed: int) -> list[bytes]:
    """Canaries of 32 bytes that lie in `new` and nowhere in `old`; none of them is all one byte."""
    chance, before = random.Random(seed), list(old)
    parts = [part for part in new if len(part) >= CANARY_BYTES]
    found: list[bytes] = []
    for _ in range(count * 400):
        if len(found) == count or not parts:
            break
        part = chance.choices(parts, [len(p) for p in parts])[0]
        at = chance.randrange(len(part) - CANARY_BYTES + 1)
        piece = part[at : at + CANARY_BYTES]
        if len(set(piece)) > 8 and not any(piece in other for other in before):
            found.append(piece)
    return found
