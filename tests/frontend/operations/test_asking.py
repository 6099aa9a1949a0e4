"""A deletion from the form to its fence, over the real services: fields, tables, typed words and a second person."""

import re
import uuid

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict

from catalog.models import Operation, Plan
from frontend.operations import asking
from frontend.tenancy.forms import Form
from tests.frontend.operations.test_views import text
from tests.frontend.tenancy.conftest import proved
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = [pytest.mark.django_db(databases=["default", "tenant"]), pytest.mark.usefixtures("nobody")]


def planned(who, **given):
    answer = who.post("/deletions/new", given)
    assert answer.status_code == 302, text(answer)[:900]
    return Plan.objects.get(id=answer.url.rsplit("/", 1)[1])


def test_a_link_of_the_map_fills_the_form_and_plans_nothing(person, acme):
    page = person("operator").get("/deletions/new?tenant=acme-code&label=contracts").content.decode()
    assert 'value="acme-code"' in page
    assert 'value="contracts"' in page
    assert not Plan.objects.exists()


def test_from_the_form_to_the_fence(person, acme):
    tenant, (contracts, tools) = acme
    who = proved(person("destructive-operator"))
    row = planned(who, tenant=tenant.slug, label="contracts")
    assert row.risk == "R1"
    page = who.get(f"/plans/{row.id}")
    assert "One label goes." in text(page)
    assert "Nothing has come since" in text(who.get(f"/plans/{row.id}/drift"))
    answer = who.post(f"/plans/{row.id}/start", {"grace": "5", "throttle": "1 MiB"})
    operation = Operation.objects.get()
    assert answer.url == f"/operations/{operation.id}"
    assert (operation.throttle, operation.grace_until is not None) == (1 << 20, True)
    contracts.refresh_from_db()
    tools.refresh_from_db()
    assert (contracts.min_gen, tools.min_gen) == (2, 1)
    assert "It was started." in text(who.get(f"/plans/{row.id}"))
    assert "It is fenced." in text(who.get(answer.url))


def test_what_is_typed_wrong_stays_and_says_why(person, acme):
    who = proved(person("destructive-operator"))
    answer = who.post("/deletions/new", {"label": "contracts", "subject": "Mira", "older_than": "yesterday"})
    assert answer.status_code == 400
    assert answer.context["form"].errors.keys() >= {"subject", "older_than"}
    assert 'value="contracts"' in answer.content.decode()
    empty = who.post("/deletions/new", {})
    assert (empty.status_code, empty.context["code"]) == (422, "selector-empty")
    narrow = who.post("/deletions/new", {"tenant": acme[0].slug, "session": "s-1"})
    assert (narrow.status_code, narrow.context["code"]) == (422, "not-separable")
    finer = who.post("/deletions/new", {"tenant": acme[0].slug, "older_than": "2026-01-01 00:00"})
    assert (finer.status_code, finer.context["code"]) == (422, "collateral-needed")
    assert not Plan.objects.exists()


def test_a_whole_tenant_asks_for_typed_words_and_a_reason(person, acme):
    who = proved(person("destructive-operator"))
    row = planned(who, tenant=acme[0].slug)
    assert row.risk == "R2"
    page = who.get(f"/plans/{row.id}/confirm").content.decode()
    phrase = re.search(r'Type <b class="mono">([^<]+)</b>', page)[1]
    none = who.post(f"/plans/{row.id}/confirm", {"confirm_phrase": phrase})
    assert (none.status_code, none.context["code"]) == (422, "reason-needed")
    assert not Operation.objects.exists()
    assert who.post(f"/plans/{row.id}/confirm", {"confirm_phrase": phrase, "reason": "Art. 17"}).status_code == 302
    assert Operation.objects.get().reason == "Art. 17"


def test_a_plan_that_was_made_anew_in_another_window_is_not_started_unseen(person, acme):
    who = proved(person("destructive-operator"))
    row = planned(who, tenant=acme[0].slug, label="contracts")
    answer = who.post(f"/plans/{row.id}/start", {"seen": "0" * 64})
    assert (answer.status_code, answer.context["code"]) == (422, "plan-mismatch")


@pytest.mark.parametrize(("kind", "selector", "options"), [
    ("deletion", {"tenant": "a", "prefix": ["ab" * 16], "older_than": 1.7e9},
     {"collateral": "none", "share_groups": ["0190aaaa-0000-7000-8000-00000000dead"], "crypto_erase": True}),
    ("epoch", {"epoch": "team/model/3"}, {"drain": True, "drain_seconds": 900.0}),
])  # fmt: skip
def test_the_form_that_plans_the_same_again_is_filled_as_it_was(kind, selector, options):
    address = asking.anew(Plan(kind=kind, selector=selector, options=options))
    data = QueryDict(address.partition("?")[2])
    if kind == "epoch":
        assert data.dict() == {"model": "team/model", "number": "3", "policy": "drain", "drain_seconds": "900"}
        return
    form = asking.selector_form(data)
    said, chosen = asking.selector_of(form), asking.options_of(form)
    assert (form.errors, said) == ({}, selector)
    assert (chosen["collateral"], chosen["share_groups"], chosen["crypto_erase"]) == (*options.values(),)


