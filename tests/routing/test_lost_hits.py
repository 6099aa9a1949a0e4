"""The ledger of lost hits: each measured decision once, every token with its cause, and the database adds up too."""

import hashlib
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import pytest

from kvconsole.infra import sql
from kvconsole.infra.access import tenant_context
from kvconsole.infra.sql import uuid7
from kvcore.cards import HOLE, Ask, Candidate, Curve, Held, TierLoad
from kvcore.lost_hits import Cause, Short
from kvcore.policies import built_in
from routing import lost_hits as ledger
from routing.packing import FORM, Inputs, again, pack
from routing.selectors import slot_of
from tests.tenants.making import a_tenant, principal

NOW = datetime(2026, 5, 1, 12, 0, 40, tzinfo=UTC)
SPACE = hashlib.sha256(b"space").digest()
FAST = (TierLoad("hbm", 1e9, 0.0),)


def inputs(*, held=((0, ((64, "hbm"),)),), refused=(), floor=0, prompt=1024, age=10.0):
    """A question about two equal workers; `refused`: number → why it is filtered."""
    why = dict(refused)
    workers = tuple(
        Candidate(node=f"n{n}", source="e", name=f"n{n}", cls="c", curve=Curve(0.1, 0.0), queue_ms=0.0,
                  decode_queue_ms=0.0, first_decode_ms=1.0, load_age_ms=age, waiting=0, running=0, used_share=0.1,
                  tiers=FAST, refused=why.get(n, ""))
        for n in range(2)
    )  # fmt: skip
    asked = Ask(prompt_tokens=prompt, block_tokens=16, block_bytes=16, blocks=prompt // 16, session_floor_blocks=floor,
                router_ms=0.1)  # fmt: skip
    made = Inputs(FORM, asked, workers, tuple(Held(n, runs) for n, runs in held), {}, built_in())
    return msgspec.structs.replace(made, choice=again(made))


def lost(made, hit, answer="hit", short=()):
    found = ledger.lost_of(made, answer=answer, hit_tokens=hit, short=short)
    assert found.available == found.achieved + sum(n for _, n in found.lost)
    return found.available, {cause.value: n for cause, n in found.lost}


def test_what_was_loaded_as_planned_is_no_loss():
    assert lost(inputs(), 1008) == (1008, {}), "the block of the last token is computed"


def test_what_the_target_did_not_have_is_unknown_unless_it_said_why():
    assert lost(inputs(), 600) == (1008, {"unknown": 408})
    assert lost(inputs(), 600, short=[Short("rate-limit", 408)]) == (1008, {"rate-limit": 408})


def test_what_only_a_filtered_worker_holds_goes_to_the_filter():
    made = inputs(refused={0: "rights"})
    assert made.choice.prefill.candidate == 1
    assert lost(made, 0) == (1008, {"scope": 1008})
    assert lost(inputs(refused={0: "fence"}), 0) == (1008, {"fence": 1008})


def test_a_hole_ends_what_could_be_had():
    assert lost(inputs(held=((0, ((16, "hbm"), (20, HOLE), (64, "hbm"))),)), 256) == (256, {})


def test_what_the_session_wrote_and_nobody_has_was_evicted():
    assert lost(inputs(held=(), floor=32), 0) == (512, {"evicted": 512})
    assert lost(inputs(held=(), floor=32), 0, answer="recompute") == (512, {"fence": 512})


def test_hits_that_nobody_knew_of_are_beyond():
    assert ledger.lost_of(inputs(held=()), answer="compute", hit_tokens=96).beyond == 96


@pytest.mark.parametrize("said", [None, "x", {}, [1], [{"cause": 1}], [{"cause": "timeout"}]])
def test_what_says_nothing_of_shorts_is_none(said):
    assert ledger.shorts(said) == []


def test_shorts_are_read():
    assert ledger.shorts([{"cause": "timeout", "tokens": 16}]) == [Short("timeout", 16)]


# --- with the database ----------------------------------------------------------------

database = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
_DECISION = """
INSERT INTO routing_decision (id, slot, tenant_id, at, origin, router, model, namespace, generation, answer, kept,
    stands_for, prompt_tokens, inputs, measured_at, measured, hit_tokens)
VALUES (%s, %s, %s, %s, %s, 'r', 'm', %s, 1, %s, 'all', %s, 1024, %s, %s, %s, %s)"""


