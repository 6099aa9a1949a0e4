"""Pages of the log against a real database and a real signer."""

import io
import re
from datetime import UTC, datetime

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from audit import jobs, selectors, work
from kvconsole.infra.sql import connect
from tests.frontend.tenancy.conftest import proved
from tests.tenants.making import a_tenant, some

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def newest(action):
    found = selectors.selected(selectors.EventFilter(action=action)).order_by("-time_us", "-id").first()
    assert found is not None
    return found


def counted():
    with connect("audit") as c:
        return c.execute("SELECT count(*) FROM audit_event").fetchone()[0]


def test_before_anything_is_signed_nothing_is_fine(person):
    page = person("auditor").get("/audit").content.decode()
    assert "Nothing is signed yet." in page
    assert 'id="log-answer" data-tone="unknown"' in page
    assert "No witness" in page


def test_what_was_not_hashed_again_is_not_said_to_be_fine(person, sealed):
    who = person("auditor")
    size = sealed()
    page = who.get("/audit").content.decode()
    assert f"Signed up to entry {size - 1:,}." in page
    assert "was not looked at yet" in page
    assert 'id="log-answer" data-tone="unknown"' in page
    assert "could begin another log" in page
    assert "The signer is on this host" in page


def test_each_look_is_an_event_and_the_state_is_none(person):
    who, before = person("auditor"), counted()
    who.get("/audit?action=user")
    assert counted() == before + 1
    assert b'"records"' in bytes(newest("log.searched").body)
    who.get("/audit/state")
    assert counted() == before + 1


def followed(page):
    """What the page asks after five seconds."""
    return re.search(r'hx-get="(/audit/state[^"]+)"', page)[1].replace("&amp;", "&")


def fresh(page):
    """How many events came since, as the page says it."""
    return int(re.search(r'id="log-fresh"[^>]*data-fresh="(\d+)"', page)[1])


def test_a_page_says_what_came_since_but_not_its_own_look(person, sealed):
    who = person("auditor")
    asked = followed(who.get("/audit").content.decode())
    before = counted()
    assert fresh(who.get(asked).content.decode()) == 0
    person("viewer", name="later")
    page = who.get(asked).content.decode()
    assert fresh(page) == 1
    assert "1 new" in page
    assert counted() == before + 1, "to follow is no look"
    again = followed(who.get("/audit?action=token").content.decode())
    person("viewer", name="latest")
    assert fresh(who.get(again).content.decode()) == 0, "what the filter leaves out is no news"


def test_an_event_that_waited_gets_its_place_while_one_reads(person, sealed):
    who = person("auditor")
    page = who.get("/audit?action=user.created").content.decode()
    event = newest("user.created")
    place = rf'id="at-{event.event_id}">\s*(?:<span class="muted">)?([^<]+)'
    assert re.search(place, page)[1] == "waits"
    assert f"#at-{event.event_id}" in page
    assert str(event.event_id) not in re.sub(r'hx-\w[^=]*="[^"]*"', "", who.get(followed(page)).content.decode())
    sealed()
    moved = who.get(followed(page)).content.decode()
    assert re.search(place, moved)[1].isdecimal()
    assert f"#at-{event.event_id}" not in moved, "it is not asked for again"


@pytest.mark.parametrize("asked", [
    "", "?after=x&look=y&waiting=", "?after=2026-01-01T00:00:00&look=00000000-0000-0000-0000-000000000000&waiting=,",
    "?after=9999-12-31T23:59:59%2B00:00&look=00000000-0000-0000-0000-000000000000&waiting=00000000-0000-0000-0000-000000000000",
    "?from=soon&after=2026-01-01T00:00:00%2B00:00&look=00000000-0000-0000-0000-000000000000&waiting=",
])  # fmt: skip
def test_odd_questions_for_news_are_answered(person, asked):
    page = person("auditor").get(f"/audit/state{asked}")
    assert page.status_code == 200
    assert 'data-fresh="0"' in page.content.decode() or "log-fresh" not in page.content.decode()


