"""Short names of tenants: how they are written, and which look alike."""

import pytest

from kvconsole.infra.rest import Problem
from tenants import services, slugs
from tests.tenants.making import a_tenant

ALIKE = ("ACME", "Acme", "acme-", "-acme", "ac--me", "ac-me-", "аcme", "ａｃｍｅ", "𝒶𝒸𝓂ℯ", "acrne", "ac\u200bme")


@pytest.mark.django_db
@pytest.mark.parametrize("slug", ALIKE)
def test_a_look_alike_collides_and_is_told_with_what(slug):
    a_tenant(slug="ac-me" if "-me" in slug else "acme")
    with pytest.raises(Problem) as caught:
        services.tenant_create(slug=slug, name="x")
    assert caught.value.code == "slug-lookalike"
    assert "looks like 'ac" in caught.value.text


@pytest.mark.django_db
def test_the_same_slug_is_taken():
    a_tenant(slug="acme")
    with pytest.raises(Problem) as caught:
        services.tenant_create(slug="acme", name="x")
    assert caught.value.code == "slug-taken"


@pytest.mark.django_db
@pytest.mark.parametrize("slug", ["", "-", "a--b", "a-", "A", "a_b", "a b", "ä", "x" * 64, "a/b", "名"])
def test_what_is_no_slug_is_refused_where_nothing_looks_like_it(slug):
    with pytest.raises(Problem) as caught:
        services.tenant_create(slug=slug, name="x")
    assert caught.value.errors[0]["pointer"] == "/slug"


def test_plain_names_stay_apart():
    names = ["a", "b", "team-1", "team-2", "prod", "pred", "x" * 63, "a-b", "ab"]
    assert all(map(slugs.is_slug, names))
    assert len({slugs.slug_skeleton(n) for n in names}) == len(names)
