"""Lists a page at a time: every row is on one page and no other, whatever order, there and back."""

from datetime import UTC, datetime, timedelta

import pytest

from tenants import services
from tenants.accounts import selectors as accounts
from tenants.listing import ACTIVE_FIRST, BY_NAME, listing
from tenants.models import Token, User
from tests.tenants.making import a_user, some, unrecorded

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


def walk(rows, keys, limit):
    """All rows, page by page, forwards and then back again."""
    forth, page = [], listing(rows, keys=keys, limit=limit)
    assert page.before == ""
    forth.append(page.items)
    while page.after:
        page = listing(rows, keys=keys, after=page.after, limit=limit)
        forth.append(page.items)
    back = [page.items]
    while page.before:
        page = listing(rows, keys=keys, before=page.before, limit=limit)
        back.append(page.items)
    assert back[::-1] == forth
    return [row.pk for items in forth for row in items]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_people_come_by_name_each_once(limit):
    mark = some("z")
    made = {a_user(username=f"{mark}{i}").pk for i in range(7)}
    rows = User.objects.filter(username__startswith=mark)
    assert walk(rows, BY_NAME, limit) == list(rows.order_by("username").values_list("pk", flat=True))
    assert set(walk(rows, BY_NAME, limit)) == made


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_tokens_that_are_good_come_before_those_that_are_not(limit):
    user = a_user()
    made = [services.token_issue("user", user=user, roles=["viewer"])[0].id for _ in range(6)]
    with unrecorded():
        Token.objects.filter(id__in=made).update(created_at=NOW - timedelta(days=1))  # all of one moment
        Token.objects.filter(id__in=made[:2]).update(revoked_at=NOW)
        Token.objects.filter(id=made[2]).update(expires_at=NOW - timedelta(seconds=1))
    rows = accounts.ranked(Token.objects.filter(user_id=user.id), NOW)
    found = walk(rows, ACTIVE_FIRST, limit)
    assert (set(found[:3]), set(found[3:])) == (set(made[3:]), set(made[:3]))


@pytest.mark.parametrize(
    "mark",
    [
        "~", "x", "1~x~y", "a\0b~1~2", "x" * 500, "9" * 30 + "~2026-01-01T00:00:00+00:00~x",
        "0~2026-01-01T00:00:00~x", "0~2026-01-01T00:00:00+00:00~a\0b",
    ],
)  # fmt: skip
def test_a_mark_that_is_none_is_the_first_page(mark):
    services.token_issue("user", user=a_user(), roles=["viewer"])
    rows = accounts.ranked(Token.objects.all(), NOW)
    first = listing(rows, keys=ACTIVE_FIRST)
    assert listing(rows, keys=ACTIVE_FIRST, after=mark) == listing(rows, keys=ACTIVE_FIRST, before=mark) == first
    assert first.whole


def test_behind_the_last_row_is_the_first_page_again():
    rows = User.objects.filter(id=a_user().id)
    assert listing(rows, keys=BY_NAME, after="\U0010ffff").items == list(rows)
