"""Single keys that are being deleted: hidden while the order is open, dropped where receipts say, and then over."""

import time
import uuid

import pytest

from kvconsole.infra.sql import PLATFORM
from kvcore.targets import KEY, keys_hash, packed
from tests.catalog.ingest.rig import Rig, Sim, add, plant_namespace, plant_node, superuser
from tests.catalog.ingest.rig import keys as key

pytestmark = pytest.mark.django_db(transaction=True)


class Bench(Rig):
    """A source that holds a chain of six, and an order for the last four of them."""

    def __init__(self, cx):
        super().__init__(now=time.time())
        self.cx = cx
        self.node, self.ns = plant_node(cx, "a"), plant_namespace(cx, "x")
        self.sim, self.operation = Sim(self.node), uuid.uuid4()
        self.send(self.node, self.sim.frame(add(self.ns, 1, 2, 3, 4, 5, 6), add(self.ns, 50)))

    def order(self, *numbers):
        keys = packed(key(n) for n in numbers)
        self.cx.execute(
            "INSERT INTO catalog_operation (id, tenant_id, kind, trigger, selector, options, plan_hash, risk,"
            " requested_by, requester, reason, generation, observed_generation, finalizers, paused, deadline,"
            " not_after, needs_approval, fence_seq, created_at, fenced_at, outcome, problem, due_at, about,"
            " windows_passed)"
            " VALUES (%s, %s, 'deletion', 'user', '{}', '{}', '', 'R1', 'x', '{}', '', 1, 0, '{catalog}', false, now(),"
            " now(), false, 0, now(), now(), '', '', now(), '', false)",
            (self.operation, PLATFORM),
        )
        self.cx.execute(
            "INSERT INTO catalog_operationtarget (tenant_id, operation, digest, part, min_gen, fence_seq, keys,"
            " keys_hash, key_count, below) VALUES (%s, %s, %s, 0, 2, 0, %s, %s, %s, true)",
            (PLATFORM, self.operation, self.ns, keys, keys_hash(keys), len(keys) // KEY),
        )
        self.tick()

    def purge(self, seq):
        self.cx.execute(
            "INSERT INTO catalog_step (id, operation, tenant_id, intent_generation, attempt, node, source, dp_rank,"
            " tier, owner, kind, boot, args, state, code, tries, created_at, due_at, lease_holder, lease_token,"
            " receipt_hash, receipt_prev, told, total_bytes, total_blocks, done_bytes, done_blocks, at_boot,"
            " at_stream, at_seq)"
            " VALUES (%s, %s, %s, 1, 0, %s, 'ref', 0, 'hbm', 1, 'purge', '', '{}', 'waiting', '', 0, now(), now(), '',"
            " 0, '', '', '{}', 0, 0, 0, 0, %s, %s, %s)",
            (uuid.uuid4(), self.operation, PLATFORM, self.node, self.sim.boot, self.sim.stream, seq),
        )

    def over(self):
        self.cx.execute("UPDATE catalog_operation SET concluded_at = now(), finalizers = '{}'")
        self.tick()

    def there(self):
        """Key → state, of everything that the catalog has of the namespace."""
        from catalog.store_reads import exact_facts
        from kvconsole.infra.sql import connect

        with connect("ingest") as cx:
            return {f.key: f.state for f in exact_facts(cx, wait=False) if f.digest == self.ns}

    def shows(self, **states):
        found = self.there()
        for state, numbers in states.items():
            assert {n for n in (*range(1, 12), 50) if found.get(key(n)[:KEY]) == state} == set(numbers), state


@pytest.fixture
def bench(postgres, transactional_db):
    with superuser(postgres) as cx:
        made = Bench(cx)
        yield made
        made.close()


def test_keys_are_hidden_from_the_order_on_and_gone_with_the_receipt(bench):
    bench.shows(committed=[1, 2, 3, 4, 5, 6, 50])
    bench.order(3, 4, 5, 6, 9)
    bench.shows(committed=[1, 2, 50], evicting=[3, 4, 5, 6])
    assert bench.rows("SELECT sum(blocks)::int FROM catalog_holding")[0][0] == 7, "held, and in the digest"
    bench.send(bench.node, bench.sim.frame(add(bench.ns, 3, 4, parent=2)))
    bench.send(bench.node, bench.sim.frame(add(bench.ns, 9)))
    bench.shows(committed=[1, 2, 50], evicting=[3, 4, 5, 6, 9])
    bench.purge(seq=bench.sim.seq)
    bench.tick()
    bench.shows(committed=[1, 2, 50], evicting=[])
    assert bench.rows("SELECT state FROM catalog_step")[0][0] == "done"
    assert bench.state(bench.node)[0] == "exact", "nothing of this casts a doubt on the source"
    assert bench.refused() == {}
    (line,) = bench.holdings(bench.node).values()
    assert line[0] == 3


def test_late_messages_are_echoes_and_what_is_told_after_the_receipt_is_new(bench):
    bench.order(3, 4, 5, 6)
    receipt = bench.sim.seq + 2
    bench.purge(seq=receipt)
    bench.tick()
    bench.shows(evicting=[3, 4, 5, 6])
    late = [bench.sim.frame(add(bench.ns, n, parent=n - 1)) for n in (3, 5)]  # seq up to the receipt's
    anew = bench.sim.frame(add(bench.ns, 4, parent=3))
    bench.batch(*((bench.node, frame) for frame in (*late, anew)))
    bench.shows(committed=[1, 2, 50], evicting=[4])
    bench.over()
    bench.shows(committed=[1, 2, 4, 50])
    assert bench.state(bench.node)[0] == "exact"


def test_a_purge_that_the_writer_hears_of_late_leaves_what_was_made_anew(bench):
    bench.order(3, 4, 5, 6)
    receipt = bench.sim.seq
    bench.send(bench.node, bench.sim.frame(add(bench.ns, 5, parent=4)))
    bench.purge(seq=receipt)
    bench.tick()
    bench.shows(committed=[1, 2, 50], evicting=[5])


def test_an_order_that_is_over_hides_nothing_more(bench):
    bench.order(3, 4)
    bench.over()
    bench.shows(committed=[1, 2, 3, 4, 5, 6, 50])
    bench.send(bench.node, bench.sim.frame(add(bench.ns, 3, parent=2)))
    bench.shows(evicting=[])


def test_a_new_writer_hides_what_the_one_before_hid(bench):
    bench.order(3, 4, 5, 6)
    bench.open()
    bench.tick()
    bench.send(bench.node, bench.sim.frame(add(bench.ns, 3, parent=2)))
    bench.shows(committed=[1, 2, 50], evicting=[3, 4, 5, 6])
