"""Forms: what people type becomes what services take; what cannot be read stands beside its field."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.http import QueryDict
from django.utils.translation import override
from hypothesis import given
from hypothesis import strategies as st

from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from kvconsole.infra import access
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", None),
        ("0", 0),
        ("640 GiB", 640 << 30),
        ("1.5 mib", 3 << 19),
        ("4,096", 4096),
        ("2TiB", 2 << 40),
        (str(2**62), 2**62),
    ],
)
def test_sizes_are_read_as_people_write_them(text, size):
    form = Form({"hbm": text})
    assert forms.size(form, "hbm") == size
    assert not form.code


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "nan GiB", "inf TiB", "1 KB", "5000000 TiB", "1e400 MiB", "GiB"])
def test_what_is_no_size_is_refused(text):
    form = Form({"hbm": text})
    assert forms.size(form, "hbm") is None
    assert (form.code, form.status, list(form.errors)) == ("validation-failed", 400, ["hbm"])


@given(st.integers(0, 2**62))
def test_a_size_that_is_written_is_read_again(size):
    assert forms.size(Form({"a": forms.written(size)}), "a") == size


@pytest.mark.parametrize(("text", "names"), [("a, b  c，a、d", ["a", "b", "c", "d"]), ("", []), (" , ", [])])
def test_names_have_commas_or_spaces_between_them(text, names):
    assert forms.words(text) == names


def test_retention_is_a_line_a_class():
    form = Form({"r": "internal: 60\n\n source：3600; x: 1"})
    assert forms.retention(form, "r") == {"internal": 60, "source": 3600, "x": 1}
    assert forms.retention(Form({"r": ""}), "r") == {}
    for wrong in ("internal", "internal: soon", ": 60"):
        form = Form({"r": wrong})
        assert forms.retention(form, "r") == {}
        assert "r" in form.errors


@pytest.mark.parametrize(("text", "number"), [("", None), ("1,000", 1000), ("0", 0)])
def test_whole_numbers(text, number):
    assert forms.whole(Form({"n": text}), "n") == number


def test_days_end_within_a_year():
    assert forms.until(Form({"d": "30"}), "d", NOW) == NOW + timedelta(days=30)
    for wrong in ("", "0", "366", "-3", "9999", "x"):
        form = Form({"d": wrong})
        assert forms.until(form, "d", NOW) is None
        assert "d" in form.errors


def test_a_refusal_stands_beside_the_fields_it_names():
    form = Form()
    errors = [
        {"pointer": "/tiers/hbm/limit_bytes", "code": "below-use", "detail": "9 bytes"},
        {"pointer": "/classes/0", "code": "nobody-knows", "detail": "In English."},
        {"pointer": "/tiers/dram", "code": "holds-bytes", "detail": "3 blocks"},
    ]
    form.refuse(Problem("validation-failed", "why", errors=errors))
    assert list(form.errors) == ["hbm_limit", "classes", "dram"]
    assert form.details == {"classes": "In English.", "dram": "3 blocks"}
    assert (form.detail, form.status) == ("why", 400)
    assert form.problem


def test_what_was_typed_stays():
    form = forms.typed(QueryDict("name=+a+&roles=x&roles=y&other=z"), "name", many=("roles",))
    assert form.given == {"name": "a", "roles": ["x", "y"]}


@pytest.mark.django_db
def test_a_rehearsal_is_undone_and_a_refused_form_does_nothing():
    from tenants import services
    from tenants.directory import tenant_view

    def act():
        return services.tenant_create(slug="rehearsed", name="R").slug

    assert forms.attempt(Form(), act, rehearse=True) == "rehearsed"
    assert tenant_view("rehearsed") is None
    assert forms.attempt(Form(code="validation-failed"), act) is None
    assert tenant_view("rehearsed") is None
    assert forms.attempt(Form(), act) == "rehearsed"
    assert tenant_view("rehearsed")


@pytest.mark.parametrize(
    ("language", "tenant_id", "told"),
    [("en", None, True), ("zh-hans", None, True), ("en", uuid4(), True), ("zh-hans", uuid4(), False)],
)
def test_a_tenants_people_are_told_nothing_in_a_language_that_is_not_theirs(language, tenant_id, told):
    """Staff of the fleet reads what services say in English; a tenant's person has code and title in their language."""
    who = Principal(kind="user", id="1", roles=frozenset({"tenant-admin"}), tenant_id=tenant_id)
    error = {"pointer": "/name", "code": "of-a-service", "detail": "Not like this."}
    form = Form()
    acting = access._principal.set(who)
    with override(language):
        form.refuse(Problem("own-roles", "Ask somebody else.", errors=[error]))
    access._principal.reset(acting)
    assert (form.code, bool(form.errors["name"])) == ("own-roles", True)
    assert bool(form.detail) == told
    assert form.details == ({"name": "Not like this."} if told else {})
