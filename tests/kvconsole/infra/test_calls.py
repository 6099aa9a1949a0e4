"""What every REST call checks before its view runs, and what it adds to the answer: from one declaration."""

import json

import pytest
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from kvconsole.infra.calls import call
from kvconsole.infra.rest import Problem, Strict, etag

factory = APIRequestFactory()


class ThingIn(Strict):
    name = serializers.CharField(max_length=5)


class ThingOut(serializers.Serializer):
    name = serializers.CharField()


class Things(APIView):
    permission_classes = authentication_classes = ()

    @call("things_get", answer=ThingOut, query=[OpenApiParameter("kind", str)], public=True)
    def get(self, request):
        return Response({"name": request.query_params.get("kind", "any")})

    @call("things_change", body=ThingIn, answer=ThingOut, public=True)
    def put(self, request, fields):
        return Response({"name": fields["name"]})

    @call("things_make", body=ThingIn, answer=ThingOut, status=201, operation=True, public=True)
    def post(self, request, fields):
        return Response({"name": fields["name"]}, status=201)


def answer(request):
    return Things.as_view()(request)


def code(response):
    return json.loads(response.content)["code"]


@pytest.mark.parametrize("query", ["?surprise=1", "?kind=a&kind=b", "?validate_only=true", "?limit=3"])
def test_a_parameter_that_is_not_declared_or_comes_twice_is_refused(query):
    response = answer(factory.get(f"/{query}"))
    assert (response.status_code, code(response)) == (400, "unknown-parameter")


def test_one_object_has_the_tag_of_what_is_in_it():
    response = answer(factory.get("/?kind=x"))
    assert response.headers["ETag"] == etag({"name": "x"})
    assert response.headers["ETag"] != answer(factory.get("/?kind=y")).headers["ETag"]


def test_a_change_names_what_it_changes():
    response = answer(factory.put("/", {"name": "a"}, format="json"))
    assert (response.status_code, code(response)) == (428, "etag-required")


@pytest.mark.django_db
def test_a_body_is_checked_before_the_view_runs():
    for body, wanted in (({"name": "a", "more": 1}, "unknown-field"), ({"name": "abcdef"}, "out-of-range"), ({}, None)):
        response = answer(factory.put("/", body, format="json", headers={"If-Match": "*"}))
        assert response.status_code == 400, body
        assert code(response) == (wanted or "validation-failed"), body


def test_what_starts_an_operation_has_a_key():
    response = answer(factory.post("/", {"name": "a"}, format="json"))
    assert (response.status_code, code(response)) == (400, "idempotency-key-required")


def test_a_problem_of_the_view_is_its_answer():
    class Absent(APIView):
        permission_classes = authentication_classes = ()

        @call("absent_get", answer=ThingOut, public=True)
        def get(self, request):
            raise Problem("not-found")

    response = Absent.as_view()(factory.get("/"))
    assert (response.status_code, code(response)) == (404, "not-found")