def test_a_part_of_the_selector_that_names_nothing_is_told_at_its_field(person, acme):
    who = proved(person("destructive-operator"))
    for part, value in {"tenant": "nobody", "namespace": "ab" * 32, "epoch": "none/1"}.items():
        answer = who.post("/deletions/new", {"tenant": acme[0].slug, part: value})
        assert answer.status_code == 404
        assert answer.context["form"].errors.keys() == {part}, part


# --- tables -----------------------------------------------------------------------------------------------------------


def uploaded(who, rows, **given):
    file = SimpleUploadedFile("subjects.csv", rows if isinstance(rows, bytes) else rows.encode())
    return who.post("/deletions/new", {"csv": file, **given})


def test_a_table_becomes_a_plan_for_each_row_and_what_is_small_starts_together(person, acme):
    tenant, spaces = acme
    who = proved(person("destructive-operator"))
    answer = uploaded(who, f"\ufefftenant,label\r\n{tenant.slug},contracts\r\n\r\n{tenant.slug},tools\r\n")
    assert answer.url == "/plans"
    page = who.get("/plans")
    assert "2 plans can be started" in text(page)
    ids = [str(one) for one in Plan.objects.values_list("id", flat=True)]
    assert who.post("/plans/start", {"plan": ids}).url == "/operations"
    assert Operation.objects.count() == 2
    for space in spaces:
        space.refresh_from_db()
        assert space.min_gen == 2
    assert "You have no plan that could be started." in text(who.get("/plans"))


def test_rows_that_cannot_be_planned_are_named_and_nothing_is(person, acme):
    tenant, (contracts, _) = acme
    who = person("operator")
    rows = f"namespace\n{contracts.id}\n{contracts.id}\n{uuid.uuid4()}\n"
    answer = uploaded(who, rows)
    assert answer.status_code == 400
    assert [(row.line, row.code) for row in answer.context["wrong"]] == [(3, "duplicate"), (4, "not-found")]
    assert "2 of 3; no plan was made of any row" in text(answer)
    assert not Plan.objects.exists()
    subjects = uploaded(who, "subject\nMira Okafor\n", tenant=tenant.slug)
    assert [(row.line, row.code) for row in subjects.context["wrong"]] == [(2, "validation-failed")]


@pytest.mark.parametrize("rows", [
    "label,subject\na,b\n", "name\nx\n", "", "label\n", b"\xff\xfe\n", "label\n" + "x\n" * 101,
    "label\n" + "x" * (257 << 10),
])  # fmt: skip
def test_what_is_no_table_of_ours_is_refused_whole(rows):
    form, file = Form({"csv": ""}), SimpleUploadedFile("t.csv", rows if isinstance(rows, bytes) else rows.encode())
    assert asking.table_of(file, "", form) == []
    assert form.errors.keys() == {"csv"}


def test_only_what_needs_no_typing_starts_together(person, acme):
    who = proved(person("destructive-operator"))
    small, whole = planned(who, tenant=acme[0].slug, label="contracts"), planned(who, tenant=acme[0].slug)
    answer = who.post("/plans/start", {"plan": [str(small.id), str(whole.id)]})
    assert (answer.status_code, answer.context["code"]) == (409, "plan-needed")
    other = proved(person("destructive-operator", name="other"))
    assert other.post("/plans/start", {"plan": [str(small.id)]}).status_code == 400
    assert not Operation.objects.exists()


# --- a tenant's own people --------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_a_tenants_people_reach_their_own_and_see_no_node(person):
    tenant, other, model = a_tenant(erasure_scope="label"), a_tenant(), a_model()
    mine, theirs = a_namespace(tenant, model, label="mine"), a_namespace(other, model, label="theirs")
    who = proved(person("tenant-admin", tenant=tenant, name="own-admin"))
    row = who.post("/deletions/new", {"label": "mine"})
    page = who.get(row.url)
    assert (page.context["staff"], page.context["unreachable"]) == (False, [])
    assert page.context["row"].tenant_id == tenant.id
    assert who.post("/deletions/new", {"tenant": other.slug}).context["code"] == "not-found"
    assert who.post("/deletions/new", {"namespace": str(theirs.id)}).context["code"] == "not-found"
    started = who.post(f"{row.url}/start", {})
    assert started.status_code == 302
    assert "data-polled" in who.get(started.url).content.decode(), "the socket is for the fleet's staff"
    mine.refresh_from_db()
    assert mine.min_gen == 2
    stranger = proved(person("tenant-admin", tenant=other, name="stranger"))
    for path in (row.url, started.url, f"{started.url}/stop"):
        assert stranger.get(path).status_code == 404
    assert stranger.post(f"{started.url}/pause").status_code == 404
    assert who.get("/approvals").status_code == 403