def test_a_tenant_is_told_of_its_own_news_alone(person):
    who = person("tenant-admin", tenant=a_tenant(slug=some("t")))
    asked = followed(who.get("/audit").content.decode())
    person("viewer", name="stranger")
    assert fresh(who.get(asked).content.decode()) == 0


def test_filters_narrow_and_say_so(person):
    who = person("auditor")
    page = who.get("/audit?action=user.created&outcome=success").content.decode()
    assert page.count("user.created</a>") == 1
    assert "mira-okafor" in page
    none = who.get("/audit?action=user.created&from=2100-01-01 00:00").content.decode()
    assert "This filter leaves nothing" in none
    odd = who.get("/audit?from=yesterday").content.decode()
    assert "The filter cannot be read" in odd


def test_an_older_page_follows_the_newest(person, monkeypatch):
    who = person("auditor")
    monkeypatch.setattr(selectors, "PAGE", 2)
    monkeypatch.setitem(selectors.events.__kwdefaults__, "limit", 2)
    for _ in range(3):
        who.get("/audit")
    page = who.get("/audit").content.decode()
    older = re.search(r'rel="next" href="([^"]+)"', page)
    assert older
    assert 'rel="prev"' in who.get("/audit" + older[1].replace("&amp;", "&")).content.decode()


def test_an_event_has_its_place_and_a_proof_that_holds_on_the_public_page(person, sealed, client):
    who = person("auditor")
    event = newest("user.created")
    assert "nothing proves it yet" in who.get(f"/audit/events/{event.event_id}").content.decode()
    refused = who.get(f"/audit/events/{event.event_id}/proof")
    assert (refused.status_code, "not-sequenced" in refused.content.decode()) == (409, True)
    sealed()
    page = who.get(f"/audit/events/{event.event_id}").content.decode()
    assert "under the signed head of" in page
    assert "mira-okafor@example.invalid" in page, "an auditor reads personal data"
    proof = who.get(f"/audit/events/{event.event_id}/proof")
    body = who.get(f"/audit/events/{event.event_id}/body").content
    assert body == bytes(event.body)
    before = counted()
    good = client.post("/verify", {"proof": proof.content.decode(), "body_file": SimpleUploadedFile("b", body)})
    assert 'data-verdict="valid"' in good.content.decode()
    spoiled = client.post("/verify", {"proof": proof.content.decode(), "body_file": SimpleUploadedFile("b", b"{}")})
    assert 'data-verdict="invalid"' in spoiled.content.decode()
    assert "The body is not what the leaf commits to." in spoiled.content.decode()
    assert counted() == before


def test_an_operator_reads_no_personal_data(person):
    page = person("operator").get(f"/audit/events/{newest_id(person)}").content.decode()
    assert "Sealed. Auditors can read it." in page
    assert "example.invalid" not in page


def worked(job):
    """A worker does it."""
    work.job_run(job.id, holder="test", now=datetime.now(UTC))


def newest_id(person):
    person("auditor", name="another")
    return newest("user.created").event_id


def test_a_verification_is_asked_for_done_and_told(person, sealed):
    who = person("auditor")
    assert who.post("/audit/verify").status_code == 409, "nothing is signed"
    size = sealed()
    asked = who.post("/audit/verify")
    job = selectors.jobs().get()
    assert asked.url == f"/audit/jobs/{job.id}"
    page = who.get(asked.url).content.decode()
    assert 'hx-trigger="every 2s"' in page
    worked(job)
    page = who.get(asked.url).content.decode()
    assert "entries are as they were sealed." in page
    assert f"{size:,}" in page
    assert "every 2s" not in page


