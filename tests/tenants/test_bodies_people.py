"""What tells a change of a person, and what does not."""

from datetime import UTC, datetime
from uuid import uuid4

from msgspec.structs import asdict, replace

from tenants.accounts.selectors import PersonView, TokenView
from tenants.bodies_people import PersonOut, TokenOut, person_answer, person_etag, token_answer

NOW = datetime(2026, 11, 30, tzinfo=UTC)
BOB = PersonView(uuid4(), "bob", "b@x.y", "person", ["viewer"], None, "", "active", NOW, None)


def test_a_log_in_is_no_change_and_rights_are():
    assert person_etag(replace(BOB, last_login=NOW)) == person_etag(BOB) == person_etag(replace(BOB, state="invited"))
    for other in (replace(BOB, roles=[]), replace(BOB, state="suspended"), replace(BOB, email="")):
        assert person_etag(other) != person_etag(BOB)


def test_without_a_tenant_there_is_none():
    assert person_answer(BOB)["tenant"] is None
    assert person_answer(replace(BOB, tenant_slug="acme"))["tenant"] == "acme"


def test_answers_are_as_they_are_described():
    token = TokenView(
        "0" * 16, "user", "n", uuid4(), "bob", ["viewer"], [], ["*:read"], "", NOW, NOW, None, "active", "t"
    )
    nobody = replace(token, owner_id=None, owner="", last_used_at=NOW)
    for view in (token, nobody):
        said = token_answer(view)
        described = dict(TokenOut(instance={**asdict(view), "owner": view.owner_id, "owner_name": view.owner}).data)
        assert said == described
    for person in (BOB, replace(BOB, last_login=NOW, tenant_slug="acme")):
        assert person_answer(person) == dict(PersonOut({**asdict(person), "tenant": person.tenant_slug or None}).data)
