"""Webhooks from the log to a receiver: what is told to whom, retries, disabling, secrets."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from audit import webhooks
from audit.models import Delivery, Event, Webhook
from audit.registry import TYPES
from audit.services import record
from audit.webhooks import feed, keys, sending
from kvconsole.infra.access import system
from tests.audit.webhooks.receiver import receiving, verified
from tests.tenants.making import a_tenant
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture(autouse=True)
def _open(settings):
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


def now():
    return datetime.now(UTC)


def hook(call, url, *events):
    answer = call.post("/webhooks", {"url": url, "events": list(events)})
    assert answer.status_code == 201, answer.content
    return answer.json()


def degraded(tenant=None, source="engine"):
    body = {"node": "n", "source": source, "dp_rank": 0, "state": "degraded", "reason": "r", "since": now()}
    with transaction.atomic():
        record(event_type="source.state_changed", outcome="success", actor=system("t"),
               tenant_id=tenant.id if tenant else None, object_kind="source", object_id="s", body=body)  # fmt: skip


def refused(tenant):
    body = {"namespace": "ab", "node": "n", "tier": "hbm", "reason": "quota", "count": 1}
    with transaction.atomic():
        record(event_type="placement.refused", outcome="denied", actor=system("t"), tenant_id=tenant.id,
               object_kind="namespace", object_id="x", body=body)  # fmt: skip


def due_now():
    Delivery.objects.filter(state="pending").update(next_at=now() - timedelta(seconds=1))


def test_what_the_log_records_reaches_a_receiver_signed_once(sealed):
    call = Person("operator")
    with receiving() as (receiver, url):
        made = hook(call, f"{url}/in", "source.degraded")
        degraded()
        webhooks.sweep(now=now())
        assert receiver.got == [], "not before it is in the log"
        sealed()
        webhooks.sweep(now=now())
        webhooks.sweep(now=now())
        ((headers, body),) = receiver.got
        said = json.loads(body)
        assert (said["type"], said["data"]["details"]["state"]) == ("source.degraded", "degraded")
        assert verified(made["secret"], headers, body)
        assert abs(int(headers["webhook-timestamp"]) - now().timestamp()) < 60
        (sent,) = call.get(f"/webhooks/{made['id']}/deliveries").json()["items"]
        assert (sent["id"], sent["state"], sent["status"], sent["attempts"]) == (
            headers["webhook-id"], "delivered", 200, 1,
        )  # fmt: skip


def test_a_tenant_is_told_of_its_own_events_and_of_checkpoints(sealed):
    mine, other = a_tenant(), a_tenant()
    with receiving() as (receiver, url):
        hook(Person("tenant-admin", tenant=mine), url, "quota.refused", "source.degraded", "checkpoint.signed")
        refused(mine)
        refused(other)
        degraded()
        size = sealed()
        webhooks.sweep(now=now())
        said = [json.loads(body) for _, body in receiver.got]
        assert sorted(one["type"] for one in said) == ["checkpoint.signed", "quota.refused"]
        (head,) = [one["data"] for one in said if one["type"] == "checkpoint.signed"]
        assert head["size"] == size
        assert str(size) in head["note"]
        refused(mine)
        sealed()
        webhooks.sweep(now=now())
        assert len(receiver.got) == 3, "one checkpoint a minute at most"


def test_what_fails_is_tried_again_with_the_same_id_and_given_up_at_last(sealed, monkeypatch):
    call = Person("operator")
    with receiving() as (receiver, url):
        receiver.answers = [(500, [], b"", 0), (200, [], b"", 0)]
        made = hook(call, url, "source.degraded")
        degraded()
        sealed()
        webhooks.sweep(now=now())
        waiting = Delivery.objects.get()
        assert (waiting.state, waiting.attempts, waiting.status) == ("pending", 1, 500)
        assert timedelta(seconds=3) < waiting.next_at - now() < timedelta(seconds=7)
        assert call.get(f"/webhooks/{made['id']}").json()["failing_since"] is not None
        due_now()
        webhooks.sweep(now=now())
        assert Delivery.objects.get().state == "delivered"
        assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
        assert call.get(f"/webhooks/{made['id']}").json()["failing_since"] is None
        receiver.answers = [(500, [], b"", 0)]
        degraded()
        sealed()
        Delivery.objects.filter(state="pending").update(attempts=0)
        feed.follow(now=now())
        Delivery.objects.filter(state="pending").update(attempts=len(sending.BACKOFF))
        due_now()
        sending.send_due(now=now())
        assert Delivery.objects.filter(state="failed").count() == 1


def test_days_of_failures_and_a_receiver_that_is_gone_disable_it(sealed):
    call = Person("operator")
    with receiving() as (receiver, url):
        made = hook(call, url, "source.degraded")
        receiver.answers = [(503, [], b"", 0)]
        degraded()
        sealed()
        webhooks.sweep(now=now())
        Webhook.objects.update(failing_since=now() - timedelta(days=6))
        due_now()
        sending.send_due(now=now())
        said = call.get(f"/webhooks/{made['id']}").json()
        assert (said["state"], said["reason"]) == ("disabled", "failing")
        assert Delivery.objects.get().state == "dropped"
        assert Event.objects.filter(event_type=TYPES["webhook.changed"].number).count() == 1
        answer = call("PATCH", f"/webhooks/{made['id']}", {"state": "active"}, **{"If-Match": "*"})
        assert (answer.json()["state"], answer.json()["reason"]) == ("active", "")
        receiver.answers = [(410, [], b"", 0)]
        assert call("POST", f"/webhooks/{made['id']}:test").status_code == 202
        sending.send_due(now=now())
        assert call.get(f"/webhooks/{made['id']}").json()["reason"] == "receiver-gone"


def test_slow_receivers_keep_nobody_else_waiting(sealed):
    call = Person("operator")
    with receiving() as (slow, slow_url), receiving() as (quick, quick_url):
        slow.answers = [(200, [], b"", 1.5)]
        for url in (slow_url, quick_url):
            made = hook(call, url, "source.degraded")
            for _ in range(3):
                call("POST", f"/webhooks/{made['id']}:test")
        begin = now()
        assert sending.send_due(now=now()) == 6
        assert now() - begin < timedelta(seconds=6)
        assert len(quick.got) == len(slow.got) == 3


def test_a_new_secret_signs_beside_the_old_one_for_a_day(sealed):
    call = Person("operator")
    with receiving() as (receiver, url):
        made = hook(call, url, "source.degraded")
        rotated = call("POST", f"/webhooks/{made['id']}:rotate").json()
        assert rotated["secret"] != made["secret"]
        call("POST", f"/webhooks/{made['id']}:test")
        sending.send_due(now=now())
        (headers, body) = receiver.got[-1]
        assert verified(made["secret"], headers, body)
        assert verified(rotated["secret"], headers, body)
        Webhook.objects.update(old_key_until=now() - timedelta(seconds=1))
        call("POST", f"/webhooks/{made['id']}:test")
        sending.send_due(now=now())
        (headers, body) = receiver.got[-1]
        assert not verified(made["secret"], headers, body)
        assert verified(rotated["secret"], headers, body)


def test_a_removed_one_is_gone_with_its_secret(sealed):
    call = Person("operator")
    with receiving() as (receiver, url):
        made = hook(call, url, "source.degraded")
        call("POST", f"/webhooks/{made['id']}:test")
        assert call("DELETE", f"/webhooks/{made['id']}").status_code == 204
        sending.send_due(now=now())
        assert receiver.got == []
    assert Delivery.objects.count() == 0
    with pytest.raises(LookupError):
        keys.secrets_of(made["id"], 1, old=False)
    assert Event.objects.filter(event_type=TYPES["webhook.removed"].number).count() == 1


def test_nothing_is_told_twice_when_a_worker_dies_and_nothing_is_left_out(sealed, monkeypatch):
    with receiving() as (receiver, url):
        hook(Person("operator"), url, "source.degraded")
        monkeypatch.setattr(feed, "LEAVES", 2)
        for n in range(7):
            degraded(source=f"s{n}")
        sealed()
        real, calls = feed._tell_checkpoint, []

        def dying(position, at):
            calls.append(1)
            if len(calls) % 2 == 0:
                raise RuntimeError
            return real(position, at)

        monkeypatch.setattr(feed, "_tell_checkpoint", dying)
        for _ in range(20):
            try:
                feed.follow(now=now())
            except RuntimeError:
                continue
        sending.send_due(now=now())
        sending.send_due(now=now())
        told = sorted(json.loads(body)["data"]["details"]["source"] for _, body in receiver.got)
        assert told == [f"s{n}" for n in range(7)]
