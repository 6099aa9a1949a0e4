"""REST of the fleet."""

# ruff: noqa: F811

import uuid
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from catalog.selectors import facts
from kvcore.messages import EnrolmentQuestion, enrolment_bytes
from tests.catalog.fleet_fixtures import TIERS, enrolled, far, running_signer, signer  # noqa: F401
from tests.tenants.conftest import anonymous, caller  # noqa: F401
from tests.tenants.persons import Person, code

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
MAKES = ("nodes:manage", "*:read")
NODE = {"name": "n1", "region": "eu-fra", "zone": "a", "rack": "r1", "role": "prefill"}


def enrolment(side, token, **fields):
    return {
        "enrolment_token": token, "public_key": side.public.hex(), "agent_url": side.url, "agent_version": "0.1.0",
        "tiers": TIERS, "engine": {"kind": "reference", "version": "1", "capabilities": {}}, **fields,
    }  # fmt: skip


def test_a_node_is_made_enrolled_and_seen(signer, far, caller, anonymous):
    call, side = caller("operator", "viewer", scopes=MAKES), far()
    made = call.post("/nodes", NODE)
    assert made.status_code == 201
    key = anonymous.get("/fleet-key").json()
    token = made.json()["enrolment_token"]
    assert token.partition(".")[2] == key["fingerprint"]
    answer = anonymous.post("/nodes:enrol", enrolment(side, token))
    assert answer.status_code == 200
    got = answer.json()
    assert got["console_public_key"] == key["public_key"]
    assert got["ingest"][0]["shard"] == 0
    node_id = made.json()["id"]
    assert got["node"] == node_id
    (listed,) = call.get("/nodes").json()["items"]
    one = call.get(f"/nodes/{node_id}")
    assert one["ETag"]
    assert one.json()["name"] == listed["name"] == "n1"
    assert (listed["state"], listed["source_state"], listed["blocks"]) == ("joining", None, one.json()["blocks"])
    assert {t["tier"] for t in listed["tiers"]} == {"hbm", "ssd"}
    again = anonymous.post("/nodes:enrol", enrolment(side, token))
    assert (again.status_code, again.json()["code"]) == (401, "enrolment-token-invalid")


QUESTION = {"console": "testserver", "nonce": "0a" * 32, "public_key": "0b" * 32, "node": "n1"}


def test_the_console_proves_that_it_has_its_key(signer, anonymous):
    key = anonymous.get("/fleet-key").json()
    answer = anonymous.get("/fleet-key?" + urlencode(QUESTION))
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    got = answer.json()
    assert (got["public_key"], got["fingerprint"]) == (key["public_key"], key["fingerprint"])
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(got["public_key"]))
    public.verify(bytes.fromhex(got["proof"]), enrolment_bytes(EnrolmentQuestion(**QUESTION)))
    assert "proof" not in key


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"nonce": "0a"}, "/nonce", "validation-failed"),
        ({"public_key": "x" * 64}, "/public_key", "validation-failed"),
        ({"node": "a b"}, "/node", "validation-failed"),
        ({"console": "relay.example"}, "/console", "validation-failed"),
        ({"console": ""}, "/console", "validation-failed"),
        ({"order": "purge"}, "/order", "unknown-parameter"),
    ],
)
def test_a_question_that_was_asked_elsewhere_or_is_none_is_not_answered(signer, anonymous, change, pointer, code):
    answer = anonymous.get("/fleet-key?" + urlencode(QUESTION | change))
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert {e["pointer"] for e in answer.json()["errors"]} == {pointer}
    assert "proof" not in answer.json()


def test_a_nodes_own_token_may_lease_keys_and_nothing_of_the_fleet(enrolled, caller):
    from tests.tenants.conftest import Caller

    _, side = enrolled()
    node = Caller(side.token)
    assert node.post("/key-leases", {"all": True}).status_code == 200
    assert node.get("/nodes").status_code == 403
    assert node.post("/nodes", NODE).status_code == 403


