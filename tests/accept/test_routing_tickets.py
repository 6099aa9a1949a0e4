"""Tickets that are not good, and directories that lie: nothing is read, nothing wrong is committed.

Agents on real HTTP; the plan is the directory's word. What gives is a process of its own; what takes is in this one,
so that every byte that it committed can be looked at.
"""

import os

import pytest

from tests.accept.fleet import say
from tests.nodeagent.serving.conftest import fleet
from tests.nodeagent.serving.fleet import spoilt, wrong_blocks

__all__ = ["fleet"]
pytestmark = [pytest.mark.accept, pytest.mark.timeout(900)]
FULL = os.environ.get("KVC_ACCEPT", "") == "full"
KINDS = ("forged", "expired", "foreign", "other-node")
REFUSALS = ("ticket-invalid", "ticket-expired", "ticket-scope")
TICKETS = 100 if FULL else 25
FALSE = 1000 if FULL else 100


def test_forged_expired_foreign_and_another_nodes_ticket_refused_although_the_directory_claims_a_hit(fleet):
    (a,) = fleet.add("a", process=True)
    (b,) = fleet.add("b")
    fleet.serve(a, [1, 2], readable=0)
    assert fleet.serve(a, [1, 2]).outcome["hit_tokens"] > 0, "the blocks are there, and a good ticket reads them"
    before, refused = a.serving()["counts"], dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        for _ in range(TICKETS):
            answer = fleet.serve(a, [1, 2], tickets={"a": spoilt(kind, fleet, b)})
            assert not answer.has("first")
            refused[kind] += answer.refused in REFUSALS
    say("routing-tickets", of=TICKETS, **refused)
    assert refused == dict.fromkeys(KINDS, TICKETS)
    assert a.serving()["counts"] == before


def test_who_gives_refuses_the_same_tickets_and_what_was_promised_is_computed(fleet):
    (x,) = fleet.add("x", process=True)
    (a,) = fleet.add("a")
    fleet.serve(x, [1, 2], readable=0)
    refused = dict.fromkeys(KINDS, 0)
    for at, kind in enumerate(KINDS):
        for i in range(TICKETS):
            fresh = 1000 * (at + 1) + i
            o = fleet.serve(
                a, [1, 2, fresh], giver=(x, 0, 64), tickets={"x": spoilt(kind, fleet, a)}, readable=0
            ).outcome  # fmt: skip
            assert (o["hit_tokens"], o["computed_tokens"]) == (0, 3 * 512)
            refused[kind] += len(o["fell_back"]) == 1 and set(o["fell_back"]) <= {*REFUSALS, "offer-unknown"}
    wrong = wrong_blocks(fleet, a)
    say("routing-tickets-giving", of=TICKETS, given_bytes=x.serving()["given_bytes"], wrong_blocks=wrong, **refused)
    assert refused == dict.fromkeys(KINDS, TICKETS)
    assert x.serving()["given_bytes"] == 0
    assert x.serving()["denied"] >= 3 * TICKETS  # another node's ticket is none for it: it is not even shown to it
    assert wrong == 0


def test_1000_false_directory_entries_1000_refusals_0_wrong_bytes(fleet):
    (x,) = fleet.add("x", process=True)
    (a,) = fleet.add("a")
    fleet.serve(x, [1, 2], readable=0)
    refused = 0
    for i in range(FALSE):  # x has none of what the directory says it has, or only its head
        ids = [5000 + i, 2] if i % 2 else [1, 6000 + i]
        o = fleet.serve(a, ids, giver=(x, 0, 64), readable=0).outcome
        assert (o["hit_tokens"], o["computed_tokens"]) == (0, 1024)
        refused += "offer-unknown" in o["fell_back"]
    wrong = wrong_blocks(fleet, a)
    say("routing-false-entries", entries=FALSE, refusals=refused, wrong_blocks=wrong)
    assert refused == FALSE
    assert wrong == 0
