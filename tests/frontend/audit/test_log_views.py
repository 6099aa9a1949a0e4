"""Pages of findings and of the end of a log, against a real database and a real signer."""

import base64
import json
import re

import pytest
from django.db import transaction

from audit import explaining, selectors
from audit.approvals import approvals
from audit.epochs import KIND
from audit.services import record
from audit.tree import checkpoint_latest
from audit.verifier import kvc_verify
from frontend.templatetags import auditing
from kvconsole.infra.sql import connect
from tests.frontend import plant_audit
from tests.frontend.audit.test_views import newest, worked
from tests.frontend.tenancy.conftest import proved
from tests.tenants.making import a_node, a_tenant, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def found():
    """A finding that is open."""
    with connect("migrate") as cx:
        plant_audit.finding(cx)
    return selectors.findings().get()


def test_a_finding_is_explained_and_an_auditor_says_that_they_looked_into_it(person, found):
    who = person("auditor")
    assert f'href="/audit/findings/{found.id}"' in who.get("/audit").content.decode()
    assert "a leaf is not what was sealed" in who.get("/audit/findings").content.decode()
    page = who.get(f"/audit/findings/{found.id}").content.decode()
    assert "somebody changed it in the database" in page
    assert "its hash is not that of its bytes" in page
    empty = who.post(f"/audit/findings/{found.id}/acknowledge", {"note": ""})
    assert (empty.status_code, 'aria-invalid="true"' in empty.content.decode()) == (400, True)
    assert who.post(f"/audit/findings/{found.id}/acknowledge", {"note": "disk 3 was swapped"}).status_code == 302
    event = newest("finding.acknowledged")
    assert (event.object_id, b"disk 3" in bytes(event.body)) == (str(found.id), False), "what was typed is sealed"
    page = who.get(f"/audit/findings/{found.id}").content.decode()
    assert f'href="/audit/events/{event.event_id}"' in page
    assert explaining.finding(found.id).row.resolved_at is None, "it stays open"
    assert "1 finding is open." in who.get("/audit").content.decode(), "also where nothing is signed yet"
    assert who.get(f"/audit/findings/{2**70}").status_code == 404


def test_a_closed_finding_is_read_and_nobody_acknowledges_it(person, found):
    with connect("migrate") as cx:
        cx.execute("UPDATE audit_finding SET resolved_at = now()")
    who = person("auditor")
    page = who.get(f"/audit/findings/{found.id}").content.decode()
    assert "/acknowledge" not in page
    assert who.post(f"/audit/findings/{found.id}/acknowledge", {"note": "x"}).status_code == 409
    viewer = person("viewer", name="viewer")
    assert viewer.get(f"/audit/findings/{found.id}").status_code == 200
    assert viewer.post(f"/audit/findings/{found.id}/acknowledge", {"note": "x"}).status_code == 403


def test_the_end_of_a_log_is_asked_for_decided_by_another_and_ordered(person, sealed):
    operator, approver = proved(person("operator")), proved(person("approver", name="second"))
    person("auditor", name="third")
    sealed()
    page = operator.get("/audit/logs").content.decode()
    assert "This is the first log; none has ended." in page
    assert "/audit/logs/new" in page
    origin = checkpoint_latest().note.split("\n")[0]
    assert origin in operator.get("/audit/logs/new").content.decode()
    assert operator.post("/audit/logs/new", {"end": "restore", "note": "a disk"}).status_code == 302
    again = operator.post("/audit/logs/new", {"end": "restore", "note": ""})
    assert (again.status_code, "epoch-asked" in again.content.decode()) == (409, True)
    asked = approvals().get(kind=KIND)
    assert operator.get(f"/audit/logs/{asked.id}/order").status_code == 409
    assert f"/audit/logs/{asked.id}/approve" in approver.get("/audit/logs").content.decode()
    wrong = approver.post(f"/audit/logs/{asked.id}/approve", {"phrase": "yes"})
    assert (wrong.status_code, 'aria-invalid="true"' in wrong.content.decode()) == (400, True)
    assert approvals().get(kind=KIND).state == "open", "who did not type its name has approved nothing"
    assert approver.post(f"/audit/logs/{asked.id}/approve", {"phrase": origin}).status_code == 302
    page = operator.get("/audit/logs").content.decode()
    assert "signer --new-epoch" in page
    order = operator.get(f"/audit/logs/{asked.id}/order")
    assert (json.loads(order.content)["approval"], order["Content-Disposition"]) == (
        str(asked.id), 'attachment; filename="order.json"',
    )  # fmt: skip


def test_the_end_is_denied_without_typing_anything(person, sealed):
    operator, approver = proved(person("operator")), proved(person("approver", name="second"))
    sealed()
    operator.post("/audit/logs/new", {"end": "key-replaced", "note": ""})
    asked = approvals().get(kind=KIND)
    assert approver.post(f"/audit/logs/{asked.id}/deny", {"reason": "no"}).status_code == 302
    assert approvals().get(kind=KIND).state == "denied"
    assert approver.get("/audit/logs/2/record").status_code == 404


