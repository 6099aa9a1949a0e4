import asyncio
import time

import pytest
from django.db import Error

from routing import callers as calling
from routing.callers import FRESH_SECONDS, KEPT_SECONDS, Callers
from routing.codes import Refusal
from tenants import services
from tests.tenants.making import a_tenant, some

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def callers():
    made = Callers()
    yield made
    made.close()


def token(**fields):
    return f"Bearer {services.token_issue('gateway', roles=['gateway'], holder=some('g'), **fields)[1]}".encode()


def code(callers, header, address="192.0.2.1"):
    with pytest.raises(Refusal) as e:
        asyncio.run(callers.caller(header, address))
    return e.value.code


def test_a_good_token_is_asked_for_once_and_then_known(callers, monkeypatch):
    header = token()
    assert callers.at_once(header, "192.0.2.1") is None
    found = asyncio.run(callers.caller(header, "192.0.2.1"))
    assert found.kind == "gateway"
    monkeypatch.setattr(calling, "known_token", lambda _: pytest.fail("it was asked again"))
    assert callers.at_once(header, "192.0.2.1") == found
    assert asyncio.run(callers.caller(header, "192.0.2.1")) == found


def test_a_revoked_token_ends_when_the_answer_is_no_longer_fresh(callers, monkeypatch):
    tenant = a_tenant()
    row, plain = services.token_issue("service", tenant_id=tenant.id, roles=["tenant-member"])
    header = f"Bearer {plain}".encode()
    asyncio.run(callers.caller(header, ""))
    services.token_revoke(token=row, reason="test", actor=None)
    now = time.monotonic()
    monkeypatch.setattr(calling.time, "monotonic", lambda: now + FRESH_SECONDS + 1)
    assert callers.at_once(header, "") is None
    assert code(callers, header) == "token-invalid"


def test_while_the_database_is_away_who_was_known_stays_known_for_a_while_and_strangers_are_not_guessed(
    callers, monkeypatch
):
    header, stranger = token(), token()
    found = asyncio.run(callers.caller(header, ""))

    def away(_):
        raise Error("gone")

    monkeypatch.setattr(calling, "known_token", away)
    now = time.monotonic()
    clock = {"now": now + FRESH_SECONDS + 1}
    monkeypatch.setattr(calling.time, "monotonic", lambda: clock["now"])
    assert asyncio.run(callers.caller(header, "")) == found
    assert asyncio.run(callers.caller(header, "")) == found, "at once, without asking again"
    assert code(callers, stranger) == "unavailable"
    clock["now"] = now + KEPT_SECONDS + 5
    assert code(callers, header) == "unavailable"


def test_a_token_bound_to_addresses_is_good_there_alone(callers):
    header = token(cidr="192.0.2.0/24")
    assert asyncio.run(callers.caller(header, "192.0.2.7"))
    assert callers.at_once(header, "198.51.100.1") is None
    assert code(callers, header, "198.51.100.1") == "token-invalid"


def test_who_sends_wrong_tokens_runs_out_of_them_and_keeps_no_known_caller_waiting(callers):
    good = token()
    asyncio.run(callers.caller(good, "192.0.2.1"))
    from tenants.tokens import generate

    told = {code(callers, f"Bearer {generate('gateway')[0]}".encode(), "192.0.2.9") for _ in range(70)}
    assert told == {"token-invalid", "rate-limited"}
    assert callers.at_once(good, "192.0.2.9")


@pytest.mark.parametrize("header", [b"", b"Basic abc", b"Bearer ", b"Bearer kvc_x", b"Bearer " + b"x" * 4000, b"\xff"])
def test_what_is_no_token_is_nobody(callers, header):
    assert code(callers, header) in ("not-authenticated", "token-invalid")
