"""Tenants and namespaces a page at a time, as pages list them."""

from datetime import UTC, datetime

import pytest

from tenants import services
from tenants.directory import namespaces_named, namespaces_page, tenant_view, tenants_page

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


@pytest.fixture
def tenants(db):
    return [services.tenant_create(slug=f"dir-{letter}", name=f"Name {letter.upper()}") for letter in "abcde"]


def test_pages_follow_each_other_both_ways(tenants):
    first = tenants_page(search="dir-", limit=2)
    assert [t.slug for t in first.items] == ["dir-a", "dir-b"]
    assert (first.before, first.after) == ("", "dir-b")
    second = tenants_page(search="dir-", after=first.after, limit=2)
    assert [t.slug for t in second.items] == ["dir-c", "dir-d"]
    last = tenants_page(search="dir-", after=second.after, limit=2)
    assert ([t.slug for t in last.items], last.after) == (["dir-e"], "")
    back = tenants_page(search="dir-", before=second.before, limit=2)
    assert ([t.slug for t in back.items], back.before, back.after) == (["dir-a", "dir-b"], "", "dir-b")


def test_search_finds_short_and_long_names(tenants):
    assert [t.slug for t in tenants_page(search="name d").items] == ["dir-d"]
    assert tenants_page(search="nothing of that name").items == []


def test_the_platform_is_no_tenant(tenants):
    assert tenant_view("platform") is None
    assert tenant_view("dir-a").name == "Name A"
    assert "platform" not in [t.slug for t in tenants_page(limit=500).items]


def test_namespaces_are_the_tenants_own_newest_first(tenants):
    config = {"model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 1, "num_attention_heads": 1,
              "num_key_value_heads": 1, "head_dim": 16, "hidden_size": 16}  # fmt: skip
    model = services.model_register(name="dir-model", config=config)
    services.epoch_create(model=model, weights_digest="sha256:dir")
    for label in ("one", "two", "three"):
        services.namespace_resolve(tenant="dir-a", model="dir-model", label=label)
    services.namespace_resolve(tenant="dir-b", model="dir-model", label="other")
    page = namespaces_page(tenant_id=tenants[0].id, now=NOW, limit=2)
    assert [n.label for n in page.items] == ["three", "two"]
    rest = namespaces_page(tenant_id=tenants[0].id, now=NOW, after=page.after, limit=2)
    assert ([n.label for n in rest.items], rest.after) == (["one"], "")
    assert len(namespaces_page(tenant_id=tenants[0].id, now=NOW, after="no id").items) == 3
    back = namespaces_page(tenant_id=tenants[0].id, now=NOW, before=rest.before, limit=2)
    assert ([n.label for n in back.items], back.before) == (["three", "two"], "")
    named = namespaces_named(tenant_id=tenants[0].id, text="two", now=NOW)
    assert [n.label for n in named] == ["two"]
    for text in (named[0].digest, str(named[0].id)):
        assert namespaces_named(tenant_id=tenants[1].id, text=text, now=NOW) == named
    assert namespaces_named(tenant_id=tenants[1].id, text="two", now=NOW) == []
