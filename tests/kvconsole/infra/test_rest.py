"""Shapes of answers: request ids, problems, pages, ETags, keys of idempotency."""

import json

import pytest
from django.http import Http404, HttpResponse
from django.test import RequestFactory
from rest_framework import exceptions, serializers
from rest_framework.request import Request

from kvconsole.infra import rest

factory = RequestFactory()


def asked(path="/api/v1/x", **headers):
    request = Request(factory.get(path, headers=headers))
    return request


# --- request ids ------------------------------------------------------------------


@pytest.mark.parametrize("given", ["a", "6f1b.c:d-E_9", "x" * 64])
def test_a_well_formed_request_id_is_kept(given):
    seen = []

    def view(request):
        seen.append(rest.request_id())
        return HttpResponse()

    answer = rest.RequestIdMiddleware(view)(factory.get("/", headers={"X-Request-ID": given}))
    assert seen == [given] == [answer["X-Request-ID"]]
    assert rest.request_id() == ""


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a\x00", "<script>", "ä"])
def test_anything_else_is_replaced(given):
    answer = rest.RequestIdMiddleware(lambda r: HttpResponse())(factory.get("/", headers={"X-Request-ID": given}))
    assert answer["X-Request-ID"] != given
    assert len(answer["X-Request-ID"]) == 36


# --- problems -----------------------------------------------------------------------


def problem(exc):
    answer = rest.problem_handler(exc, {})
    return answer, json.loads(answer.content)


@pytest.mark.django_db
def test_refusals_are_problem_json():
    answer, body = problem(rest.Problem("rate-limited", retry_after_seconds=7))
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Retry-After"] == "7"
    assert body["status"] == answer.status_code == 429
    assert body["type"] == "/docs/problems/rate-limited"
    assert set(body) == {
        "type", "title", "status", "detail", "code", "request_id", "errors", "retry_after_seconds",
    }  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("exc", "status", "code"),
    [
        (Http404(), 404, "not-found"),
        (exceptions.NotFound(), 404, "not-found"),
        (exceptions.PermissionDenied(), 403, "forbidden"),
        (exceptions.NotAuthenticated(), 401, "not-authenticated"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method-not-allowed"),
        (exceptions.UnsupportedMediaType("x"), 415, "unsupported-media-type"),
        (exceptions.ParseError(), 400, "bad-request"),
        (exceptions.Throttled(3), 429, "rate-limited"),
    ],
)
def test_frameworks_refusals_have_our_codes(exc, status, code):
    answer, body = problem(exc)
    assert (answer.status_code, body["code"]) == (status, code)


def test_a_bug_is_not_made_into_a_refusal():
    assert rest.problem_handler(RuntimeError("boom"), {}) is None


class Inner(rest.Strict):
    size = serializers.IntegerField(min_value=1)


class Body(rest.Strict):
    name = serializers.CharField(max_length=3)
    inner = Inner(many=True, required=False)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "pointers"),
    [
        ({}, {"/name"}),
        ({"name": "abcd"}, {"/name"}),
        ({"name": "a", "nme": 1, "x/y~": 2}, {"/nme", "/x~1y~0"}),
        ({"name": "a", "inner": [{"size": 1}, {"size": 0}]}, {"/inner/1/size"}),
        ({"name": "a", "inner": [{"size": 1, "z": 1}]}, {"/inner/0/z"}),
        ([], {"/"}),
    ],
)
def test_each_wrong_field_is_pointed_at(given, pointers):
    with pytest.raises(exceptions.ValidationError) as caught:
        Body(data=given).is_valid(raise_exception=True)
    _, body = problem(caught.value)
    assert body["code"] in ("validation-failed", "unknown-field", "out-of-range")
    assert {e["pointer"] for e in body["errors"]} == pointers
    assert all(e["code"] and e["detail"] for e in body["errors"])


def test_people_are_led_to_the_log_in_and_programs_are_told():
    page = factory.get("/nodes?x=1", headers={"Accept": "text/html"})
    assert rest.refuse(page, rest.Problem("not-authenticated"))["Location"] == "/login?next=%2Fnodes%3Fx%3D1"
    assert rest.refuse(page, rest.Problem("forbidden")).status_code == 403
    api = factory.get("/api/v1/nodes", headers={"Accept": "text/html"})
    answer = rest.refuse(api, rest.Problem("not-authenticated"))
    assert answer.status_code == 401
    assert "Bearer" in answer["WWW-Authenticate"]
    assert rest.not_found(api).status_code == 404


# --- ETags, keys ----------------------------------------------------------------------


def test_etags_follow_content_not_order():
    one = rest.etag({"a": 1, "b": 2})
    assert one == rest.etag({"b": 2, "a": 1})
    assert one != rest.etag({"a": 1, "b": 3})
    assert one.startswith('"')
    rest.require_match(asked(**{"If-Match": f'"zz", {one}'}), one)
    rest.require_match(asked(**{"If-Match": "*"}), one)
    for headers, code in (({}, "etag-required"), ({"If-Match": '"zz"'}, "etag-mismatch")):
        with pytest.raises(rest.Problem) as caught:
            rest.require_match(asked(**headers), one)
        assert caught.value.code == code


def test_idempotency_keys_are_visible_ascii():
    assert rest.idempotency_key(asked(**{"Idempotency-Key": "a-1"})) == "a-1"
    assert rest.idempotency_key(asked()) == ""
    for headers, code in (({}, "idempotency-key-required"), ({"Idempotency-Key": "x" * 256}, "idempotency-key-invalid"),
                          ({"Idempotency-Key": "a b"}, "idempotency-key-invalid")):  # fmt: skip
        with pytest.raises(rest.Problem) as caught:
            rest.idempotency_key(asked(**headers), required=True)
        assert caught.value.code == code


def test_every_code_has_a_status_and_a_title():
    for code, (status, title) in rest.CODES.items():
        assert 400 <= status < 600, code
        assert title[0].isupper(), code
        assert code == code.lower(), code


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": "a", "x": 1, "y": 2}, "unknown-field"),
        ({"name": "abcd"}, "out-of-range"),
        ({"name": "a", "inner": [{"size": -1}]}, "out-of-range"),
        ({"name": "a\0"}, "unstorable-text"),
        ({"name": "a", "inner": [{"size": -1, "x": 1}]}, "unknown-field"),
        ({"name": "abcd", "inner": [{}]}, "validation-failed"),
    ],
)
def test_a_problem_of_one_kind_has_the_code_of_that_kind(given, code):
    with pytest.raises((exceptions.ValidationError, rest.Problem)) as caught:
        Body(data=given).is_valid(raise_exception=True)
    _, body = problem(caught.value)
    assert body["code"] == code
    assert body["errors"]


@pytest.mark.parametrize(("query", "meant"), [("", False), ("validate_only=true", True), ("validate_only=0", False)])
def test_a_rehearsal_is_asked_for_in_plain_words(query, meant):
    assert rest.validate_only(asked(f"/?{query}")) is meant


@pytest.mark.parametrize("word", ["yes", "", "ture", "2"])
def test_what_may_have_been_meant_as_a_rehearsal_is_refused(word):
    with pytest.raises(rest.Problem):
        rest.validate_only(asked(f"/?validate_only={word}"))
