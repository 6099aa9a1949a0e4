"""Nodes come to be, enrol, get orders and tickets."""

# ruff: noqa: F811

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from audit.models import Event
from catalog import fleet, services
from catalog.models import Node, NodeCommand
from kvconsole.infra.access import system
from kvconsole.infra.rest import Problem
from kvcore.messages import ticket_refusal
from tenants import selectors
from tenants.services import key_leases_renew
from tests.catalog.fleet_fixtures import TIERS, enrolled, far, running_signer, signer  # noqa: F401
from tests.tenants.making import a_namespace

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


def refused(code, call, **fields):
    with pytest.raises(Problem) as caught:
        call(**fields)
    assert caught.value.code == code


def actions():
    return [json.loads(bytes(e.body))["action"] for e in Event.objects.only("id", "body").order_by("id")]


def enrol(token, side, **fields):
    return services.node_enrol(**{
        "token": token, "public_key": side.public, "agent_url": side.url, "agent_version": "1", "tiers": TIERS,
        "engine": {}, **fields,
    })  # fmt: skip


def test_a_node_enrols_once_and_gets_its_own_token(enrolled):
    node, side = enrolled(role="decode", zone="z", rack="r")
    assert (node.state, node.agent_url, bytes(node.public_key)) == ("joining", side.url, side.public)
    assert [t.tier for t in node.tiers.order_by("tier")] == ["hbm", "ssd"]
    who = selectors.token_principal(side.token)
    assert (who.kind, who.holder, who.roles, who.scopes) == ("node", str(node.id), {"node"}, {"region:eu-fra"})
    assert actions()[-4:] == ["node.created", "token.issued", "token.issued", "node.enrolled"]


def test_an_enrolment_token_works_once_and_for_15_minutes(signer, far):
    side = far()
    node, token = services.node_create(name="n", region="r", now=NOW)
    late = NOW + timedelta(minutes=15)
    refused("enrolment-token-invalid", enrol, token=token, side=side, now=late)
    refused("enrolment-token-invalid", enrol, token="kvc_enrol_x." + "0" * 32, side=side)
    assert enrol(token, side)["name"] == "n"
    refused("enrolment-token-invalid", enrol, token=token, side=side)
    again = services.enrolment_token(node=node, now=NOW)
    assert enrol(again, side)["node"] == str(node.id)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"public_key": b"short"}, "public-key-invalid"),
        ({"agent_url": "http://10.1.1.1"}, "agent-url-refused"),
        ({"name": "m"}, "node-name-mismatch"),
        ({"tiers": []}, "validation-failed"),
        ({"tiers": [*TIERS, TIERS[0]]}, "validation-failed"),
        ({"tiers": [{**TIERS[0], "tier": "tape"}]}, "validation-failed"),
        ({"tiers": [{**TIERS[0], "low": 0.95}]}, "validation-failed"),
        ({"tiers": [{**TIERS[0], "capacity_bytes": 0}]}, "validation-failed"),
    ],
)
def test_a_refused_enrolment_leaves_the_token_good(signer, far, fields, code):
    side = far()
    _, token = services.node_create(name="n", region="r")
    refused(code, enrol, token=token, side=side, **fields)
    assert Node.objects.get().enrolled_at is None
    assert enrol(token, side)


def test_without_a_good_token_nothing_is_looked_up(signer, far, monkeypatch):
    side, looked = far(), []
    monkeypatch.setattr(services.agents, "check_address", looked.append)
    monkeypatch.setattr(services.agents, "command_key", lambda: looked.append("key"))
    for token in ("", "x", "kvc_enrol_" + "0" * 65, side.url):
        refused("enrolment-token-invalid", enrol, token=token, side=side, agent_url="http://internal.example")
    assert looked == []


def test_after_an_enrolment_the_nodes_other_tokens_are_of_no_use(signer, far):
    side = far()
    node, unused = services.node_create(name="n", region="r", now=NOW)
    first = enrol(services.enrolment_token(node=node, now=NOW), side)["node_token"]
    refused("enrolment-token-invalid", enrol, token=unused, side=far())
    assert selectors.token_principal(first).holder == str(node.id)
    other, _ = services.node_create(name="m", region="r", now=NOW)
    others = services.enrolment_token(node=other, now=NOW)
    second = enrol(services.enrolment_token(node=node, now=NOW), side)["node_token"]
    assert selectors.token_principal(first) is None
    assert selectors.token_principal(second).holder == str(node.id)
    assert actions()[-3:] == ["token.revoked", "token.issued", "node.enrolled"]
    assert enrol(others, far())["name"] == "m"


def test_where_the_operator_said_an_address_the_agent_must_be_there(signer, far):
    side, other = far(), far()
    _, token = services.node_create(name="n", region="r", agent_url=side.url)
    refused("agent-url-mismatch", enrol, token=token, side=side, agent_url=other.url)
    assert enrol(token, side)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": ""}, "validation-failed"),
        ({"name": "a b"}, "validation-failed"),
        ({"name": "ä"}, "validation-failed"),
        ({"name": "x" * 64}, "validation-failed"),
        ({"role": "boss"}, "validation-failed"),
        ({"agent_url": "http://169.254.169.254"}, "agent-url-refused"),
    ],
)
def test_a_node_that_makes_no_sense_is_refused(signer, fields, code):
    refused(code, services.node_create, **{"name": "n", "region": "r", **fields})
    assert not Node.objects.exists()


