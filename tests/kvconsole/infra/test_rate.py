"""Token buckets, and what callers are told of them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from audit import refusals
from audit.models import Event
from audit.registry import TYPES
from kvconsole.infra import access, rate, rest
from kvconsole.infra.rate import Buckets, Policy
from tests.tenants.conftest import Caller, anonymous, caller  # noqa: F401
from tests.tenants.making import a_tenant, a_user

TEN = Policy("token", 10, 5)


def test_a_bucket_gives_its_quota_at_once_and_refills_evenly():
    buckets = Buckets()
    assert [buckets.take(TEN, "a", now=0).left for _ in range(10)] == list(range(9, -1, -1))
    refused = buckets.take(TEN, "a", now=0)
    assert (refused.left, refused.reset, refused.wait) == (0, 5, 0.5)
    assert buckets.take(TEN, "a", now=0.4).wait == pytest.approx(0.1)
    assert buckets.take(TEN, "a", now=0.5).wait == 0
    assert buckets.take(TEN, "b", now=0).left == 9
    assert buckets.take(TEN, "a", now=100).left == 9


@pytest.mark.parametrize(
    ("said", "processes", "quota"), [("100/10", 4, 25), ("3/60", 2, 1), ("1/60", 4, 1), ("0/1", 4, 0)]
)
def test_all_processes_of_a_site_together_give_no_more_than_the_quota(settings, said, processes, quota):
    settings.RATE_LIMITS, settings.WEB_PROCESSES = {"token": said}, processes
    assert rate.policies()["token"].quota == quota


def test_asking_costs_nothing():
    buckets = Buckets()
    assert [buckets.take(TEN, "a", now=0, cost=0).left for _ in range(50)] == [10] * 50


def test_no_number_of_callers_exceeds_a_quota():
    buckets, given = Buckets(), []
    policy = Policy("token", 100, 1000)

    def ask():
        given.extend(not buckets.take(policy, "a", now=1.0).wait for _ in range(50))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert sum(given) == 100


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(rate, "REMEMBERED", 10)
    buckets = Buckets()
    for i in range(100):
        buckets.take(TEN, str(i), now=0)
    assert len(buckets._due) == 10


@pytest.fixture
def small(settings, monkeypatch):
    """A site with tiny quotas, and all buckets full before and after."""
    settings.RATE_LIMITS = {"token": "3/60", "tenant": "5/60", "address": "4/60"}
    rate.buckets.clear()
    yield
    rate.buckets.clear()


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_callers_are_told_and_then_refused(small, caller, anonymous):  # noqa: F811
    tenant = a_tenant()
    one, two, staff = caller("tenant-member", tenant=tenant), caller("tenant-member", tenant=tenant), caller("viewer")
    answers = [one.get("/tenants") for _ in range(4)]
    assert [a.status_code for a in answers] == [200, 200, 200, 429]
    assert answers[0]["RateLimit-Policy"] == '"token";q=3;w=60, "tenant";q=5;w=60'
    assert answers[0]["RateLimit"].startswith('"token";r=2;t=20, "tenant";r=4;t=')
    assert answers[3].json()["code"] == "rate-limited"
    assert 1 <= int(answers[3]["Retry-After"]) <= 21
    # the tenant's bucket is shared by its tokens; staff has none
    assert [two.get("/tenants").status_code for _ in range(2)] == [200, 429]
    assert staff.get("/tenants").status_code == 200
    assert staff.get("/tenants")["RateLimit-Policy"] == '"token";q=3;w=60'
    # nobody known: by address
    assert [anonymous.get("/tenants").status_code for _ in range(5)] == [401, 401, 401, 401, 429]


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_an_address_that_is_used_up_refuses_nobody_but_nobody(small, caller, anonymous, client):  # noqa: F811
    """Who knows a token or is logged in works on, whatever strangers send from the same address."""
    staff, person = caller("viewer"), a_user()
    assert client.login(username=person.username, password="correct horse")
    guess = Caller("kvc_service_" + "0" * 65)
    enrol = {"token": "x", "name": "n"}
    assert {anonymous.get("/tenants").status_code for _ in range(9)} == {401, 429}
    for nobody in (anonymous, guess, Caller("other-kind")):
        assert nobody.get("/tenants").status_code == 429
        assert nobody.get("/nowhere").status_code == 429
        assert nobody.post("/nodes:enrol", enrol).json()["code"] == "rate-limited", "no view is asked"
    assert staff.get("/tenants").status_code == 200
    assert client.get("/api/v1/tenants").status_code == 200
    assert staff.get("/tenants")["RateLimit-Policy"] == '"token";q=3;w=60'
    assert [staff.get("/tenants").status_code for _ in range(2)] == [200, 429], "charged to itself as ever"


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_nothing_is_looked_up_for_who_says_nothing_at_a_used_up_address(small, anonymous, django_assert_num_queries):  # noqa: F811
    assert {anonymous.get("/tenants").status_code for _ in range(9)} == {401, 429}
    with django_assert_num_queries(0):
        assert anonymous.get("/tenants").status_code == 429


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_who_says_nothing_and_is_refused_is_one_event_a_minute_with_a_count(small, anonymous):  # noqa: F811
    refusals._calls._seen.clear()
    enrol = {"token": "x", "name": "n"}
    statuses = [anonymous.post("/nodes:enrol", enrol).status_code for _ in range(9)]
    assert statuses[4:] == [429] * 5
    assert len(refused("rate-limited")) == 1
    refusals.tell(everything=True)
    assert [one["calls"] for one in refused("rate-limited")] == [1, 4]
    large = anonymous("POST", "/nodes:enrol", {"token": "x" * (2 << 20)})
    assert (large.status_code, len(refused("body-too-large"))) == (413, 1), "also what no layer looked into"
    assert not refused("body-too-large", route="tenants")


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_a_body_that_is_refused_before_django_has_it_is_on_the_trail():
    refusals._calls._seen.clear()
    scope = {"type": "http", "method": "POST", "path": "/api/v1/nodes:enrol", "query_string": b"", "headers": []}
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            pool.submit(access.leave_unasked, dict(scope), rest.unasked(rest.Problem("body-too-large"), "")).result()
        pool.submit(
            access.leave_unasked, {**scope, "method": "GET"}, rest.unasked(rest.Problem("unavailable"), "")
        ).result()
    assert [one["calls"] for one in refused("body-too-large")] == [1]
    refusals._calls._seen.clear()


def refused(code, route="nodes-enrol"):
    """What events say of refusals with this code."""
    rows = Event.objects.filter(event_type=TYPES["access.refused"].number, object_id=route).order_by("id")
    bodies = [json.loads(bytes(body))["data"] for body in rows.values_list("body", flat=True)]
    return [said for said in bodies if said["code"] == code]


@pytest.mark.django_db(databases=["default", "tenant"], transaction=True)
def test_pages_are_not_limited(small, client):
    assert {client.get("/login").status_code for _ in range(9)} == {200}
