"""kill -9 of everything that has a hand in a deletion, around its sends and commits: the same certificate each time."""

import contextlib
import json
import random
import time
from datetime import UTC, datetime

import psycopg
import pytest

from tests.audit.conftest import sealed as sealed
from tests.catalog.operations.test_engine_faults import same_whatever_ends
from tests.catalog.operations.world import a_world
from tests.catalog.test_walk_deletion import MAKE, Api, drive, make, until

PARTS = ("web", "worker", "signer", "sequencer", "ingest", "n1", "n2", "valkey", "postgres")
SEED = 20261130


@pytest.mark.slow
@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(0, 23, 2))
def test_a_connection_may_end_at_any_write(transactional_db, postgres, sealed, seed):
    with a_world(postgres, sealed) as world:
        world.node("n1")
        world.node("n2")
        print(f"seed {seed}: {same_whatever_ends(world, seed)} connections were lost")


def killed(console, part):
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


def said(file):
    """What a certificate says of its copies, without ids, times and how much chance had put where."""
    body = file["body"]
    tiers = {c["tier"]: (c["class"], tuple(c["flags"])) for c in body["copies"] if c["objects"]}
    return body["flags"], body["exceptions"], tiers


@pytest.mark.slow
@pytest.mark.walk
@pytest.mark.timeout(3600)
def test_whoever_is_killed_a_deletion_ends_in_the_same_certificate(doomed):
    console, rng = doomed, random.Random(SEED)
    print(f"seed {SEED}")
    console.start("web", "ingest", "signer", "sequencer", "worker", "beat")
    console.seed()
    console.nodes("n1", "n2", tiers=("hbm=1MiB", "dram=1MiB", "ssd=4MiB"))
    made = make(console)
    api = Api(console, made["token"])
    for place in made["places"]:
        if place["label"] == "bulk":
            drive(place, range(20))
    ends = []
    for number, part in enumerate(("", *PARTS)):
        label, places = _fresh(console, number)
        for place in places:
            drive(place, [1])
        time.sleep(1.0)
        _, operation = api.delete(tenant="walk", label=label)
        if part:
            time.sleep(rng.random() * 1.5)
            killed(console, part)
        found = until(lambda operation=operation: _ended(api, operation), f"{part}: {operation}", 180)
        file = api.get(f"/certificates/{found['certificate']}.json")
        ends.append((part, said(file)))
        _once(console, operation)
    assert len({json.dumps(one, sort_keys=True) for _, one in ends}) == 1, ends


def _fresh(console, number):
    """A label of its own, with a ticket for each node."""
    label = f"kill{number}"
    got = json.loads(
        console.manage(
            "shell", "-v", "0", "-c", MAKE.replace('"first", "second"', f'"{label}"'), timeout=300
        ).splitlines()[-1]
    )
    places = [place for place in got["places"] if place["label"] == label]
    for place in places:
        place["ticket"] = {k: bytes.fromhex(v) if k in ("ns", "mac") else v for k, v in place["ticket"].items()}
    return label, places


def _ended(api, operation):
    with contextlib.suppress(Exception):  # web may be the one that was killed
        found = api.get(f"/operations/{operation}")
        return found if found["done"] else None
    return None


def _once(console, operation):
    """Each step has one receipt and one event of it; one certificate was issued."""
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
        steps = cx.execute(
            "SELECT count(*), count(DISTINCT receipt_hash) FROM catalog_step WHERE operation = %s"
            " AND receipt IS NOT NULL", (operation,),
        ).fetchone()  # fmt: skip
        issued = cx.execute("SELECT count(*) FROM audit_certificate WHERE operation = %s", (operation,)).fetchone()
        accepted = cx.execute(
            "SELECT count(*) FROM audit_event WHERE event_type = 1287 AND convert_from(body, 'UTF8') LIKE %s",
            (f"%{operation}%",),
        ).fetchone()
    assert steps[0] == steps[1] == accepted[0], (operation, steps, accepted, datetime.now(UTC))
    assert issued == (1,)
