"""What is no good input, kind by kind: each has its own code and page, and nothing of it is done."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client

from tenants.models import Token
from tests.tenants.making import a_tenant, unrecorded

TABLES = (
    *("tenants_tenant", "tenants_model", "tenants_token", "catalog_quota", "catalog_ratequota"),
    "audit_idempotency",
)


def rows():
    """Of every table that one of these calls would write."""
    with connection.cursor() as cursor:
        found = {}
        for table in TABLES:
            cursor.execute(f"SELECT count(*), md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {table} t")
            found[table] = cursor.fetchone()
    return found


def raw(call, text, kind="application/json", **headers):
    headers["Authorization"] = f"Bearer {call.bearer}"
    return call.client.post("/api/v1/tenants", text, content_type=kind, headers=headers)


def ended(caller, **change):
    """Somebody whose token is good no longer."""
    call = caller("operator")
    with unrecorded():
        Token.objects.filter(id=call.bearer.split("_")[2]).update(**change)
    return call


def tampered(call):
    """The list behind a cursor of which one character was changed."""
    cursor = call.get("/tenants?limit=1").json()["next"]
    return call.get(f"/tenants?limit=1&cursor={cursor[:-1]}{'A' if cursor[-1] != 'A' else 'B'}")


def wrong(caller, call, slug):
    """(what it is, status, code, a call that is made when nothing more is prepared)."""
    now, match = datetime.now(UTC), {"If-Match": "*"}
    late, gone = ended(caller, expires_at=now - timedelta(seconds=1)), ended(caller, revoked_at=now)
    wide = f"\uff54{slug[1:]}"
    new, quotas, key = {"slug": "new", "name": "New"}, f"/tenants/{slug}/quotas", {"Idempotency-Key": "k" * 24}

    def limit(number):
        return call("PUT", quotas, {"tiers": {"hbm": {"limit_bytes": number}}}, **match)

    yield "unknown field", 400, "unknown-field", lambda: call.post("/tenants", new | {"colour": 1})
    yield "unknown parameter", 400, "unknown-parameter", lambda: call.post("/tenants?colour=1", new)
    yield "look-alike by case", 409, "slug-lookalike", lambda: call.post("/tenants", new | {"slug": slug.upper()})
    yield (
        "look-alike by script",
        409,
        "slug-lookalike",
        lambda: call.post("/tenants", new | {"slug": wide}),
    )
    yield "oversized", 413, "body-too-large", lambda: call.post("/tenants", new | {"name": "x" * 1_100_000})
    yield "deep", 400, "body-too-deep", lambda: raw(call, '{"retention":' + '{"a":' * 80 + "1" + "}" * 81)
    yield "twice the same field", 400, "duplicate-field", lambda: raw(call, '{"slug": "new", "slug": "n", "name": "x"}')
    yield "NUL in a body", 400, "unstorable-text", lambda: call.post("/tenants", new | {"name": "a\0"})
    yield "NUL in a query", 400, "bad-request", lambda: call.get("/tenants?cursor=%00")
    yield "half a pair", 400, "unstorable-text", lambda: raw(call, '{"slug": "new", "name": "\\ud800"}')
    yield "no JSON", 400, "bad-request", lambda: raw(call, b"{")
    yield "content type", 415, "unsupported-media-type", lambda: raw(call, b"slug=new", "text/csv")
    yield "expired", 401, "token-invalid", lambda: late.post("/tenants", new)
    yield "revoked", 401, "token-invalid", lambda: gone.post("/tenants", new)
    yield "key of another body", 422, "idempotency-mismatch", lambda: call.post("/tenants", new, **key)
    yield "stale If-Match", 412, "etag-mismatch", lambda: call("PUT", quotas, {}, **{"If-Match": '"of yesterday"'})
    yield "no If-Match", 428, "etag-required", lambda: call("PUT", quotas, {})
    yield "negative", 400, "out-of-range", lambda: limit(-1)
    yield "huge", 400, "out-of-range", lambda: limit(10**30)
    yield (
        "without bounds",
        400,
        "out-of-range",
        lambda: raw(call, '{"slug": "new", "retention": {"a": 1e999}}'),
    )
    yield "tampered cursor", 400, "cursor-invalid", lambda: tampered(call)


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_each_kind_of_bad_input_has_its_code_and_page_and_no_effect(caller):
    call, tenant, pages = caller("operator", "viewer"), a_tenant(), Client()
    first = {"slug": "first", "name": "First"}
    assert call.post("/tenants", first, **{"Idempotency-Key": "k" * 24}).status_code == 201
    cases = list(wrong(caller, call, tenant.slug))
    call.get("/tenants")  # every token that may be used has been
    before = rows()
    for what, status, code, act in cases:
        answer = act()
        body = json.loads(answer.content)
        assert (answer.status_code, body["code"]) == (status, code), what
        assert answer["Content-Type"] == "application/problem+json", what
        assert code in pages.get(body["type"]).content.decode(), what
        assert rows() == before, what
