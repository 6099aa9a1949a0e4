"""Real processes and a real agent: a limit is kept, a class stays in memory, every attempt is accounted for."""

import json
import time
import uuid

import httpx
import msgspec
import psycopg
import pytest

pytestmark = [pytest.mark.walk, pytest.mark.timeout(240)]
KIB = 1024
LIMIT = 256 * KIB
MAKE = """
import json
from datetime import UTC, datetime
from catalog.models import Node
from catalog.quotas import quota_set
from catalog.services import node_ticket
from kvconsole.infra.access import system, tenant_context
from tenants import selectors, services
who, now = system("walk"), datetime.now(UTC)
with tenant_context(who):
    tenant = selectors.tenant_by_slug("walk") or services.tenant_create(
        slug="walk", name="Walk", classes=["restricted"], erasure_scope="class", actor=who)
    ns = services.namespace_resolve(tenant=tenant, model="ref-64", data_class="restricted", actor=who)
    {act}
    node = Node.objects.get(name="n1")
    ticket = node_ticket(node=node, namespace=ns, now=now)
print(json.dumps(dict(tenant=str(tenant.id), ns=bytes(ns.digest).hex(), url=node.agent_url,
                      ticket=dict((k, v.hex() if isinstance(v, bytes) else v) for k, v in
                                  ((f, getattr(ticket, f)) for f in ticket.__struct_fields__)))))
"""
QUOTA = (
    "quota_set(tenant=tenant.id, tiers=dict(hbm=dict(limit_bytes={size})), requests_per_second=None,"
    " deletions_per_hour=None, evict=True, actor=who, now=now)"
)


def make(console, act="pass"):
    got = json.loads(console.manage("shell", "-v", "0", "-c", MAKE.replace("{act}", act)).splitlines()[-1])
    for name in ("ns", "mac"):
        if name in got["ticket"]:
            got["ticket"][name] = bytes.fromhex(got["ticket"][name])
    return got


def drive(place, numbers, prompt=512):
    requests = [
        {"request": str(uuid.uuid4()), "ns": place["ticket"]["ns"], "gen": place["ticket"]["gen"], "hash_ids": [n],
         "hash_tokens": 512, "input_length": prompt, "output_length": 0, "session": None}
        for n in numbers
    ]  # fmt: skip
    body = msgspec.msgpack.encode({"ticket": place["ticket"], "requests": requests})
    answer = httpx.post(f"{place['url']}/v1/requests", content=body, trust_env=False, timeout=30)
    assert answer.status_code == 200, answer.text
    return msgspec.msgpack.decode(answer.content)["results"]


def until(check, what, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (got := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return got


def test_a_limit_and_a_class_are_kept_end_to_end(console, fresh_database):
    console.start("web", "ingest", "signer", "worker", "beat")
    console.seed()
    console.node("n1", tiers=("hbm=1MiB", "ssd=4MiB"))
    place = make(console, QUOTA.replace("{size}", str(LIMIT)))
    with psycopg.connect(fresh_database.dsn("superuser"), autocommit=True) as cx:

        def rows(query, *values):
            return cx.execute(query, values).fetchall()

        tenant = uuid.UUID(place["tenant"])
        grants = "SELECT given, ceiling FROM catalog_allowance WHERE tenant_id = %s AND tier = 'hbm'"
        until(lambda: rows(grants, tenant) == [(LIMIT, LIMIT)], "the agent applies its allowance")
        for _ in range(2):  # asked twice, blocks are worth their way down
            for start in range(0, 60, 10):
                drive(place, [n for n in range(start, start + 10) for _ in range(2)])

        def status():
            return httpx.get(f"{place['url']}/v1/status", trust_env=False).json()

        until(lambda: status()["idle"], "everything is told")
        state = status()
        assert state["tiers"]["ssd"]["blocks"] == 0
        assert state["tiers"]["hbm"]["blocks"] <= LIMIT // KIB
        attempts = state["not_taken_blocks"].get("ssd/data-class", 0)
        assert attempts > 100, (state["not_taken_blocks"], state["dropped_blocks"], state["tiers"], state["allowances"])
        held = "SELECT tier, bytes FROM catalog_tenanttier WHERE tenant_id = %s AND bytes > 0"
        until(lambda: dict(rows(held, tenant)).get("hbm"), "what it holds is counted")
        assert set(dict(rows(held, tenant))) <= {"hbm"}
        counted = "SELECT count, told FROM catalog_attempt WHERE tenant_id = %s AND tier = 'ssd'"
        until(lambda: rows(counted, tenant) and rows(counted, tenant)[0][0] == attempts, "all attempts are counted")
        until(lambda: rows(counted, tenant)[0][1] > 0, "an event tells them")
        told = "SELECT convert_from(body, 'UTF8')::json->'data' FROM audit_event WHERE event_type = 753"
        events = [event for (event,) in rows(told + " AND tenant_id = %s", tenant) if event["tier"] == "ssd"]
        assert sum(event["count"] for event in events) == rows(counted, tenant)[0][1]
        for name in ("worker", "beat"):  # the rest does not need Celery
            console.kill(name)
        make(console, QUOTA.replace("dict(limit_bytes={size})", "dict(limit_bytes=0), dram=dict(limit_bytes=0)"))
        until(lambda: rows(held, tenant) == [], "nothing is held any more")
        assert drive(make(console), [1])[0].get("code", "") == ""  # computed, not kept
        assert status()["tiers"]["hbm"]["blocks"] == 0