def test_an_export_is_made_taken_and_checked(person, sealed, client):
    who = person("auditor")
    sealed()
    assert who.get("/audit/exports/new?action=user").status_code == 200
    told = who.get("/audit/exports/new?check=1&format=csv&proofs=yes&action=user").content.decode()
    assert "<b>1 event</b>" in told
    assert "1 of them have some; that of 1 can still be read." in told
    assert not selectors.jobs().exists(), "a rehearsal makes nothing"
    asked = who.post("/audit/exports/new", {"format": "csv", "proofs": "yes", "action": "user"})
    assert asked.status_code == 302
    job = selectors.jobs().get()
    open_ = who.get(f"/audit/jobs/{job.id}/download")
    assert open_.status_code == 409
    worked(job)
    taken = who.get(f"/audit/jobs/{job.id}/download")
    bundle = b"".join(taken.streaming_content)
    assert bundle[:2] == b"PK"
    good = client.post("/verify", {"proof_file": io.BytesIO(bundle)}).content.decode()
    assert 'data-verdict="valid"' in good
    half = len(bundle) // 2
    bad = bundle[:half] + bytes([bundle[half] ^ 1]) + bundle[half + 1 :]
    assert 'data-verdict="valid"' not in client.post("/verify", {"proof_file": io.BytesIO(bad)}).content.decode()
    assert "events, signed and with what checks them" in who.get("/audit/jobs").content.decode()


def test_an_export_that_cannot_be_read_is_refused_beside_its_field(person, sealed):
    who = person("auditor")
    sealed()
    answer = who.post("/audit/exports/new", {"format": "jsonl", "from": "soon"})
    assert answer.status_code == 400
    assert 'aria-invalid="true"' in answer.content.decode()
    assert not selectors.jobs().exists()


def test_disclosing_asks_for_a_proof_first(person, sealed):
    who = person("auditor")
    sealed()
    assert who.get("/audit/exports/disclose").url.startswith("/account/confirm")
    proved(who)
    assert "will be readable" in who.get("/audit/exports/disclose").content.decode()
    who.post("/audit/exports/disclose", {"format": "jsonl", "proofs": "yes"})
    assert selectors.jobs().get().params["personal_data"] is True


def test_a_job_can_be_stopped(person, sealed):
    who = person("auditor")
    sealed()
    who.post("/audit/verify")
    job = selectors.jobs().get()
    assert "goes; nothing of the log changes" in who.get(f"/audit/jobs/{job.id}/cancel").content.decode()
    assert who.post(f"/audit/jobs/{job.id}/cancel").status_code == 302
    assert "is being cancelled" in who.get(f"/audit/jobs/{job.id}").content.decode()
    worked(job)
    assert selectors.jobs().get().state not in jobs.OPEN
    assert who.post(f"/audit/jobs/{job.id}/cancel").status_code == 409


def test_the_access_review_names_who_can_destroy(person):
    who = person("destructive-operator", "auditor")
    page = who.get("/audit/access").content.decode()
    assert "mira-okafor" in page
    assert "audit:destroy" in page
    assert "There was none" in page
    row = re.search(r"let bodies of old events go.*?</tr>", page, re.S)[0]
    assert "nobody" in row, "who looks is no approver"
    assert "people only, no token" in row
    assert "mira-okafor" in re.search(r"close a tenant.*?</tr>", page, re.S)[0]


def test_a_tenants_administrator_sees_their_own_events(person):
    tenant = a_tenant(slug=some("t"))
    person("viewer", name="stranger")
    who = person("tenant-admin", tenant=tenant)
    page = who.get("/audit").content.decode()
    assert "user.created" in page
    assert who.get(f"/audit/events/{of_the_fleet()}").status_code == 404
    assert 'name="tenant"' not in page
    assert "Hashed again" not in page
    assert "/audit" in who.get(f"/t/{tenant.slug}").content.decode()


def of_the_fleet():
    found = selectors.selected(selectors.EventFilter(action="user.created", tenant="platform")).first()
    return found.event_id


@pytest.mark.parametrize("path", ["/audit", "/audit/jobs", "/audit/access", "/audit/webhooks"])
def test_viewers_may_not_look(person, path):
    assert person("viewer").get(path).status_code == 403


def test_nothing_of_a_foreign_job_is_shown(person, sealed):
    auditor = person("auditor")
    sealed()
    auditor.post("/audit/verify")
    job = selectors.jobs().get()
    who = person("tenant-admin", name="own", tenant=a_tenant(slug=some("t")))
    for path in (f"/audit/jobs/{job.id}", f"/audit/jobs/{job.id}/download"):
        assert who.get(path).status_code == 404
    assert who.post(f"/audit/jobs/{job.id}/cancel").status_code == 404