def test_tenants_see_no_nodes(caller):
    from tests.tenants.making import a_tenant

    call = caller("tenant-admin", "tenant-member", tenant=a_tenant())
    assert call.get("/nodes").status_code == 403
    assert call.get(f"/nodes/{uuid.uuid4()}").status_code == 403


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": "a b"}, "/name"),
        ({"role": "boss"}, "/role"),
        ({"agent_url": "http://169.254.169.254/"}, "/agent_url"),
        ({"colour": 1}, "/colour"),
        ({"region": None}, "/region"),
    ],
)
def test_bad_nodes_are_refused(signer, caller, change, pointer):
    call = caller("operator", "viewer", scopes=MAKES)
    answer = call.post("/nodes", {**NODE, **change})
    assert 400 <= answer.status_code < 500
    assert pointer in {e["pointer"] for e in answer.json()["errors"]}
    assert call.get("/nodes").json() == {"items": [], "next": None, "prev": None, "approximate_total": 0}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"public_key": "zz"}, "validation-failed"),
        ({"tiers": [{"tier": "hbm"}]}, "validation-failed"),
        ({"tiers": "x"}, "validation-failed"),
        ({"x": 1}, "unknown-field"),
    ],
)
def test_bad_enrolments_are_refused(signer, far, caller, anonymous, change, why):
    token = caller("operator", scopes=MAKES).post("/nodes", NODE).json()["enrolment_token"]
    assert code(anonymous.post("/nodes:enrol", enrolment(far(), token, **change))) == (400, why)


def test_what_is_not_there_is_not_found(caller):
    for path in (f"/nodes/{uuid.uuid4()}", "/nodes/x"):
        answer = caller("viewer").get(path)
        assert answer.status_code == 404
        assert answer.json()["code"] == "not-found"


def test_pages_of_nodes(signer, caller, monkeypatch):
    call = caller("operator", "viewer", scopes=MAKES)
    for i in range(3):
        call.post("/nodes", {**NODE, "name": f"n{i}"})
    first = call.get("/nodes?limit=2").json()
    rest = call.get(f"/nodes?limit=2&cursor={first['next']}").json()
    assert [n["name"] for n in (*first["items"], *rest["items"])] == ["n0", "n1", "n2"]
    assert rest["next"] is None
    asked, fetch = [], facts.fetch
    monkeypatch.setattr(facts, "fetch", lambda query, values=(), **more: asked.append((query, values)) or
                        fetch(query, values, **more))  # fmt: skip
    call.get("/nodes?limit=1")
    (nodes,) = [values[0] for query, values in asked if "FROM catalog_nodetier" in query]
    assert [str(node) for node in nodes] == [first["items"][0]["id"]], "tiers are read of the page's nodes alone"


def test_without_the_signer_the_key_is_unavailable_and_says_when_to_ask_again(settings, anonymous):
    settings.SIGNER_URL, settings.COMMAND_KEY_FILE = "http://127.0.0.1:1", ""
    answer = anonymous.get("/fleet-key")
    assert (answer.status_code, answer.json()["code"]) == (503, "signer-unavailable")
    assert answer["Retry-After"] == "5"
    asked = anonymous.get("/fleet-key?" + urlencode(QUESTION))
    assert (asked.status_code, asked.json()["code"]) == (503, "signer-unavailable")


def test_who_makes_a_node_makes_a_token_so_a_fresh_proof_is_asked(signer, caller):
    """As for tokens: a person proves it again, a token needs the scope by name."""
    for scopes in ((), ("nodes:write",), ("*:write",)):
        assert code(caller("operator", scopes=scopes).post("/nodes", NODE)) == (403, "scope-missing")
    person = Person("operator", "viewer", proved=False)
    assert code(person.post("/nodes", NODE)) == (403, "step-up-required")
    person.prove(ago=10_000)
    assert code(person.post("/nodes", NODE)) == (403, "step-up-required")
    assert person.get("/nodes").json()["items"] == []
    person.prove()
    assert person.post("/nodes", NODE).status_code == 201


def test_an_agent_of_another_name_is_not_enrolled_and_the_token_stays_good(signer, far, caller, anonymous):
    token, side = caller("operator", scopes=MAKES).post("/nodes", NODE).json()["enrolment_token"], far()
    assert code(anonymous.post("/nodes:enrol", enrolment(side, token, name="n2"))) == (409, "node-name-mismatch")
    assert anonymous.post("/nodes:enrol", enrolment(side, token, name="n1")).json()["name"] == "n1"
