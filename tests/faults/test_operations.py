"""kill -9 of everything that has a hand in a deletion, around its sends and commits: the same certificate each time.

The short form, with fewer kills, and brokers that lose, double and lie: `tests/catalog/test_walk_faults.py`.
"""

import json
import random
import time

import pytest

from tests.audit.conftest import sealed as sealed
from tests.catalog.operations.test_engine_faults import same_whatever_ends
from tests.catalog.operations.world import a_world
from tests.catalog.test_walk_deletion import MAKE, Api, drive, make, until
from tests.faults.ends import alike, ended, once, said

PARTS = ("web", "worker", "beat", "signer", "sequencer", "ingest", "valkey", "postgres", "n1", "n2")
SEEDS = (20261130, 5)
SPREAD_SECONDS = 1.5
"""Within which a deletion that nothing disturbs is over, nearly: a kill may come at any of its sends and commits."""


@pytest.mark.slow
@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(0, 23, 2))
def test_a_connection_may_end_at_any_write(transactional_db, postgres, sealed, seed):
    with a_world(postgres, sealed) as world:
        world.node("n1")
        world.node("n2")
        print(f"seed {seed}: {same_whatever_ends(world, seed)} connections were lost")


@pytest.mark.slow
@pytest.mark.walk
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_whoever_is_killed_a_deletion_ends_in_the_same_certificate(doomed, seed):
    console, rng = doomed, random.Random(seed)
    print(f"seed {seed}")
    console.start("web", "ingest", "signer", "sequencer", "worker", "beat")
    console.seed()
    console.nodes("n1", "n2", tiers=("hbm=1MiB", "dram=512KiB", "ssd=8MiB"))
    api = Api(console, make(console)["token"])
    ends = []
    for number, part in enumerate(("", *PARTS)):
        label = f"kill{number}"
        operation = until(lambda label=label: _asked(console, api, label), f"{part}: a plan of {label}", 120)
        if part:
            time.sleep(rng.random() * SPREAD_SECONDS)
            _killed(console, part)

        def over(operation=operation):
            _revive(console)
            return ended(api, operation)

        found = until(over, lambda part=part, operation=operation: _shown(api, part, operation), 240)
        ends.append((part, said(api.get(f"/certificates/{found['certificate']}.json"))))
        once(console.database.dsn("superuser"), operation)
    print(alike(ends))


def _fill(console, label):
    """The label has blocks on each node, and others have many more."""
    code = MAKE.replace('"first", "second"', f'"{label}"')
    got = json.loads(console.manage("shell", "-v", "0", "-c", code, timeout=300).splitlines()[-1])
    for place in sorted(got["places"], key=lambda place: place["label"] != "bulk"):
        place["ticket"] = {k: bytes.fromhex(v) if k in ("ns", "mac") else v for k, v in place["ticket"].items()}
        drive(place, range(60) if place["label"] == "bulk" else [1])


def _asked(console, api, label):
    """Its deletion, once what was put is in the directory: a small part of each tier, as others' are there too."""
    _fill(console, label)
    time.sleep(1.0)
    plan = api.post("/deletion-plans", {"selector": {"tenant": "walk", "label": label}})
    if not plan["blocks"] or plan["risk"] == "R3":
        return None
    body = {"plan_id": plan["id"], "plan_hash": plan["plan_hash"], "reason": "the walk",
            "confirm_phrase": plan["confirm_phrase"]}  # fmt: skip
    return api.post("/deletions", body)["id"]


def _killed(console, part):
    """The part is gone without a word, and is there again."""
    if part == "valkey":
        console.broker.kill()
        console.broker.start()
    elif part == "postgres":
        console.database.postgres.kill()
        console.database.postgres.start()
    else:
        console.kill(part)
        console.start(part)


def _revive(console):
    """What ended because another was killed is started again, as a supervisor does."""
    for name in [name for name, process in console.processes.items() if process.poll() is not None]:
        console.processes.pop(name)
        console.start(name)


def _shown(api, part, operation):
    return f"{part}: {json.dumps(api.get(f'/operations/{operation}'), indent=1)}"
