"""Real processes and real agents, no broker's worker: a deletion is fenced at once, erased, verified and certified.

Of a namespace and of a part of one; what becomes of it where a node is off: `tests/accept/test_operations_return.py`.
"""

import json
import time
import uuid

import httpx
import msgspec
import psycopg
import pytest

pytestmark = [pytest.mark.walk, pytest.mark.timeout(400)]
MAKE = """
import json
from datetime import UTC, datetime
from catalog.models import Node
from catalog.services import node_ticket
from kvconsole.infra.access import system, tenant_context
from tenants import selectors, services
who, now, found = system("walk"), datetime.now(UTC), []
with tenant_context(who):
    for slug, labels in (("walk", ["first", "second"]), ("many", ["bulk"])):
        tenant = selectors.tenant_by_slug(slug) or services.tenant_create(
            slug=slug, name="Walk", erasure_scope="label", actor=who)
        for label in labels:
            ns = services.namespace_resolve(tenant=tenant, model="ref-64", label=label, actor=who)
            for node in Node.objects.order_by("name"):
                ticket = node_ticket(node=node, namespace=ns, now=now)
                said = {f: getattr(ticket, f) for f in ticket.__struct_fields__}
                found.append(dict(label=label, url=node.agent_url, node=node.name, ns=bytes(ns.digest).hex(),
                                  gen=ns.generation,
                                  ticket={k: v.hex() if isinstance(v, bytes) else v for k, v in said.items()}))
    token = services.token_issue("service", roles=["destructive-operator", "operator"],
                                 scopes=["deletions:write", "deletions:read", "operations:read", "deletions:destroy",
                                         "prefixes:write"],
                                 actor=who)[1]
print(json.dumps(dict(places=found, token=token)))
"""


def make(console):
    got = json.loads(console.manage("shell", "-v", "0", "-c", MAKE).splitlines()[-1])
    for place in got["places"]:
        place["ticket"] = {k: bytes.fromhex(v) if k in ("ns", "mac") else v for k, v in place["ticket"].items()}
    return got


def drive(place, numbers):
    requests = [
        {"request": str(uuid.uuid4()), "ns": place["ticket"]["ns"], "gen": place["ticket"]["gen"], "hash_ids": [n],
         "hash_tokens": 512, "input_length": 512, "output_length": 0, "session": None}
        for n in numbers
    ]  # fmt: skip
    body = msgspec.msgpack.encode({"ticket": place["ticket"], "requests": requests})
    answer = httpx.post(f"{place['url']}/v1/requests", content=body, trust_env=False, timeout=30)
    assert answer.status_code == 200, answer.text
    return msgspec.msgpack.decode(answer.content)["results"]


def until(check, what, seconds=90.0):
    deadline = time.monotonic() + seconds
    while not (got := check()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.1)
    return got


class Api:
    """What a service of the fleet may call."""

    def __init__(self, console, token):
        self.url = console.url + "/api/v1"
        bearer, none_kept = {"Authorization": f"Bearer {token}"}, httpx.Limits(max_keepalive_connections=0)
        self.http = httpx.Client(trust_env=False, timeout=30, headers=bearer, limits=none_kept)

    def get(self, path):
        answer = self.http.get(self.url + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path, body):
        answer = self.http.post(self.url + path, json=body, headers={"Idempotency-Key": str(uuid.uuid4())})
        assert answer.status_code < 300, answer.text
        return answer.json()

    def delete(self, *, options=None, **selector):
        """The operation that deletes what this selects."""
        plan = self.post("/deletion-plans", {"selector": selector, **({"options": options} if options else {})})
        assert plan["risk"] != "R3", (plan["reasons"], [(c["node"], c["tier"], c["blocks"]) for c in plan["cells"]])
        body = {"plan_id": plan["id"], "plan_hash": plan["plan_hash"], "reason": "the walk",
                "confirm_phrase": plan["confirm_phrase"]}  # fmt: skip
        return plan, self.post("/deletions", body)["id"]


def facts(found):
    return {one["type"]: one["status"] for one in found["conditions"]}


