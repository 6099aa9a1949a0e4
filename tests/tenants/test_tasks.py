"""Tasks only wake: they read their rows and ignore what is not due."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.sessions.models import Session

from audit import approvals
from kvconsole.celery import app
from tenants import authentication, services, tasks
from tests.tenants.making import a_tenant, principal, some

pytestmark = pytest.mark.django_db


def test_a_decision_is_applied_and_what_is_not_there_is_ignored():
    now = datetime.now(UTC)
    group = services.share_group_request(
        owner=a_tenant().slug, name=some("g"), audience=[a_tenant().slug], expires_at=now + timedelta(days=1),
        reason="x", actor=principal(None, "operator"), now=now,
    )  # fmt: skip
    tasks.approval_decided.run(str(group.id))
    approval = approvals.approval_of("share_group", str(group.id), tenant_id=group.tenant_id)
    approvals.approval_decide(approval_id=approval.id, approve=True, actor=principal(None, "approver", at=now), now=now)
    tasks.approval_decided.run(str(group.id))
    group.refresh_from_db()
    assert group.state == "approved"
    tasks.approval_decided.run(str(uuid.uuid4()))
    tasks.share_groups_sweep.run()


def test_the_tasks_are_known_by_name_and_planned():
    from django.conf import settings

    app.loader.import_default_modules()
    assert {task for task in settings.APPROVAL_OWNERS.values() if task} <= set(app.tasks)
    assert "tenants.share_groups_sweep" in {entry["task"] for entry in app.conf.beat_schedule.values()}


def test_sessions_that_are_over_leave_no_row():
    now = datetime.now(UTC)
    for key, end in (("old", now - timedelta(seconds=1)), ("new", now + timedelta(hours=1))):
        Session.objects.create(session_key=key, session_data="", expire_date=end)
    tasks.sessions_sweep.run()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["new"]
    assert authentication.sessions_sweep(now=now + timedelta(days=1), most=0) == 0
    assert "tenants.sessions_sweep" in {entry["task"] for entry in app.conf.beat_schedule.values()}
