"""Reads of the log: its tree, its state, and where a tenant's own events are."""

import uuid

import psycopg
import pytest

from audit import tree
from kvconsole.infra import sql
from kvcore.proofs import inclusion, verify_inclusion


def test_an_inclusion_proof_reads_few_rows(log):
    log.events(1300)
    log.seal()
    now, asked = tree.tree_now(), []

    def ask(query, values):
        asked.append(query)
        return tree.asked()(query, values)

    node = tree.node_reader(ask)
    for index in (0, 700, 1299):
        ((hash_,),) = log.rows("SELECT hash FROM audit_leaf WHERE idx = %s", index)
        path = inclusion(index, now.size, node)
        assert verify_inclusion(hash_, index, now.size, path, now.root)
    assert len(asked) < 40


def test_missing_nodes_are_said_and_not_made_up(log):
    log.events(300)
    log.seal()
    log.attack("DELETE FROM audit_leaf WHERE idx = 280")
    with pytest.raises(tree.LogTorn, match="280"):
        inclusion(279, 300, tree.node_reader())


def test_the_frontier_can_be_made_from_the_nodes(log):
    log.events(777)
    log.seal()
    now = tree.tree_now()
    made = tree.frontier_rebuilt(now.size, tree.node_reader())
    assert (made.pack(), made.root()) == (now.frontier, now.root)


def test_the_state_of_an_empty_log(log):
    state = tree.log_state()
    assert (state.size, state.sequenced_at, state.signed_size, state.pending, state.findings) == (0, None, 0, 0, 0)
    assert (state.signer, state.witness, state.oldest_pending_seconds) == ("away", "none", 0.0)
    assert tree.checkpoint_latest() is None


def test_the_state_says_what_waits_and_what_is_not_signed(log):
    log.events(3)
    assert tree.log_state().pending == 3
    log.seal()
    state = tree.log_state()
    assert (state.size, state.pending, state.signed_size) == (3, 0, 0)
    log.rows("UPDATE audit_signing SET size = 3, note = 'n', signed_at = now(), signer = 'ok' RETURNING size")
    found = tree.checkpoint_latest()
    assert (found.size, found.note) == (3, "n")


def test_a_tenant_learns_the_place_of_its_own_events_only(log):
    mine, ref = uuid.uuid4(), b"m" * 16
    own, others = log.events(2, tenant=mine, ref=ref), log.events(2)
    log.seal()
    with psycopg.connect(log.database.dsn("tenant")) as c:
        asked = "SELECT event, idx FROM audit_indexes(%s) ORDER BY idx"
        assert c.execute(asked, (own + others,)).fetchall() == []
        sql.enter(c, mine)
        assert c.execute(asked, (own + others,)).fetchall() == [(own[0], 0), (own[1], 1)]