def test_an_erased_person_is_nobody_any_more(person, sealed):
    person("viewer", name="gone-soon")
    event = newest("user.created")
    user = event.object_id
    who = proved(person("operator", "approver", "auditor"))
    assert "unreadable for good" in who.get(f"/people/{user}/erase").content.decode()
    assert who.post(f"/people/{user}/erase").status_code == 302
    page = who.get(f"/audit/events/{event.event_id}").content.decode()
    assert "its key is gone" in page
    assert "gone-soon@example.invalid" not in page


def test_erasing_asks_for_a_proof(person):
    person("viewer", name="stays")
    user = newest("user.created").object_id
    assert person("operator").get(f"/people/{user}/erase").url.startswith("/account/confirm")


def test_retention_is_asked_for_by_one_and_decided_by_another(person):
    asks, decides = proved(person("operator", name="asks")), proved(person("approver", name="decides"))
    young = asks.post("/audit/retention/new", {"class": "1", "month": datetime.now(UTC).strftime("%Y-%m")})
    assert (young.status_code, "retention-too-young" in young.content.decode()) == (409, True)
    assert asks.post("/audit/retention/new", {"class": "1", "month": "2021-03"}).status_code == 302
    page = asks.get("/audit/retention").content.decode()
    assert "waits for a second person" in page
    assert "Let the bodies" not in page, "operators do not approve"
    page = decides.get("/audit/retention").content.decode()
    approve = re.search(r'href="(/audit/retention/[^"]+/approve)"', page)
    plan = decides.get(approve[1]).content.decode()
    assert "go for good" in plan
    assert "Let the bodies of 2021-03 go" in plan
    assert "waits for a second person" in decides.get("/audit/retention").content.decode(), "to look changes nothing"
    for phrase in ("", "2021-03"):
        wrong = decides.post(approve[1], {"phrase": phrase})
        assert (wrong.status_code, 'aria-invalid="true"' in wrong.content.decode()) == (400, True)
    assert "waits for a second person" in decides.get("/audit/retention").content.decode()
    assert "<code>2021-03 identity</code>" in plan
    assert decides.post(approve[1], {"phrase": "2021-03 identity"}).status_code == 302
    assert "approved, not carried out yet" in decides.get("/audit/retention").content.decode()


def test_a_webhook_is_made_tried_paused_and_removed(person):
    who = person("operator")
    wrong = who.post("/audit/webhooks/new", {"url": "ftp://x.example/", "events": ["log.gap"]})
    assert (wrong.status_code, "webhook-url-refused" in wrong.content.decode()) == (422, True)
    made = who.post(
        "/audit/webhooks/new", {"url": "https://hooks.example.com/in", "name": "siem", "events": ["log.gap"]}
    )
    secret = re.search(r"whsec_[\w+/=]+", made.content.decode())[0]
    hook = selectors.webhooks().get()
    at = f"/audit/webhooks/{hook.id}"
    assert secret not in who.get(at).content.decode()
    assert who.post(f"{at}/test").status_code == 302
    assert "webhook.test" in who.get(at).content.decode()
    who.post(f"{at}/state", {"active": "no"})
    assert "paused" in who.get(at).content.decode()
    assert who.post(f"{at}/test").status_code == 409
    who.post(f"{at}/state", {"active": "yes"})
    assert "within 24 hours" in who.get(f"{at}/rotate").content.decode()
    again = re.search(r"whsec_[\w+/=]+", who.post(f"{at}/rotate").content.decode())[0]
    assert again != secret
    assert "Old secret until" in who.get(at).content.decode()
    assert "gone for good" in who.get(f"{at}/remove").content.decode()
    assert who.get(at).status_code == 200, "to look changes nothing"
    assert who.post(f"{at}/remove").status_code == 302
    assert who.get(at).status_code == 404


def test_an_auditor_sees_webhooks_and_changes_none(person):
    who = person("auditor")
    assert who.get("/audit/webhooks").status_code == 200
    assert who.post("/audit/webhooks/new", {}).status_code == 403
