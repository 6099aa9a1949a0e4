"""What an order is told of its reach: the root over the rows that are kept, and what its kind lets it do."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from catalog.models import Operation
from catalog.operation_reach import keys_of, kinds_of, reach_told, target_of, targets_of
from kvconsole.infra.sql import PLATFORM
from kvcore.plan_steps import erase_targets
from kvcore.receipts import EraseTarget
from kvcore.targets import Bound, keys_hash, packed
from tests.catalog.ingest.rig import superuser

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime.now(UTC)
KEYS = packed(bytes([n]) * 32 for n in range(3))


def operation(kind="deletion"):
    return Operation(id=uuid.uuid4(), tenant_id=PLATFORM, kind=kind, deadline=NOW + timedelta(seconds=60))


@pytest.fixture
def keep(postgres, transactional_db):
    with superuser(postgres) as cx:

        def planted(of, number, keys=None):
            cx.execute(
                "INSERT INTO catalog_operationtarget (tenant_id, operation, digest, part, min_gen, fence_seq, keys,"
                " keys_hash, key_count, below) VALUES (%s, %s, %s, 0, %s, 1, %s, %s, %s, %s)",
                (PLATFORM, of.id, bytes([number]) * 32, number, keys, keys_hash(keys) if keys else "",
                 len(keys or b"") // 16, keys is not None),
            )  # fmt: skip

        yield planted


def test_the_root_is_that_of_the_rows(keep):
    one = operation()
    for number in (9, 2):
        keep(one, number)
    told = reach_told(one)
    wanted = Bound(EraseTarget(ns=bytes([n]).hex() * 32, gen_upto=str(n)) for n in (2, 9))
    assert told == {"targets_root": bytes.fromhex(wanted.root), "targets": 2, "force_after": one.deadline,
                    "fencing": True}  # fmt: skip
    assert kinds_of(one, fencing=True) == ["erase", "fence", "shred"]
    other = operation("quota_trim")
    keep(other, 2)
    assert (reach_told(other)["force_after"], reach_told(other)["fencing"]) == (None, False)
    assert kinds_of(other, fencing=False) == ["erase"]


def test_keys_are_bound_by_their_hash_and_read_only_where_they_are_sent(keep, django_assert_num_queries):
    one = operation()
    keep(one, 2, KEYS)
    with django_assert_num_queries(1):
        (row,) = targets_of([one.id], using="default")
        target = target_of(row)
    assert (target.keys, target.key_count, target.below, target.packed) == (keys_hash(KEYS), 3, True, b"")
    assert keys_of(one.id) == {keys_hash(KEYS): KEYS}
    told = reach_told(one)
    assert not told["fencing"], "what is finer than a namespace closes none"
    beside = EraseTarget(ns="02" * 32, gen_upto="2", attached=keys_hash(KEYS), count=3, below=True)
    assert told["targets_root"].hex() == Bound([beside]).root == Bound(erase_targets((target,))).root
