"""Namespaces on pages: those of share groups too, both ways through the pages, any two compared by label or id."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.frontend.tenancy.test_views import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def shared(tenanted, model):
    """A namespace of a group of acme-code and borealis-bank, and one of a group that has ended."""
    from tenants import services
    from tests.tenants.making import principal

    now, groups = timezone.now(), []
    for name in ("books", "over"):
        asked = services.share_group_request(
            owner="acme-code", name=name, audience=["borealis-bank"], reason="same handbooks",
            expires_at=now + timedelta(days=3), actor=principal(None, "operator"), now=now,
        )  # fmt: skip
        services.share_group_approve(group_id=asked.id, actor=principal(None, "approver", at=now), now=now)
        services.namespace_resolve(tenant="acme-code", model="lab/ref-1k", share_group=str(asked.id))
        groups.append(asked)
    services.share_group_revoke(group_id=groups[1].id, reason="x", actor=principal(None, "operator"))
    return groups


@pytest.mark.parametrize("slug", ["acme-code", "borealis-bank"])
def test_namespaces_of_groups_are_listed_while_the_group_holds(person, shared, slug):
    for path in (f"/t/{slug}", f"/tenants/{slug}"):
        text = text_of(person("viewer", name=f"ann-{path.count('/')}-{len(path)}").get(path))
        assert "Namespaces of share groups" in text
        assert "acme-code/books" in text
        assert "acme-code/over" not in text


def test_a_shared_namespace_can_be_compared(person, shared, tenanted):
    client = person("viewer")
    context = client.get("/t/acme-code").context
    own, group = context["namespaces"].items[0], context["shared"].items[0]
    text = text_of(client.get("/t/acme-code", {"a": own.digest, "b": str(group.id)}))
    assert "They share nothing" in text
    assert "tenant or share group" in text


def test_any_two_are_compared_by_label_and_an_unclear_one_is_asked_about(tenanted, person, model):
    from tenants import services

    client = person("viewer")
    text = text_of(client.get("/tenants/acme-code", {"a": "tools", "b": "contracts"}))
    assert "They share nothing: 1 field differs." in text
    assert "One of them is not there." in text_of(client.get("/tenants/acme-code", {"a": "tools", "b": "nothing"}))
    services.namespace_resolve(tenant="acme-code", model="lab/ref-1k", label="tools")  # of the newer epoch
    asked = client.get("/tenants/acme-code", {"a": "tools", "b": "contracts"})
    assert "Several have this label." in text_of(asked)
    choices = asked.context["choices"]
    assert [c.side for c in choices] == ["a", "a"]
    chosen = text_of(client.get("/tenants/acme-code" + choices[1].link.split("#")[0]))
    assert "They share nothing: 1 field differs." in chosen
    other = services.namespace_resolve(tenant="borealis-bank", model="lab/ref-1k", label="tools")
    foreign = text_of(client.get("/tenants/acme-code", {"a": choices[0].space.digest, "b": str(other.id)}))
    assert "tenant or share group" in foreign, "by id any two that the caller sees"


def test_pages_of_namespaces_go_both_ways(tenanted, person, model, monkeypatch):
    from tenants import directory

    names = directory.namespaces_page.__kwdefaults__
    monkeypatch.setattr(directory.namespaces_page, "__kwdefaults__", {**names, "limit": 1})
    client = person("viewer")
    first = client.get("/t/acme-code?unit=bytes")
    page = first.context["namespaces"]
    assert (len(page.items), page.before) == (1, "")
    assert "unit=bytes" in page.after, "the rest of the address stays"
    second = client.get("/t/acme-code" + page.after.split("#")[0])
    older = second.context["namespaces"]
    assert older.items[0].id < page.items[0].id
    assert 'rel="prev"' in second.content.decode()
    back = client.get("/t/acme-code" + older.before.split("#")[0]).context["namespaces"]
    assert [n.id for n in back.items] == [n.id for n in page.items]


def test_models_are_paged_and_found(tenanted, person, model, monkeypatch):
    from frontend.tenancy import epochs
    from tests.tenants.making import a_model

    for name in ("lab/a", "lab/b", "lab/z"):
        a_model(name=name)
    monkeypatch.setattr(epochs, "SHOWN_MODELS", 2)
    client = person("viewer")
    first = client.get("/epochs")
    page = first.context["models_page"]
    assert ([m.name for m in page.items], page.before) == (["lab/a", "lab/b"], "")
    second = client.get("/epochs" + page.after.split("#")[0]).context["models_page"]
    assert ([m.name for m in second.items], second.after) == (["lab/ref-1k", "lab/z"], "")
    back = client.get("/epochs" + second.before.split("#")[0]).context["models_page"]
    assert ([m.name for m in back.items], back.before) == (["lab/a", "lab/b"], "")
    found = client.get("/epochs?q=ref")
    assert [m.name for m in found.context["models"]] == ["lab/ref-1k"]
    nothing = text_of(client.get("/epochs?q=zz-none"))
    assert "No model has “zz-none” in its name." in nothing
    assert "No model is registered" not in nothing
