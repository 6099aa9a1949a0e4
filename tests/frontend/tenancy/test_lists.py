"""Lists on the pages of people: what is good is on the first page, and what does not fit is on the next."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from kvconsole.infra.access import system, tenant_context
from tests.frontend.tenancy.conftest import proved

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
PLACES = ["/settings", "/tenants/acme-code", "/t/acme-code"]


def made(place):
    """101 revoked tokens and one that is good, of whom the page is about; the newest are the revoked ones."""
    from tenants import services
    from tenants.models import Token

    actor, at = system("test"), datetime.now(UTC)
    with tenant_context(actor):
        acme = services.tenant_create(slug="acme-code", name="Acme Code", actor=actor)
        tenant = None if place == "/settings" else acme
        owner, _ = services.person_create(
            username="ci", kind="service", how="none", roles=["gateway"], tenant=tenant, actor=actor
        )
        common = (
            {"user": owner, "roles": ["gateway"], "tenant_id": acme.id}
            if tenant
            else {"user": owner, "roles": ["gateway"]}
        )
        services.token_issue("service", name="the good one", actor=actor, now=at - timedelta(days=1), **common)
        for i in range(101):
            token, _ = services.token_issue("service", name=f"gone-{i}", actor=actor, **common)
            services.token_revoke(token=token, reason="test", actor=actor)
        assert Token.objects.filter(user_id=owner.id).count() == 102
    return acme


@pytest.mark.parametrize("place", PLACES)
def test_the_one_good_token_is_seen_and_each_revoked_one_is_on_some_page(place, person):
    acme = made(place)
    client = person("tenant-admin", tenant=acme) if place.startswith("/t/") else person("operator")
    seen, where, pages = [], place, 0
    while where:
        text = client.get(where).content.decode()
        names = re.findall(r"<th scope=\"row\">(the good one|gone-\d+)<", text)
        if not seen:
            assert names[0] == "the good one"
            assert "how many in all is not counted" in text
        seen += names
        pages += 1
        following = re.search(r'rel="next" href="(\?[^"]*tokens_after[^"]*)"', text)
        where = f"{place}{following[1].replace('&amp;', '&')}" if following else ""
    assert pages == 3
    assert len(seen) == len(set(seen)) == 102
    assert re.search(r'rel="prev" href="\?[^"]*tokens_before', text)


def test_people_beyond_one_page_are_on_the_next_and_lists_turn_by_themselves(person):
    from tenants import services

    actor = system("test")
    with tenant_context(actor):
        for i in range(60):
            services.person_create(username=f"svc-{i:02}", kind="service", how="none", roles=["viewer"], actor=actor)
            services.person_create(username=f"pat-{i:02}", roles=["viewer"], actor=actor)
    client = proved(person("operator"))
    first = client.get("/settings").content.decode()
    assert "More than 50 people" in first
    assert "svc-00" in first
    assert "svc-59" not in first
    address = re.search(r'rel="next" href="(\?services_after=[^"]+)"', first)[1].replace("&amp;", "&")
    second = client.get(f"/settings{address}").content.decode()
    assert "svc-59" in second
    assert "pat-00" in second, "people are where they were"
    owners = client.get("/tokens/new").context["owners"]
    assert len([o for o in owners if o[2] == "service"]) == 60


def test_a_mark_that_is_none_is_the_first_page(person):
    client = person("operator")
    for query in ("tokens_after=x", "people_before=~", "groups_after=~~", "services_after=" + "x" * 999):
        assert client.get(f"/settings?{query}").status_code == 200
