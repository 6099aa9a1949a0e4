"""What it costs until commands are out: questions to the signer and statements, however many nodes there are."""

import contextlib

import httpx
import pytest
from django.db import connections

from audit import signing
from catalog.models import Step
from catalog.operations import dispatching
from catalog.operations.engine import reconcile
from tests.catalog.operations.world import asked

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
COMMANDS = "/v1/commands"
STATEMENTS = 20
"""From the order's checkpoint until each node has its first command, whatever their number."""


@pytest.fixture
def paid(monkeypatch):
    """What was asked of the database ("sql") and of whom else (its path), in that order."""
    done, real = [], httpx.HTTPTransport.handle_request

    def carried(self, request):
        done.append(request.url.path)
        return real(self, request)

    def stated(execute, sql, params, many, context):
        done.append("sql")
        return execute(sql, params, many, context)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", carried)
    with contextlib.ExitStack() as stack:
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(stated))
        yield done


def ordered(world, nodes):
    """A deletion whose order is in the log; so many nodes hold something of it."""
    namespace = world.namespace()
    for number in range(nodes):
        world.hold(world.node(f"n{number}"), namespace, number)
    operation = asked(world)
    world.acknowledged()
    world.sealed()
    for side in world.nodes:
        world.heard(side)
    return operation


@pytest.mark.parametrize("nodes", [2, 6])
def test_all_commands_of_a_round_are_signed_in_one_question_and_asked_for_in_as_many_statements(world, paid, nodes):
    operation = ordered(world, nodes)
    paid.clear()
    reconcile(operation_id=operation.id, holder="test")
    out = paid[: [at for at, one in enumerate(paid) if one == COMMANDS][nodes - 1]]  # until each node has its first
    assert [one for one in out if one not in ("sql", COMMANDS)] == ["/v1/sign-all"]
    assert out.count("sql") <= STATEMENTS
    assert all({c.kind for c in side.orders} >= {"erase"} for side in world.nodes)


def test_receipts_are_compared_in_one_statement_a_round(world):
    operation = ordered(world, 4)
    said = []

    def stated(execute, sql, params, many, context):
        said.append(sql)
        return execute(sql, params, many, context)

    with connections["default"].execute_wrapper(stated):
        assert world.go_on(operation) == "completed"
    marks = [sql for sql in said if "UPDATE" in sql and '"compared"' in sql]
    steps = Step.objects.filter(operation=operation.id, args__has_key="compared").count()
    assert steps == len(world.nodes) * 4  # an erase and a look on two tiers
    assert 0 < len(marks) <= 4  # one a round in which something was heard
    assert not [sql for sql in said if sql.startswith('UPDATE "catalog_step" SET "args"')]


def test_what_does_not_fit_in_one_question_is_asked_in_several_and_all_is_done(world, paid, monkeypatch):
    monkeypatch.setattr(signing, "MOST_ASKED", 2500)
    operation = ordered(world, 3)
    paid.clear()
    assert world.go_on(operation) == "completed"
    assert paid.count("/v1/sign-all") > 1
    assert all({c.kind for c in side.orders} >= {"erase", "verify"} for side in world.nodes)


def test_commands_under_an_older_head_are_signed_again_together(world, paid):
    operation = ordered(world, 3)
    seen = []
    first = dispatching._proofs

    def older(given, size):
        found = first(given, size)
        seen.append(size)
        if size is None:
            world.namespace("more")  # the log grows behind the proofs
            world.sealed()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatching, "_proofs", older)
        paid.clear()
        reconcile(operation_id=operation.id, holder="test")
    assert len(seen) >= 2
    assert seen[0] is None
    assert isinstance(seen[1], int)
    before = paid[: paid.index(COMMANDS)]
    assert before.count("/v1/sign-all") == 2
    assert all({c.kind for c in side.orders} >= {"erase"} for side in world.nodes)
