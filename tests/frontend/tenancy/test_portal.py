"""A tenant's own people: their portal has nothing of the fleet and nothing of another tenant."""

import re

import pytest

from kvconsole.infra.access import system, tenant_context

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def two(person):
    """Clients of an administrator of acme-code, and the two tenants."""
    from tenants.services import tenant_create

    with tenant_context(system("test")):
        acme = tenant_create(slug="acme-code", name="Acme Code", classes=["internal", "restricted"])
        bank = tenant_create(slug="borealis-bank", name="Borealis Bank")
    return person("tenant-admin", tenant=acme), acme, bank


def test_the_portal_has_only_what_is_ones_own(two):
    client, _acme, _bank = two
    answer = client.get("/t/acme-code")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "mira-okafor" in text
    assert "borealis" not in text
    assert "/nodes" not in text
    assert not re.search(r'href="/(tenants|epochs|settings|map)', text)
    assert "restricted" in text


def bare(answer):
    """The page without its request's id, its address and its time."""
    text = re.sub(r'<button type="button" class="id".*?</button>', "", answer.content.decode())
    return re.sub(r'data-now="\d+\.\d+"|csrfmiddlewaretoken[^>]+|/t/[a-z-]+|\d\d:\d\d:\d\d', "", text)


@pytest.mark.parametrize("path", ["/t/borealis-bank", "/t/nobody", "/t/platform"])
def test_another_tenants_portal_is_as_absent_as_one_that_never_was(two, path):
    client, _acme, _bank = two
    foreign, absent = client.get(path), client.get("/t/never-was")
    assert foreign.status_code == absent.status_code == 404
    assert bare(foreign) == bare(absent)


def test_the_fleets_pages_are_not_for_them_and_the_front_door_leads_to_the_portal(two):
    client, _acme, _bank = two
    for path in ("/tenants", "/tenants/acme-code", "/epochs", "/settings", "/new-tenant", "/share-groups/new"):
        assert client.get(path).status_code == 403, path
    assert client.get("/").url == "/t/acme-code"
    entries = [e["entry"].route for e in client.get("/t/acme-code").context["console"]["entries"]]
    assert entries == [
        "page-prefixes", "page-routing", "page-portal", "page-operations", "page-economics", "page-audit",
        "page-verify", "page-ui", "page-problems",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "lands"),
    [
        ("", "/t/acme-code"),
        ("/", "/t/acme-code"),
        ("/map?pin=1", "/t/acme-code"),
        ("/nowhere", "/t/acme-code"),
        ("/logout", "/t/acme-code"),
        ("/t/acme-code?range=30d", "/t/acme-code?range=30d"),
        ("/docs/problems", "/docs/problems"),
    ],
)
def test_after_the_log_in_one_lands_on_a_page_that_one_may_open(two, wanted, lands):
    client, _acme, _bank = two
    known = client.get("/login", {"next": wanted})
    assert known.url == lands, "whoever is logged in already"
    client.post("/logout")
    given = {"username": "mira-okafor", "password": "a long enough password 1", "next": wanted}
    assert client.post("/login", given).url == lands
    assert client.get(lands).status_code == 200


@pytest.mark.parametrize("role", ["tenant-admin", "tenant-member"])
def test_every_link_that_they_are_shown_opens(two, person, role):
    """From the portal on, over all pages that can be reached; what needs a fresh proof asks for it."""
    _client, acme, _bank = two
    client = person(role, tenant=acme, name=f"some-{role}")
    todo, seen, refused = ["/t/acme-code"], set(), []
    while todo:
        path = todo.pop()
        seen.add(path)
        answer = client.get(path, follow=True)
        if answer.status_code != 200:
            refused.append((path, answer.status_code))
            continue
        found = re.findall(r'(?:href|data-href)="(/[^"#]*)"', answer.content.decode())
        found = [link.replace("&amp;", "&") for link in found if not link.startswith(("/static/", "/api/"))]
        todo += [link for link in found if link not in seen and link not in todo]
    assert refused == [("/verify/keys.txt", 503)], "the signer, which does not run here, has the keys"
    assert {"/t/acme-code", "/account", "/docs/problems"} <= seen
    assert ("/people/new?tenant=acme-code" in seen) == (role == "tenant-admin")


def test_an_administrator_makes_people_and_tokens_of_the_own_tenant(two):
    from tests.frontend.tenancy.conftest import proved

    client, _acme, _bank = two
    proved(client)
    made = client.post(
        "/people/new", {"tenant": "borealis-bank", "username": "ci", "kind": "service", "roles": ["gateway"]}
    )
    assert made.status_code == 302
    assert "acme-code/ci" in client.get(made.url).content.decode()
    owner = made.url.rsplit("/", 1)[-1]
    token = client.post(
        "/tokens/new", {"owner": owner, "kind": "gateway", "name": "prod", "roles": ["gateway"], "days": "30"}
    )
    text = token.content.decode()
    secret = re.search(r"kvc_gateway_\w+", text)
    assert secret, text
    assert token.headers["Cache-Control"].count("no-store")
    listed = client.get("/t/acme-code").content.decode()
    assert "prod" in listed
    assert secret[0] not in listed
    id_ = re.search(r"/tokens/(\w+)/revoke", listed)[1]
    assert "stops working at once" in client.get(f"/tokens/{id_}/revoke").content.decode()
    assert client.post(f"/tokens/{id_}/revoke").url == "/t/acme-code"
    assert f"/tokens/{id_}/revoke" not in client.get("/t/acme-code").content.decode()
