"""`POST /prefixes:lookup`: what it answers, and that foreign, fenced and unknown are the same answer."""

import time
from uuid import UUID

import pytest
from django.test import Client

from routing import replica as replicas
from routing.index import DictIndex
from routing.replica import Replica
from routing.services import KEYS_MAX
from routing.view import View
from tenants import services
from tests.catalog.ingest.rig import keys
from tests.tenants.making import a_namespace, a_tenant, some

URL = "/api/v1/prefixes:lookup"


def post(token, **body):
    body = {"keys": [keys(n).hex() for n in (1, 2, 3)], **body}
    return Client().post(URL, body, content_type="application/json", headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def stand(monkeypatch):
    """A replica that follows nothing and holds keys 1 and 2 of the namespaces it is told of."""
    replica = Replica(role="operator")
    replica.view = View(DictIndex(), 1000, live=True)
    replica.leased_until, replica.checked_at = time.monotonic() + 60, time.monotonic()
    monkeypatch.setattr(replicas, "_replica", replica)
    monkeypatch.setattr(replica, "start", lambda: None)
    replica.view.source(1, UUID(int=7), "ref", 0, "exact")
    replica.view.owner(1, 1, "hbm", False)

    def hold(digest, generation=1):
        number = len(replica.view.spaces) + 1
        replica.view.keyspace(number, digest, generation, 0)
        replica.view.segment(number, number, b"".join(keys(n)[:16] for n in (1, 2)))
        replica.view.placement(1, number, 2, None, None)

    replica.hold = hold
    return replica


def a_token(*roles, tenant=None):
    kind = "gateway" if roles == ("gateway",) else "service"
    fields = {"tenant_id": tenant.id} if tenant else {}
    holder = some("g") if kind == "gateway" else ""
    return services.token_issue(kind, roles=list(roles), holder=holder, **fields)[1]


@pytest.mark.django_db
def test_runs_name_node_source_rank_and_tier(stand):
    namespace = a_namespace()
    stand.hold(bytes(namespace.digest))
    answer = post(a_token("viewer"), namespace=bytes(namespace.digest).hex())
    assert answer.status_code == 200
    owner = {"node": "00000000-0000-0000-0000-000000000007", "source": "ref", "dp_rank": 0, "tier": "hbm"}
    assert answer.json()["runs"] == [{"depth": 2, "owners": [owner]}]
    assert answer.json()["index"]["mode"] == "live"
    assert answer.json()["index"]["form"] == "dict"


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_a_tenant_sees_its_own_and_nothing_of_others(stand):
    tenant = a_tenant()
    own, foreign = a_namespace(tenant), a_namespace()
    for namespace in (own, foreign):
        stand.hold(bytes(namespace.digest))
    token = a_token("tenant-member", tenant=tenant)
    mine, theirs, nobody = (post(token, namespace=d.hex()).json() for d in (own.digest, foreign.digest, bytes(32)))
    assert mine["runs"]
    assert theirs["runs"] == nobody["runs"] == []
    for answer in (theirs, nobody):
        del answer["index"]["age_ms"]
    assert theirs == nobody


@pytest.mark.django_db
def test_fenced_generations_answer_nothing(stand):
    namespace = a_namespace()
    digest = bytes(namespace.digest)
    stand.hold(digest)
    token = a_token("operator")
    assert post(token, namespace=digest.hex()).json()["runs"]
    services.generation_bump(namespace=namespace, reason="test", actor=None)
    assert post(token, namespace=digest.hex(), generation=1).json()["runs"] == []
    assert post(token, namespace=digest.hex()).json()["runs"] == []


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_unclaimed_namespaces_are_for_the_fleet_alone(stand):
    stand.hold(b"u" * 32)
    asked = {"namespace": (b"u" * 32).hex(), "generation": 1}
    assert post(a_token("operator"), **asked).json()["runs"]
    assert post(a_token("tenant-member", tenant=a_tenant()), **asked).json()["runs"] == []


@pytest.mark.django_db
def test_malformed_bodies_are_refused_by_field(stand):
    token, good = a_token("viewer"), (b"n" * 32).hex()
    for body in (
        {"namespace": "xyz"},
        {"namespace": good, "keys": ["00"]},
        {"namespace": good, "keys": [keys(1).hex()] * (KEYS_MAX + 1)},
        {"namespace": good, "generation": -1},
        {"namespace": good, "surprise": 1},
        {"namespace": good, "group": "x"},
    ):
        answer = post(token, **body)
        assert answer.status_code == 400, body
        assert answer.json()["errors"]
    assert post(token, namespace=good, keys=[]).json()["runs"] == []


@pytest.mark.django_db
def test_who_is_not_allowed(stand):
    assert Client().post(URL, {}, content_type="application/json").status_code == 401
    assert post("kvc_nonsense", namespace=bytes(32).hex()).status_code == 401
    assert Client().get(URL, headers={"Authorization": f"Bearer {a_token('viewer')}"}).status_code == 405
