"""Real processes and real agents: blocks go down a tier, to another node and off a drained one; pinned ones stay."""

import json
import time
from datetime import UTC, datetime, timedelta

import httpx
import psycopg
import pytest

from tests.catalog.test_walk_deletion import MAKE, drive, until

pytestmark = [pytest.mark.walk, pytest.mark.timeout(400)]
SCOPES = ["migrations:write", "operations:read", "pins:write", "pins:read", "nodes:write", "prefetches:write"]
TOKEN = """
token = services.token_issue("service", roles=["operator"], scopes=%r, actor=who)[1]
print(json.dumps(dict(places=found, token=token, nodes={n.name: str(n.id) for n in Node.objects.all()})))
"""
BEFORE = 6 * 32
"""Blocks of six requests."""
HELD = """
SELECT n.name, o.tier, coalesce(sum(h.blocks), 0)::int FROM catalog_keyspace k JOIN catalog_holding h
    ON h.keyspace = k.id JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired JOIN catalog_source s
    ON s.id = o.source_id JOIN catalog_node n ON n.id = s.node_id
 WHERE k.digest = %s AND h.blocks > 0 GROUP BY 1, 2
"""


def test_blocks_move_and_pinned_ones_stay(console, fresh_database):
    console.start("web", "ingest", "signer", "sequencer")
    console.seed()
    console.nodes("n1", "n2", tiers=("hbm=4MiB", "dram=4MiB", "ssd=8MiB"))
    code = MAKE.split("    token = ")[0] + "\n    ".join(["", *(TOKEN % SCOPES).strip().splitlines()])
    made = json.loads(console.manage("shell", "-v", "0", "-c", code).splitlines()[-1])
    of = {place["label"]: bytes.fromhex(place["ns"]) for place in made["places"]}
    http = httpx.Client(
        base_url=console.url + "/api/v1", trust_env=False, timeout=30,
        headers={"Authorization": f"Bearer {made['token']}"}, limits=httpx.Limits(max_keepalive_connections=0),
    )  # fmt: skip

    def post(path, body, status=202):
        answer = http.post(path, json=body, headers={"Idempotency-Key": datetime.now(UTC).isoformat()})
        assert answer.status_code == status, answer.text
        return answer.json()

    def ended(operation):
        found = http.get(f"/operations/{operation['id']}").json()
        return found if found["done"] else None

    def receipts(operation):
        query = ("SELECT kind, attempt, state, code, receipt -> 'body' -> 'detail' FROM catalog_step"
                 " WHERE operation = %s")  # fmt: skip
        return cx.execute(query, (operation["id"],)).fetchall()

    def moved(path, body, state="completed"):
        operation = post(path, body)
        found = until(
            lambda: ended(operation), lambda: json.dumps(http.get(f"/operations/{operation['id']}").json(), indent=1)
        )
        assert found["state"] == state, (json.dumps(found, indent=1), receipts(operation))
        return found

    with psycopg.connect(fresh_database.dsn("superuser"), autocommit=True) as cx:

        def held(label):
            return {(node, tier): n for node, tier, n in cx.execute(HELD, (of[label],)).fetchall()}

        def filled():
            places = _places(console, code)
            for label in of:
                drive(places[label, "n1"], range(6))
            time.sleep(0.5)
            return all(sum(held(label).values()) == BEFORE for label in of)

        # what others' arenas keep for themselves before each node's share is known leaves no room for a moment
        until(filled, lambda: {label: held(label) for label in of})
        before = BEFORE
        found = moved("/migrations", {"selector": {"tenant": "walk", "label": "first"}, "from_tier": "hbm",
                                      "to_tier": "ssd", "reason": "colder"})  # fmt: skip
        assert found["progress"]["percent"] == 100
        assert found["certificate"] is None
        until(lambda: held("first") == {("n1", "ssd"): before}, lambda: held("first"), 10)
        moved("/migrations", {"selector": {"tenant": "walk", "label": "first"}, "from_tier": "ssd", "to_tier": "ssd",
                              "to_node": "n2"})  # fmt: skip
        until(lambda: held("first") == {("n2", "ssd"): before}, lambda: held("first"), 10)
        read = drive(_places(console, code)["first", "n2"], range(6))
        assert all(r.get("hit_tokens") for r in read), read  # n2 reads what it took
        until(lambda: ("n2", "hbm") in held("first"), lambda: held("first"), 30)  # what was read came up
        _pinned(post, http, held, of)
        moved(f"/nodes/{made['nodes']['n2']}:drain", {"reason": "maintenance"})
        assert cx.execute("SELECT state, wanted FROM catalog_node WHERE name = 'n2'").fetchone()[1] == "cordoned"
        until(lambda: not [n for label in of for n, _ in held(label) if n == "n2"], lambda: held("first"), 10)
        # what came up on n2 may be taken into memory first: then it is on n1, and not a second time on its disk
        assert sum(held("first").values()) == before, held("first")
    events = json.loads(console.manage("shell", "-v", "0", "-c", EVENTS).splitlines()[-1])
    assert events["order.approved"] == events["operation.requested"] == events["operation.concluded"] == 3
    assert (events["pin.created"], events["pin.removed"]) == (1, 1)


def _places(console, code):
    """Where requests go, by label and node, with tickets of now."""
    places = json.loads(console.manage("shell", "-v", "0", "-c", code).splitlines()[-1])["places"]
    for place in places:
        place["ticket"] = {k: bytes.fromhex(v) if k in ("ns", "mac") else v for k, v in place["ticket"].items()}
    return {(place["label"], place["node"]): place for place in places}


def _pinned(post, http, held, of):
    """What is pinned as a whole is nobody's to move; once it is not, it can be."""
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    pin = post("/pins", {"namespace": of["second"].hex(), "until": soon, "reason": "a launch"}, 201)
    assert [one["id"] for one in http.get("/pins").json()["items"]] == [pin["id"]]
    before = held("second")
    refused = post("/migrations", {"selector": {"tenant": "walk", "label": "second"}, "from_tier": "hbm",
                                   "to_tier": "ssd"}, 409)  # fmt: skip
    assert refused["code"] == "all-pinned"
    assert held("second") == before
    late = {"namespace": of["first"].hex(), "prefix": ["ab" * 32], "to_node": "n1", "to_tier": "dram",
            "need_at": (datetime.now(UTC) + timedelta(seconds=1)).isoformat()}  # fmt: skip
    assert post("/prefetches", late, 409)["code"] == "no-slack"
    assert http.delete(f"/pins/{pin['id']}").status_code == 204
    assert http.get(f"/pins/{pin['id']}").status_code == 404


EVENTS = """
import json
from collections import Counter
from audit.models import Event
from audit.registry import TYPES
names = {kind.number: name for name, kind in TYPES.items()}
print(json.dumps(Counter(names[e] for e in Event.objects.values_list("event_type", flat=True))))
"""
