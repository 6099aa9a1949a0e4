"""Real processes behind a broker that loses, doubles and lies, and kills while a deletion runs: the same certificate.

The short form; each process killed in turn, with seeds: `tests/faults/test_operations.py`.
"""

import json
import random
import time

import psycopg
import pytest

from catalog.services import TICKET_SECONDS
from kvconsole.celery import app
from tests.catalog.test_walk_deletion import MAKE, Api, drive, facts, until
from tests.faults.brokers import QUEUE, READER, Between, forged, told_falsely
from tests.faults.ends import alike, ended, once, said

pytestmark = [pytest.mark.walk, pytest.mark.timeout(400)]
BLOCKS = 32
"""Of one request."""
LABELS = ["agent", "calm", "lossy", "killed", "waiting", "kept"]
SEED = 20261130
DONE = ("Erased", "Verified", "Concluded")
HELD = """
SELECT coalesce(sum(h.blocks), 0)::int FROM catalog_keyspace k JOIN catalog_holding h ON h.keyspace = k.id
  JOIN catalog_owner o ON o.id = h.owner AND NOT o.retired WHERE k.digest = %s
"""
COUNTS = """
SELECT (SELECT count(*) FROM catalog_operation), (SELECT count(*) FROM audit_certificate),
       (SELECT count(*) FROM catalog_operation WHERE concluded_at IS NOT NULL),
       (SELECT count(*) FROM catalog_step WHERE kind IN ('erase', 'shred') AND sent_at IS NOT NULL),
       (SELECT count(*) FROM tenants_namespace WHERE min_gen > 1), (SELECT count(*) FROM audit_approval),
       (SELECT count(*) FROM tenants_tenant WHERE state <> 'active'), (SELECT count(*) FROM tenants_user)
"""


class Site:
    """A console with one node and a little of each label; `agent`'s blocks lie deepest."""

    def __init__(self, console, database, between):
        self.console, self.database, self.between = console, database, between
        console.start("web", "ingest", "signer", "sequencer")
        between.start_worker()
        console.seed()
        console.nodes("n1", tiers=("hbm=1MiB", "dram=512KiB", "ssd=8MiB"))
        self.ns = {}
        self.fill("bulk", numbers=1)  # others' arenas are laid by then, and what follows fits
        self.api = Api(console, self.fill(*LABELS, "bulk")["token"])

    def fill(self, *labels, numbers=60):
        """Each label has a request's blocks, in this order, and the bulk many; others' arenas may be in the way."""
        code = MAKE.replace('["first", "second"]', json.dumps(LABELS))

        def filled():
            made = json.loads(self.console.manage("shell", "-v", "0", "-c", code).splitlines()[-1])
            of = {place["label"]: place for place in made["places"]}
            self.ns = {label: bytes.fromhex(place["ns"]) for label, place in of.items()}
            began = time.monotonic()
            for label in labels:
                if time.monotonic() - began > TICKET_SECONDS - 10.0:
                    return None  # a slow machine: again, with new tickets
                place = of[label]
                place["ticket"] = {k: bytes.fromhex(v) if k in ("ns", "mac") else v for k, v in place["ticket"].items()}
                drive(place, range(numbers) if label == "bulk" else [1])
            time.sleep(1.0)
            return made if all(self.held(label) >= BLOCKS for label in labels) else None

        return until(filled, lambda: {label: self.held(label) for label in labels})

    def ask(self, query, *values):
        with psycopg.connect(self.database.dsn("superuser"), autocommit=True) as cx:
            return cx.execute(query, values or None).fetchone()

    def held(self, label):
        return self.ask(HELD, self.ns[label])[0]

    def asked(self, label, **more):
        plan = self.api.post("/deletion-plans", {"selector": {"tenant": "walk", "label": label}})
        assert plan["risk"] != "R3", plan["reasons"]
        body = {"plan_id": plan["id"], "plan_hash": plan["plan_hash"], "reason": "the walk",
                "confirm_phrase": plan["confirm_phrase"], **more}  # fmt: skip
        return self.api.post("/deletions", body)["id"]

    def end(self, label, operation):
        found = until(lambda: ended(self.api, operation), lambda: self.shown(label, operation), 150)
        assert found["state"] == "completed", json.dumps(found, indent=1)
        assert self.held(label) == 0
        once(self.database.dsn("superuser"), operation)
        return said(self.api.get(f"/certificates/{found['certificate']}.json"))

    def shown(self, label, operation):
        return label + json.dumps(self.api.get(f"/operations/{operation}"), indent=1)


def test_whatever_becomes_of_messages_and_processes_the_certificate_is_the_same(console, fresh_database, tmp_path):
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    with Between(console) as between:
        site = Site(console, fresh_database, between)
        ends = [("calm", site.end("calm", site.asked("calm")))]
        _stolen(site, tmp_path / "trap")
        between.lossy = True
        console.start("beat")
        until(lambda: between.lost and between.doubled, lambda: between.taken)
        ends.append(("lossy", site.end("lossy", site.asked("lossy"))))
        ends.append(("killed", _killed(site, "killed", rng, "worker", "signer")))
        assert site.held("kept") == BLOCKS
        ends.append(("agent", _killed(site, "agent", rng, "n1")))
        tiers = alike(ends)
    assert {"ssd"} < set(tiers), tiers


def _killed(site, label, rng, *parts):
    """These are killed while the deletion runs, at a moment of chance, and are there again."""
    operation = site.asked(label)
    time.sleep(rng.random() * 0.8)
    for part in parts:
        site.console.kill(part)
    for part in parts:
        if part == "worker":
            site.between.start_worker()
        else:
            site.console.start(part)
    return site.end(label, operation)


def _stolen(site, trap):
    """Somebody has the broker: what nobody asked for or what is not due is not done, and nothing false is shown."""
    waiting = site.asked("waiting", grace_seconds=3600)
    until(lambda: facts(site.api.get(f"/operations/{waiting}"))["Unroutable"] == "true", "it is fenced", 60)
    before = site.ask(COUNTS), site.held("kept"), site.held("waiting")
    shown = site.api.get(f"/operations/{waiting}")
    app.loader.import_default_modules()
    tasks = sorted(name for name in app.tasks if not name.startswith("celery."))
    ids = [waiting, shown["plan_id"], site.ns["kept"].hex(), str(site.ask("SELECT id FROM catalog_node")[0])]
    with site.between.client(READER) as broker:
        sent = list(forged(ids, tasks, trap))
        broker.lpush(QUEUE, *sent)
        told_falsely(broker)
        until(lambda: not broker.llen(QUEUE), lambda: f"{broker.llen(QUEUE)} of {len(sent)} are left", 120)
        broker.lpush(QUEUE, b"not json")
        told_falsely(broker)
        until(lambda: not broker.llen(QUEUE), "it was taken", 30)
    time.sleep(1.5)
    assert (site.ask(COUNTS), site.held("kept"), site.held("waiting")) == before
    now = site.api.get(f"/operations/{waiting}")
    same = ("state", "done", "certificate", "generation", "paused", "t_fence", "t_erase", "t_verify", "error")
    assert {name: now[name] for name in same} == {name: shown[name] for name in same}
    assert not [one for one in now["conditions"] if one["type"] in DONE and one["status"] == "true"]
    assert now["progress"]["percent"] == shown["progress"]["percent"]
    assert not trap.exists()
    if site.console.processes["worker"].poll() is not None:  # what is no message may end it: then it is started again
        site.between.start_worker()