def test_deletions_of_a_namespace_and_of_a_part_end_in_certificates(console, fresh_database):
    console.start("web", "ingest", "signer", "sequencer")
    console.seed()
    console.nodes("n1", "n2", tiers=("hbm=1MiB", "dram=1MiB", "ssd=4MiB"))
    made = make(console)
    api = Api(console, made["token"])
    for place in sorted(made["places"], key=lambda place: place["label"]):  # the bulk first: one label is a small part
        drive(place, range(20) if place["label"] == "bulk" else [1])
    with psycopg.connect(fresh_database.dsn("superuser"), autocommit=True) as cx:

        def held(label):
            ns = bytes.fromhex(next(p["ns"] for p in made["places"] if p["label"] == label))
            query = ("SELECT coalesce(sum(h.blocks), 0)::int FROM catalog_keyspace k JOIN catalog_holding h"
                     " ON h.keyspace = k.id JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired"
                     " WHERE k.digest = %s AND k.generation = 1")  # fmt: skip
            return cx.execute(query, (ns,)).fetchone()[0]

        def written(label):  # rows follow the totals: which keys another node looks for is read from them
            ns = bytes.fromhex(next(p["ns"] for p in made["places"] if p["label"] == label))
            query = "SELECT 1 FROM catalog_keyspace k JOIN catalog_placement p ON p.keyspace = k.id WHERE k.digest = %s"
            return cx.execute(query, (ns,)).fetchone() is not None

        until(lambda: held("first") and held("second") and held("bulk") > 400, "blocks are in the catalog")
        until(lambda: written("first"), "the rows of blocks are written")
        _all_there(api, held)
        _a_part(api, held, cx)


def _a_part(api, held, cx):
    """A prompt's blocks and what continues them go alone: keys beside the commands, matched by half of each."""
    query = ("SELECT encode(substr(g.keys, 1, 16), 'hex') FROM catalog_segment g JOIN catalog_keyspace k"
             " ON k.id = g.keyspace JOIN tenants_namespace n ON n.digest = k.digest"
             " WHERE n.label = 'bulk' AND g.up IS NULL AND g.parent IS NULL ORDER BY g.id DESC LIMIT 1")  # fmt: skip
    before = held("bulk")
    ((key,),) = cx.execute(query).fetchall()
    plan, operation = api.delete(tenant="many", label="bulk", prefix=[key], options={"collateral": "none"})
    assert 0 < plan["blocks"] < before
    found = until(
        lambda: (now := api.get(f"/operations/{operation}"))["done"] and now,
        lambda: json.dumps(api.get(f"/operations/{operation}"), indent=1),
    )
    assert found["state"] == "completed", json.dumps(found, indent=1)
    assert held("bulk") == before - plan["blocks"], "no other block went"
    body = api.get(f"/certificates/{found['certificate']}.json")["body"]
    assert body["targets"][0]["keys"]["count"] > 0
    assert sum(copy["blocks"] for copy in body["copies"]) == plan["blocks"]
    assert not cx.execute("SELECT 1 FROM tenants_namespace WHERE label = 'bulk' AND min_gen > 1").fetchall()


def _all_there(api, held):
    plan, operation = api.delete(tenant="walk", label="first")
    assert plan["risk"] in ("R1", "R2"), plan["reasons"]
    assert plan["blocks"] == held("first") > 0
    started = time.monotonic()
    found = api.get(f"/operations/{operation}")
    assert found["t_fence"]
    until(lambda: facts(api.get(f"/operations/{operation}"))["Unroutable"] == "true", "nobody routes to it", 5)
    assert time.monotonic() - started < 3
    found = until(
        lambda: (now := api.get(f"/operations/{operation}"))["done"] and now,
        lambda: json.dumps(api.get(f"/operations/{operation}"), indent=1),
    )
    assert found["state"] == "completed", json.dumps(found, indent=1)
    assert {cell["state"] for cell in found["progress"]["cells"]} == {"verified"}
    assert held("first") == 0
    file = api.get(f"/certificates/{found['certificate']}.json")
    assert file["body"]["operation"] == operation
    assert file["body"]["seal"] is False  # not of production
    assert file["body"]["class"] >= 2, file["body"]
    assert {"erase", "verify", "probe"} <= {one["body"]["kind"] for one in file["body"]["receipts"]}
    held_there = {copy["tier"]: copy for copy in file["body"]["copies"] if copy["objects"]}
    assert "SELF_ATTESTED" not in {flag for copy in held_there.values() for flag in copy["flags"]}, held_there
    reached = {"hbm": 3, "dram": 3, "ssd": 4}  # another node read the memory; the key of the files is destroyed
    assert all(copy["class"] == reached[tier] for tier, copy in held_there.items()), held_there
    verdict = api.post("/certificates:verify", {"certificate": file})
    assert (verdict["valid"], verdict["operation"]) == (True, operation), verdict
    file["body"]["class"] += 1
    assert not api.post("/certificates:verify", {"certificate": file})["valid"]
