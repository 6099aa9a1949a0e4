"""Decides what every REST call checks before its view runs and adds to its answer, and says exactly that in OpenAPI.

Views name with `call` what they take and answer. Description and behaviour come from this one declaration: names of
query parameters, the body, Idempotency-Key, rehearsal, If-Match, ETag, and the problems of each status.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kvconsole.infra import evidence, lists
from kvconsole.infra.access import Principal, current_principal, principal_of
from kvconsole.infra.rest import CODES, Problem, Strict, etag
from kvconsole.infra.statements import Rows

View = Callable[..., Any]
LIST = (
    OpenApiParameter("limit", int, description=f"1 to {lists.MOST}, default {lists.DEFAULT}"),
    OpenApiParameter("cursor", str, description="Opaque: `next` or `prev` of a page of this list"),
)
KEY = "Repetitions with the same key have one effect and one answer for 24 hours. 1 to 255 visible ASCII characters."
REHEARSAL = OpenApiParameter("validate_only", bool, description="The whole check, no effect")
MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, required=True, description="The ETag of what is changed, or `*`"
)
ALWAYS = ("bad-request", "unknown-parameter", "not-acceptable", "rate-limited", "unavailable")
KNOWN = (
    *("not-authenticated", "token-invalid", "forbidden", "scope-missing", "csrf-failed"),
    *("own-password-needed", "second-factor-needed"),
)
PROOF = ("step-up-required", "scope-missing")
"""Refusals of a call that cannot be taken back: part of `refusals` where the route, or `require_proof`, asks."""
BODY = (
    *("validation-failed", "unknown-field", "duplicate-field", "out-of-range", "unstorable-text", "body-too-deep"),
    *("body-too-large", "body-too-slow", "unsupported-media-type"),
)
KEYED = ("idempotency-key-invalid", "idempotency-in-progress", "idempotency-mismatch")


def call(
    operation_id: str,
    *,
    answer: Any = None,
    body: type[Strict] | None = None,
    status: int = 200,
    page: bool = False,
    query: Sequence[OpenApiParameter] = (),
    refusals: Sequence[str] = (),
    operation: bool = False,
    rehearsal: bool = True,
    public: bool = False,
    counted: Callable[[dict[str, Any]], bool] | None = None,
    media: str = "application/json",
    also: Mapping[Any, Any] | None = None,
) -> Callable[[View], View]:
    """The view's method becomes a REST call.

    Args:
        operation_id: unique over all calls.
        answer: serializer of a good answer (of one item, with `page`), or what drf-spectacular takes; None = empty.
        body: what the method gets, validated, as its argument `fields`; None = the call takes no body.
        status: of a good answer.
        page: the answer is a page of a list; `?limit=` and `?cursor=` are taken.
        query: further query parameters; any other is refused by name.
        refusals: codes of the problems that are this call's own.
        operation: it starts an operation, so a POST must have an Idempotency-Key.
        rehearsal: `?validate_only=true` is offered (of writes).
        public: nobody has to be known.
        counted: of an audited route, whether a call with these fields is only counted.
        media: type of a good answer.
        also: further answers, by status, as drf-spectacular takes them.
    """

    def decorate(method: View) -> View:
        verb = method.__name__
        writes = verb != "get"
        names = {p.name for p in query if p.location == OpenApiParameter.QUERY}
        names |= {"limit", "cursor"} if page else set()
        names |= {"validate_only"} if writes and rehearsal else set()

        @wraps(method)
        def answered(view: Any, request: Request, **place: Any) -> Response:
            _only(request, names)
            if verb in ("put", "patch") and not request.headers.get("If-Match"):
                raise Problem("etag-required")
            given = {} if body is None else {"fields": valid(body, request)}
            if counted is not None and counted(given["fields"]):
                evidence.counts()
            if not writes:
                return _tagged(method(view, request, **place), page)
            return _once()(request, lambda: _tagged(method(view, request, **given, **place), page), required=operation)

        parameters = [*query, *(LIST if page else ()), *_write_parameters(verb, operation, rehearsal)]
        good = OpenApiResponse(_page_of(answer) if page else answer, description="")
        codes = [*_codes(verb, body is not None, page, public), *refusals]
        codes += ["idempotency-key-required"] if operation else []
        described_as: View = extend_schema(
            operation_id=operation_id,
            parameters=parameters,
            request=body,
            responses={(status, media) if answer is not None else status: good, **_problems(codes), **(also or {})},
            extensions={"x-problem-codes": sorted(set(codes))},
            auth=[] if public else None,
        )(answered)
        return described_as

    return decorate


def page_of(
    rows: Rows,
    request: Request,
    *,
    name: str,
    item: Callable[[Any], dict[str, Any]],
    views: Callable[[list[Any]], list[Any]] = list,
    filters: Mapping[str, Any] | None = None,
) -> Response:
    """The answer with the page that was asked for; other arguments as of `lists.paginate`.

    Args:
        item: makes an item of a row.
        views: what all rows of the page become before, where they need a query together.
    """
    page = lists.paginate(rows, request, name=name, filters=filters)
    items = [item(row) for row in views(page.items)]
    return Response({"items": items, "next": page.next, "prev": page.prev, "approximate_total": page.approximate_total})


def caller() -> Principal:
    """Who calls.

    Raises:
        Problem: not-authenticated.
    """
    principal = current_principal()
    if principal is None:
        raise Problem("not-authenticated")
    return principal


def valid(serializer: type[Strict], request: Request) -> dict[str, Any]:
    """The validated fields of the body.

    Raises:
        ValidationError: some are not as they must be.
    """
    found = serializer(data=request.data)
    found.is_valid(raise_exception=True)
    return dict(found.validated_data)


def require_proof(request: Request, scope: str) -> None:
    """The caller may do what cannot be taken back: where the body, not the route, says that it is such an act.

    Args:
        scope: what a token must name.

    Raises:
        Problem: step-up-required or scope-missing; nothing was done.
    """
    principal = principal_of(request)
    code = principal.unproven(scope, time.time()) if principal else "not-authenticated"
    if code:
        raise Problem(code, f"The token must have the scope {scope}." if code == "scope-missing" else "")


# --- checks and additions -----------------------------------------------------------


def _only(request: Request, names: set[str]) -> None:
    given = request.query_params
    if wrong := sorted(n for n in given if n not in names or len(given.getlist(n)) > 1):
        raise Problem(
            "unknown-parameter",
            errors=[
                {"pointer": f"/{n[:100]}", "code": "unknown-parameter", "detail": CODES["unknown-parameter"][1] + "."}
                for n in wrong[:20]
            ],
        )


@cache
def _once() -> Callable[..., Response]:
    found: Callable[..., Response] = import_string(settings.IDEMPOTENCY)
    return found


def _tagged(response: Response, page: bool) -> Response:
    one = not page and isinstance(getattr(response, "data", None), dict) and response.status_code < 300
    if one and "ETag" not in response.headers:
        response.headers["ETag"] = etag(response.data)
    return response


# --- description ----------------------------------------------------------------------


def _write_parameters(verb: str, operation: bool, rehearsal: bool) -> list[OpenApiParameter]:
    found = [MATCH] if verb in ("put", "patch") else []
    if verb != "get":
        key = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, required=operation, description=KEY)
        found.append(key)
        found += [REHEARSAL] if rehearsal else []
    return found


@cache
def _page_of(answer: Any) -> Any:
    name = answer.__name__.removesuffix("Out") + "Page"
    fields = {
        "items": answer(many=True),
        "next": serializers.CharField(allow_null=True),
        "prev": serializers.CharField(allow_null=True),
        "approximate_total": serializers.IntegerField(allow_null=True),
    }
    return inline_serializer(name, fields)


def _codes(verb: str, body: bool, page: bool, public: bool) -> list[str]:
    found = [*ALWAYS, *(() if public else KNOWN), "not-found"]
    found += [*BODY] if body else []
    found += [*KEYED, "validation-failed"] if verb != "get" else []
    found += ["cursor-invalid", "out-of-range"] if page else []
    found += ["etag-required", "etag-mismatch"] if verb in ("put", "patch") else []
    return found


def _problems(codes: Sequence[str]) -> dict[tuple[int, str], OpenApiResponse]:
    by_status: dict[int, list[str]] = {}
    for code in sorted(set(codes)):
        by_status.setdefault(CODES[code][0], []).append(code)
    return {
        (status, "application/problem+json"): OpenApiResponse(
            {"$ref": "#/components/schemas/Problem"}, description=", ".join(f"`{c}`" for c in found)
        )
        for status, found in sorted(by_status.items())
    }
