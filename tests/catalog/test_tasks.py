"""Tasks only wake: they read their rows and ignore what is not due."""

# ruff: noqa: F811

import uuid
from datetime import UTC, datetime

import pytest

from catalog import services, tasks
from catalog.models import NodeCommand
from tests.catalog.fleet_fixtures import enrolled, far, running_signer, signer  # noqa: F401

pytestmark = pytest.mark.django_db


@pytest.fixture
def order(enrolled):
    node, _ = enrolled()
    return services.command_order(node=node, kind="ping", args={}, actor=None, now=datetime.now(UTC))


def test_a_task_sends_its_order(order):
    tasks.command_send.run(str(order.step))
    assert NodeCommand.objects.get().state == "done"
    tasks.command_send.run(str(uuid.uuid4()))


def test_the_sweep_wakes_for_each_due_order(order, monkeypatch):
    woken = []
    monkeypatch.setattr(tasks.command_send, "delay", woken.append)
    tasks.commands_due.run()
    assert woken == [str(order.step)]


def test_reconciling_has_nothing_to_do_in_an_empty_fleet():
    tasks.nodes_reconcile.run()


def test_the_list_of_tasks_is_closed_and_known_by_name():
    from kvconsole.celery import app

    app.loader.import_default_modules()
    ours = {name for name in app.tasks if name.startswith("catalog.")}
    assert ours >= {"catalog.command_send", "catalog.commands_due", "catalog.nodes_reconcile"}
    planned = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert {"catalog.commands_due", "catalog.nodes_reconcile", "catalog.reconcile_due", "catalog.rules_due"} <= planned


def test_operations_are_found_by_a_sweep_and_what_is_not_there_is_no_error(monkeypatch, settings):
    from catalog.operation_requests import deletion_request, plan_create
    from tests.catalog.operations.world import person
    from tests.tenants.making import a_namespace, a_tenant

    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    tenant, now, who = a_tenant(erasure_scope="label"), datetime.now(UTC), person()
    a_namespace(tenant, label="a")
    plan = plan_create(selector={"tenant": tenant.slug, "label": "a"}, options={}, actor=who, now=now)
    made = deletion_request(plan_id=plan.id, plan_hash=bytes(plan.plan_hash).hex(), actor=who, now=now)
    woken = []
    monkeypatch.setattr(tasks.reconcile, "delay", woken.append)
    tasks.reconcile_due.run()
    assert woken == [str(made.id)]
    for task in (tasks.reconcile, tasks.operation_decided, tasks.hold_decided):
        task.run(str(uuid.uuid4()))
    tasks.operations_sweep.run()
    assert woken == [str(made.id)]