def test_who_kept_a_checkpoint_gets_what_shows_offline_that_the_log_only_grew(person, sealed, client, tmp_path):
    who = person("auditor")
    sealed()
    kept = who.get("/audit/checkpoint").content
    person("viewer", name="later")
    sealed()
    assert "/audit/consistency" in who.get("/verify").content.decode()
    assert "/audit/consistency" not in client.get("/verify").content.decode()
    size = kept.split(b"\n")[1].decode()
    proof = who.get(f"/audit/consistency?old={size}")
    assert proof["Content-Disposition"] == 'attachment; filename="consistency.txt"'
    files = {"old": kept, "new": checkpoint_latest().note.encode(), "proof": proof.content}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    key = client.get("/verify/keys.txt").content.decode().splitlines()[0]
    words = ["consistency", *(str(tmp_path / n) for n in ("old", "new")), "--proof", str(tmp_path / "proof")]
    assert kvc_verify.main([*words, "--key", key]) == 0
    spoiled = base64.b64encode(bytes(32)) + b"\n"
    (tmp_path / "proof").write_bytes(spoiled * proof.content.count(b"\n"))
    assert kvc_verify.main([*words, "--key", key]) == 1
    person("viewer", name="latest")
    sealed()
    named = who.get(f"/audit/consistency?old={size}&new={files['new'].split()[1].decode()}")
    assert named.content == proof.content, "also while the log grows"
    for odd, status in (("", 400), ("x", 400), (str(10**9), 400), ("0", 200)):
        assert who.get(f"/audit/consistency?old={odd}").status_code == status, odd


def test_what_was_verified_counts_as_hashed_again(person, sealed):
    who = person("auditor")
    size = sealed()
    assert "was not looked at yet" in who.get("/audit").content.decode()
    who.post("/audit/verify")
    worked(selectors.jobs().get())
    page = who.get("/audit").content.decode()
    assert f"up to entry {size - 1:,}, and nothing differed" in page
    assert 'id="log-answer" data-tone="ok"' in page


def test_a_verification_that_found_something_is_said_on_the_logs_page(person, sealed):
    who = person("auditor")
    sealed()
    who.post("/audit/verify")
    job = selectors.jobs().get()
    with connect("migrate") as cx:
        cx.execute("ALTER TABLE audit_tree DISABLE TRIGGER grows")
        cx.execute("UPDATE audit_tree SET root = sha256('x')")
    worked(job)
    page = who.get("/audit").content.decode()
    assert "A verification found something that differs." in page
    assert 'id="log-answer" data-tone="danger"' in page


def test_a_tenant_is_not_told_that_nobody_can_what_the_fleet_can(person):
    page = person("tenant-admin", tenant=a_tenant(slug=some("t"))).get("/audit/access").content.decode()
    assert "People of the fleet can too" in page
    assert page.count("and people of the fleet, who are not listed here") == page.count("<code>") >= 7
    assert ">nobody<" not in page
    fleet = person("auditor", name="staff").get("/audit/access").content.decode()
    assert "people of the fleet" not in fleet.lower()
    assert ">nobody<" in fleet, "here all are listed"


@pytest.mark.parametrize(("kind", "object_kind", "number", "words"), [
    ("nobody", "log", 0x0F04, "the log itself"), ("nobody", "route", 0x02F0, "nobody known"),
    ("nobody", "log", 0x0704, "nobody known"), ("system", "log", 0x0F06, "the console itself"),
])  # fmt: skip
def test_the_log_itself_acts_where_it_names_nobody(kind, object_kind, number, words):
    empty = dict.fromkeys(selectors.EventView.__struct_fields__)
    event = selectors.EventView(**empty | {"actor_kind": kind, "object_kind": object_kind, "number": number})
    assert auditing.acted(event) == words


def test_a_webhook_without_a_name_is_called_by_its_host_and_one_without_events_says_so(person):
    who = person("operator")
    empty = who.post("/audit/webhooks/new", {"url": "https://demo.invalid/in/secret", "name": ""})
    assert (empty.status_code, "Choose at least one." in empty.content.decode()) == (400, True)
    barred = who.post("/audit/webhooks/new", {"url": "http://169.254.169.254/", "name": "", "events": "log.gap"})
    assert (barred.status_code, "webhook-url-refused" in barred.content.decode()) == (422, True)
    assert who.post("/audit/webhooks/new", {"url": "https://demo.invalid/in", "events": "log.gap"}).status_code == 200
    assert ">demo.invalid</a>" in who.get("/audit/webhooks").content.decode()


def test_nodes_and_people_have_their_names_for_who_reads_all_of_the_log(person, client):
    who = person("auditor")
    node = a_node(name="fra-p7")
    with transaction.atomic():
        record(event_type="node.changed", outcome="success", actor=None, tenant_id=None, object_kind="node",
               object_id=node, body={"name": "fra-p7", "changed": ["zone"]})  # fmt: skip
    page = who.get("/audit").content.decode()
    assert "<b>fra-p7</b>" in page
    assert "<b>mira-okafor</b>" in page, "of the account that was made"
    event = newest("node.changed")
    assert "<b>fra-p7</b>" in who.get(f"/audit/events/{event.event_id}").content.decode()
    mine = person("tenant-admin", tenant=a_tenant(slug=some("t")), name="tara")
    assert "<b>" not in re.sub(r"(?s).*<tbody>", "", mine.get("/audit").content.decode()).split("</tbody>")[0]