def recorded(tenant, *, made=None, at=NOW, measured=timedelta(seconds=-20), hit=600, stands_for=1, short=None,
             space=SPACE, origin="router", answer="hit"):  # fmt: skip
    decision, told = uuid7(), psycopg.types.json.Jsonb({"short": short} if short else {})
    with sql.connect("router") as cx:
        began, blob = at - timedelta(seconds=30), pack(made or inputs())
        cx.execute(_DECISION, (decision, slot_of(decision), tenant.id, began, origin, space, answer, stands_for, blob,
                               at + measured, told, hit))  # fmt: skip


def begun():
    ledger.lost_hits_tally(now=NOW - timedelta(minutes=5))


@database
def test_each_outcome_is_in_the_ledger_once():
    tenant = a_tenant()
    begun()
    recorded(tenant, short=[{"cause": "rate-limit", "tokens": 400}])
    recorded(tenant, stands_for=16, hit=1008)
    recorded(tenant, measured=timedelta(seconds=-5))  # not old enough to be sure of
    recorded(tenant, hit=None)
    recorded(tenant, origin="dynamo")
    assert [ledger.lost_hits_tally(now=NOW) for _ in range(3)] == [2, 0, 0]
    view = ledger.lost_hits(since=NOW - timedelta(hours=1), until=NOW + timedelta(minutes=1))
    total = view.total
    assert (total.decisions, total.available, total.achieved) == (17, 17 * 1008, 16 * 1008 + 600)
    assert {cause: n for cause, n in total.lost.items() if n} == {"rate-limit": 400, "unknown": 8}
    assert total.available == total.achieved + sum(total.lost.values())
    assert (len(view.steps), view.step_seconds, view.namespaces[0][0]) == (1, 60, SPACE)
    assert ledger.lost_hits_tally(now=NOW + timedelta(seconds=10)) == 1
    assert ledger.lost_hits(since=NOW - timedelta(hours=1), until=NOW + timedelta(minutes=1)).total.decisions == 18


@database
def test_many_outcomes_are_taken_in_batches(monkeypatch):
    monkeypatch.setattr(ledger, "BATCH", 3)
    tenant = a_tenant()
    begun()
    for n in range(7):
        recorded(tenant, measured=timedelta(seconds=-30 + n))
    recorded(tenant, measured=timedelta(seconds=-24))  # of the same moment as another
    taken = [ledger.lost_hits_tally(now=NOW) for _ in range(6)]
    assert sum(taken) == 8
    assert ledger.lost_hits(since=NOW - timedelta(hours=1), until=NOW).total.decisions == 8


@database
def test_a_tenant_sees_its_own_losses_alone():
    mine, other = a_tenant(), a_tenant()
    begun()
    recorded(mine)
    recorded(other, space=b"o" * 32)
    ledger.lost_hits_tally(now=NOW)
    span = {"since": NOW - timedelta(hours=1), "until": NOW}
    assert ledger.lost_hits(**span).total.decisions == 2
    assert ledger.lost_hits(**span, tenant=other.id).total.decisions == 1
    with tenant_context(principal(mine)):
        seen = ledger.lost_hits(**span)
        assert (seen.total.decisions, [space for space, _ in seen.namespaces]) == (1, [SPACE])
        assert ledger.lost_hits(**span, tenant=other.id).total.decisions == 0


@database
def test_what_does_not_add_up_is_not_written():
    tenant = a_tenant()
    line = (tenant.id, NOW, SPACE, 1, 100, 50, 49)
    statement = ("INSERT INTO routing_losthit (tenant_id, minute, namespace, decisions, available_tokens,"
                 " achieved_tokens, unknown_tokens) VALUES (%s, %s, %s, %s, %s, %s, %s)")  # fmt: skip
    with sql.connect("operator") as cx, pytest.raises(psycopg.errors.CheckViolation, match="adds_up"):
        cx.execute(statement, line)
    with sql.connect("tenant") as cx, pytest.raises(psycopg.errors.InsufficientPrivilege):
        cx.execute(statement, line)


@database
def test_old_minutes_go():
    tenant = a_tenant()
    begun()
    recorded(tenant)
    ledger.lost_hits_tally(now=NOW)
    ledger.lost_hits_tally(now=NOW + ledger.KEPT + timedelta(minutes=2))
    assert ledger.lost_hits(since=NOW - timedelta(hours=1), until=NOW).total.decisions == 0


def test_each_cause_has_its_column():
    assert len(ledger.COLUMNS) == 4 + len(list(Cause))
