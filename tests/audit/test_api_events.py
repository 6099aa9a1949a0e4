"""REST of the log: who sees what, that each search is an event, and proofs that verify offline."""

import subprocess
import sys
import uuid

import pytest

from audit.models import Event
from audit.registry import TYPES
from audit.verifier import kvc_verify
from tests.audit.test_selectors import told
from tests.tenants.making import a_tenant, principal
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
SEARCHED = TYPES["log.searched"].number


def searches():
    return Event.objects.filter(event_type=SEARCHED).count()


def test_an_auditor_reads_all_with_places_and_personal_data(sealed):
    (event,) = told(actor=principal(None, "operator"), pii={"name": "Ada"})
    sealed()
    call = Person("auditor")
    (one,) = call.get("/audit/events?object=thing").json()["items"]
    assert (one["id"], one["action"], one["data"], one["pii"]) == (
        str(event.event_id), "log.note", {"note": "0"}, {"name": "Ada"},
    )  # fmt: skip
    assert one["index"] is not None
    read = call.get(f"/audit/events/{event.event_id}")
    assert read.json() == one
    assert Person("operator").get("/audit/events?object=thing").json()["items"][0]["pii"] == "sealed"


def test_each_search_is_one_event_that_says_what_was_asked():
    told(3)
    call, before = Person("auditor"), searches()
    assert call.get("/audit/events?object=thing&outcome=success&limit=2").status_code == 200
    assert searches() == before + 1
    (one,) = call.get("/audit/events?action=log.searched&limit=1").json()["items"]
    assert one["data"] == {"range": {}, "filters": {"outcome": "success", "object": "thing"}, "records": 2}
    assert one["pii"] == {"filters": {"object": "thing"}}
    assert call.get(f"/audit/events/{uuid.uuid4()}").status_code == 404
    assert searches() == before + 2


def test_whose_events_were_searched_is_kept_without_the_name_that_was_typed():
    call, ada = Person("auditor"), Person("viewer").user
    for typed, kept in ((ada.username, f"user:{ada.id}"), ("Ada-Nobody", "nobody:unknown")):
        assert call.get(f"/audit/events?actor={typed}").status_code == 200
        (one,) = call.get("/audit/events?action=log.searched&limit=1").json()["items"]
        assert one["pii"] == {"filters": {"actor": kept}}


def test_pages_go_on_with_their_cursors():
    events = told(5, object_id="paged")
    call = Person("auditor")
    first = call.get("/audit/events?object=thing:paged&limit=2").json()
    second = call.get(f"/audit/events?object=thing:paged&limit=2&cursor={first['next']}").json()
    assert [i["id"] for i in first["items"] + second["items"]] == [str(e.event_id) for e in reversed(events)][:4]
    back = call.get(f"/audit/events?object=thing:paged&limit=2&cursor={second['prev']}").json()
    assert back["items"] == first["items"]
    assert call.get(f"/audit/events?cursor={first['next']}").json()["code"] == "cursor-invalid"


def test_a_tenants_people_see_their_own():
    mine, other = a_tenant(), a_tenant()
    (own,), (foreign,) = told(tenant=mine.id), told(tenant=other.id)
    call = Person("tenant-admin", tenant=mine)
    assert [i["id"] for i in call.get("/audit/events?object=thing").json()["items"]] == [str(own.event_id)]
    assert call.get(f"/audit/events?tenant={other.slug}").json()["items"] == []
    assert call.get(f"/audit/events/{foreign.event_id}").json()["code"] == "not-found"
    assert call.get(f"/audit/proofs/{foreign.event_id}").json()["code"] == "not-found"
    assert call.get("/audit/state").json()["code"] == "forbidden"


def test_bad_questions_and_roles_are_refused():
    call = Person("auditor")
    assert call.get("/audit/events?outcome=odd").json()["code"] == "validation-failed"
    assert call.get("/audit/events?from=yesterday").json()["code"] == "validation-failed"
    late = "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"
    assert call.get(f"/audit/events?{late}").json()["code"] == "validation-failed"
    assert call.get("/audit/events?who=me").json()["code"] == "unknown-parameter"
    assert Person("viewer").get("/audit/events").json()["code"] == "forbidden"


def test_a_proof_verifies_offline_and_waits_until_it_can(sealed, tmp_path):
    (event,) = told()
    call = Person("auditor")
    assert call.get(f"/audit/proofs/{event.event_id}").json()["code"] == "not-sequenced"
    assert call.get("/audit/checkpoint").json()["code"] == "not-signed"
    size = sealed()
    said = call.get("/audit/checkpoint").json()
    assert (said["size"], len(said["keys"])) == (size, 2)
    answer = call.get(f"/audit/proofs/{event.event_id}", Accept="text/plain")
    assert answer["Content-Type"].startswith("text/plain")
    (tmp_path / "p").write_bytes(answer.content)
    (tmp_path / "body").write_bytes(bytes(event.body))
    command = [sys.executable, kvc_verify.__file__, "proof", "p", "--body", "body", "--key", said["keys"][0]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_state_says_what_waits_and_what_is_to_be_doubted(sealed):
    told()
    sealed()
    told(2)
    said = Person("viewer").get("/audit/state").json()
    assert said["pending"] >= 2
    assert said["signer"] == "ok"
    assert "no-witness" in said["doubts"]