def test_names_are_given_once_and_ensuring_gives_new_tokens(signer, far):
    first, one = services.node_ensure(name="n", region="r", now=NOW)
    refused("node-name-taken", services.node_create, name="n", region="r")
    second, two = services.node_ensure(name="n", region="r", now=NOW)
    assert (first.id, one != two) == (second.id, True)
    enrol(two, far())
    refused("node-name-taken", services.node_ensure, name="n", region="r", now=NOW)
    assert services.node_ensure(name="n", region="r", again=True, now=NOW)[0].id == first.id


def test_a_known_node_that_is_ensured_elsewhere_is_expected_there(signer, far):
    old, new = far(), far()
    services.node_ensure(name="n", region="r", agent_url=old.url, now=NOW)
    _, token = services.node_ensure(name="n", region="r", agent_url=new.url, now=NOW)
    refused("agent-url-mismatch", enrol, token=token, side=old)
    assert enrol(token, new)


def test_a_retired_node_is_fenced_and_its_tokens_are_void(enrolled):
    node, side = enrolled()
    _, unused = services.node_ensure(name=node.name, again=True, now=NOW)
    assert services.node_retire(node=node, reason="broken", actor=system("test"), now=NOW) == 2
    assert services.node_retire(node=node, reason="broken", actor=system("test"), now=NOW) == 0
    node.refresh_from_db()
    assert (node.state, node.wanted) == ("fenced", "fenced")
    assert selectors.token_principal(side.token) is None
    refused("enrolment-token-invalid", enrol, token=unused, side=side)
    assert actions()[-3:] == ["node.state_changed", "token.revoked", "token.revoked"]
    Node.objects.filter(id=node.id).update(last_heard_at=NOW)
    assert fleet.nodes_reconcile(now=NOW, writer_lives=True) == []
    assert fleet.holder_refusal(str(node.id)) == "node-fenced"
    _, again = services.node_ensure(name=node.name, again=True, now=NOW)
    enrol(again, side)
    node.refresh_from_db()
    assert (node.state, node.wanted) == ("joining", "ready")
    assert fleet.holder_refusal(str(node.id)) is None


def test_without_the_consoles_key_no_node_is_made(signer, settings):
    settings.SIGNER_URL, settings.COMMAND_KEY_FILE = "http://127.0.0.1:1", ""
    refused("signer-unavailable", services.node_create, name="n", region="r")


def test_an_order_is_a_row_and_an_event_and_is_not_doubled(enrolled):
    node, _ = enrolled()
    one = services.inventory_request(node=node, source="vllm", actor=system("test"))
    assert services.inventory_request(node=node.id, source="vllm").step == one.step
    other = services.inventory_request(node=node)
    assert other.step != one.step
    event = Event.objects.only("id", "body", "body_hash").filter(event_type=0x0410).order_by("id").first()
    assert json.loads(bytes(event.body))["data"] == {
        "step": str(one.step), "kind": "inventory", "node": str(node.id), "args": {"source": "vllm"},
    }  # fmt: skip
    assert bytes(one.order_hash) == bytes(event.body_hash)
    assert NodeCommand.objects.filter(state="waiting").count() == 2


def test_destructive_kinds_cannot_be_ordered_here(enrolled):
    node, _ = enrolled()
    with pytest.raises(ValueError, match="purge"):
        services.command_order(node=node, kind="purge", args={}, actor=None)


def test_a_ticket_is_good_for_its_node_generation_and_half_a_minute(enrolled):
    node, side = enrolled()
    other, _ = enrolled()
    namespace = a_namespace()
    who = selectors.token_principal(side.token)
    leased = key_leases_renew(principal=who, held={}, fence_seq=0, everything=True, now=NOW)
    ticket = services.node_ticket(node=node, namespace=namespace, now=NOW)
    key, at = bytes.fromhex(leased.ticket_key), NOW.timestamp()
    assert ticket_refusal(ticket, key, node=str(node.id), now=at) is None
    assert ticket_refusal(ticket, key, node=str(node.id), now=at + 31) == "ticket-expired"
    assert ticket_refusal(ticket, key, node=str(other.id), now=at) == "ticket-invalid"
    foreign = services.node_ticket(node=other, namespace=namespace, now=NOW)
    assert ticket_refusal(foreign, key, node=str(node.id), now=at) == "ticket-invalid"
    assert (ticket.ns, ticket.gen) == (bytes(namespace.digest), 1)
    assert ticket.expires_at <= time.time() + 31


def test_after_midnight_a_ticket_is_still_of_the_day_the_node_knows(enrolled):
    node, side = enrolled()
    who, namespace = selectors.token_principal(side.token), a_namespace()
    evening = datetime(2026, 9, 1, 23, 59, 50, tzinfo=UTC)
    leased = key_leases_renew(principal=who, held={}, fence_seq=0, everything=True, now=evening)
    later = evening + timedelta(seconds=20)
    ticket = services.node_ticket(node=node, namespace=namespace, now=later)
    key = bytes.fromhex(leased.ticket_key)
    assert ticket_refusal(ticket, key, node=str(node.id), now=later.timestamp()) is None
