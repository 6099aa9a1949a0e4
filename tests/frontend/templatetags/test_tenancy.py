"""Fields and quotas as templates draw them."""

import pytest

from catalog.quotas import TierQuota
from frontend.templatetags import tenancy
from frontend.tenancy import pictures
from frontend.tenancy.forms import Form


def step(limit, used, floor=0):
    return pictures._step("hbm", TierQuota(limit, floor, floor, used, None))


@pytest.mark.parametrize(
    ("limit", "used", "drawn"), [(10, 5, 'width="50.0%"'), (0, 5, 'width="100.0%"'), (10, 0, 'width="0.0%"')]
)
def test_a_bar_is_used_of_quota(limit, used, drawn):
    assert drawn in tenancy.quota_bar(step(limit, used))


def test_without_a_limit_there_is_no_bar_and_an_unknown_use_is_veiled():
    assert "<svg" not in tenancy.quota_bar(step(None, 5))
    assert 'data-fill="known" width="0.0%"' in tenancy.quota_bar(step(10, None))


def test_a_field_has_its_words_what_was_typed_and_what_is_wrong():
    form = Form({"slug": "x"}, {"slug": "no"}, {"slug": "why"})
    shown = tenancy.field(form, "slug")
    assert (str(shown["label"]), shown["value"], shown["error"], shown["detail"]) == ("Short name", "x", "no", "why")
    assert tenancy.field(form, "share_3", label="Epoch 3")["label"] == "Epoch 3"


@pytest.mark.parametrize(
    ("value", "name", "shown"),
    [("node", "isolation", "node"), ("label", "erasure_scope", "label"), ({"a": 60}, "retention", "a 1 min"),
     ({}, "retention", "–"), (["a", "b"], "classes", "a, b"), ([], "classes", "–"), ("", "residency", "–")],
)  # fmt: skip
def test_fields_of_a_tenant_as_people_read_them(value, name, shown):
    assert tenancy.shown(value, name) == shown


def test_small_filters():
    assert tenancy.limit(None) == "no limit"
    assert tenancy.limit(1024) == "1 KiB"
    assert tenancy.words("a b") == ["a", "b"]
    assert tenancy.get({"a": 1}, "b") is None
    assert tenancy.typed(Form({"a": 1}), "a") == 1
