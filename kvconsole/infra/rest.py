"""Decides the shapes that all REST answers share: request ids, problems (RFC 9457), ETags, idempotency keys.

Views of every app use it; it knows no table. A problem's `code` names its page under `/docs/problems/`.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.http import urlencode
from django.utils.module_loading import import_string
from rest_framework import exceptions, serializers
from rest_framework.request import Request

from kvconsole.infra import limits
from kvconsole.infra.sql import uuid7

CODES: dict[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be read"),
    "validation-failed": (400, "Some fields are not as they must be"),
    "unknown-field": (400, "A field that this call does not have"),
    "unknown-parameter": (400, "A query parameter that this call does not have, or one that came twice"),
    "duplicate-field": (400, "A key of the body comes twice"),
    "out-of-range": (400, "A number or a length is outside what the field takes"),
    "unstorable-text": (400, "Text with NUL or half a character cannot be kept"),
    "body-too-deep": (400, "The body is nested too deeply"),
    "cursor-invalid": (400, "The cursor is not one of ours, or belongs to another list"),
    "idempotency-key-required": (400, "This call needs an Idempotency-Key"),
    "idempotency-key-invalid": (400, "The Idempotency-Key is not 1 to 255 visible ASCII characters"),
    "not-authenticated": (401, "Who calls is not known"),
    "token-invalid": (401, "The token is unknown, expired or revoked"),
    "csrf-failed": (403, "The form's token is missing or wrong"),
    "forbidden": (403, "The role does not allow this"),
    "step-up-required": (403, "A fresh proof is needed: password, second factor or passkey"),
    "scope-missing": (403, "The token has no scope for this"),
    "person-needed": (403, "Only a person does this, never a token or a service account"),
    "own-password-needed": (403, "Somebody else made the password: nothing is open before an own one is chosen"),
    "second-factor-needed": (403, "The roles need a second factor: only the own account is open before there is one"),
    "not-found": (404, "There is no such object"),
    "method-not-allowed": (405, "The resource has no such method"),
    "not-acceptable": (406, "No representation fits the Accept header"),
    "idempotency-in-progress": (409, "The first call with this Idempotency-Key has not ended"),
    "conflict": (409, "The object is not in a state that allows this"),
    "etag-mismatch": (412, "The object has changed since it was read"),
    "body-too-slow": (408, "The body did not come in time"),
    "body-too-large": (413, "The body is larger than this call takes"),
    "unsupported-media-type": (415, "The Content-Type is not one this call takes"),
    "idempotency-mismatch": (422, "The Idempotency-Key was used with another request"),
    "etag-required": (428, "This call needs If-Match"),
    "rate-limited": (429, "Too many requests"),
    "internal": (500, "Something broke; nothing was changed"),
    "unavailable": (503, "A part this call needs is not there"),
}
"""code → (status, title). Apps add their own with `add_codes`."""
_STATUS = {
    400: "bad-request", 401: "not-authenticated", 403: "forbidden", 404: "not-found", 405: "method-not-allowed",
    406: "not-acceptable", 413: "body-too-large", 415: "unsupported-media-type", 429: "rate-limited",
}  # fmt: skip
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_RANGES = frozenset({"min_value", "max_value", "min_length", "max_length", "max_string_length", "overflow"})
_OWN = ("unknown-field", "out-of-range", "unstorable-text")
"""Codes of fields that are the whole problem's code too, where all its fields have it."""
MOST_ERRORS = 100
"""Fields that one answer names: a body of a hundred thousand wrong ones must not make an answer of that length."""
_request_id: ContextVar[str] = ContextVar("kvc_request_id", default="")


def add_codes(codes: dict[str, tuple[int, str]]) -> None:
    """The codes of an app are known: code → (status, title)."""
    CODES.update(codes)


class Problem(exceptions.APIException):
    """A refusal that is answered as problem+json; nothing was done.

    Args:
        code: one of `CODES`.
        detail: what was wrong this time, without anything secret or foreign.
        errors: one `{pointer, code, detail}` per field.
        retry_after_seconds: when a repetition makes sense.
    """

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        errors: Sequence[dict[str, str]] = (),
        retry_after_seconds: int | None = None,
    ) -> None:
        kinds = {e["code"] for e in errors}
        if code == "validation-failed" and len(kinds) == 1 and kinds <= set(_OWN):
            (code,) = kinds
        self.code, (self.status_code, self.title) = code, CODES[code]
        self.text, self.errors, self.retry_after_seconds = detail or self.title, list(errors), retry_after_seconds
        super().__init__(self.text, code)


# --- request ids ----------------------------------------------------------------


def request_id() -> str:
    """Id of the request that is being answered, "" outside of one."""
    return _request_id.get()


class RequestIdMiddleware:
    """Each request has an id: the caller's X-Request-ID where it is well-formed, else a new one; the answer says it.

    What no request may be (`limits`) ends here. So does every refusal of a layer further in that nobody was asked about
    yet: it leaves the evidence that its route wants.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer with its X-Request-ID."""
        given = request.headers.get("X-Request-ID", "")
        value = given if _REQUEST_ID.fullmatch(given) else str(uuid7())
        token = _request_id.set(value)
        try:
            refusal = limits.refusal_code(request)
            response = problem_response(Problem(refusal)) if refusal else self.get_response(request)
            if response.status_code >= 400 and not hasattr(request, "principal"):
                _leave_evidence(request, response)
        finally:
            _request_id.reset(token)
        response.headers["X-Request-ID"] = value
        return response


def _leave_evidence(request: HttpRequest, response: HttpResponseBase) -> None:
    from kvconsole.infra.access import leave_evidence

    leave_evidence(request, None, response)


def unasked(problem: Problem, given: str) -> HttpResponse:
    """The answer to a request that nobody was asked about; it has an id as every answer, the caller's if well-formed.

    Args:
        problem: why.
        given: the request's X-Request-ID, "" = none.
    """
    value = given if _REQUEST_ID.fullmatch(given) else str(uuid7())
    token = _request_id.set(value)
    try:
        response = problem_response(problem)
    finally:
        _request_id.reset(token)
    response.headers["X-Request-ID"] = value
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


# --- problems ---------------------------------------------------------------------


def problem_body(problem: Problem) -> dict[str, Any]:
    """The members of RFC 9457 and ours."""
    body: dict[str, Any] = {
        "type": f"/docs/problems/{problem.code}",
        "title": problem.title,
        "status": problem.status_code,
        "detail": problem.text,
        "code": problem.code,
        "request_id": request_id(),
        "errors": problem.errors,
    }
    if problem.retry_after_seconds is not None:
        body["retry_after_seconds"] = problem.retry_after_seconds
    return body


def problem_response(problem: Problem) -> JsonResponse:
    """The problem as an answer."""
    response = JsonResponse(problem_body(problem), status=problem.status_code, content_type="application/problem+json")
    response.problem_code = problem.code  # type: ignore[attr-defined]
    if problem.status_code == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="kv-console"'
    if problem.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(problem.retry_after_seconds)
    return response


def problem_handler(exc: Exception, context: dict[str, Any]) -> HttpResponse | None:
    """DRF's handler: a refusal is problem+json and undoes what the call had begun. None = a bug, Django's matter."""
    from kvconsole.infra.access import plane

    problem = _as_problem(exc)
    if problem is None:
        return None
    using = plane()
    if transaction.get_connection(using).in_atomic_block:
        transaction.set_rollback(True, using=using)
    return problem_response(problem)


def _as_problem(exc: Exception) -> Problem | None:
    if isinstance(exc, Problem):
        return exc
    if isinstance(exc, RecursionError):
        return Problem("body-too-deep")
    if isinstance(exc, Http404):
        return Problem("not-found")
    if isinstance(exc, PermissionDenied):
        return Problem("forbidden")
    if isinstance(exc, exceptions.ValidationError):
        return Problem("validation-failed", errors=_errors(exc.get_full_details(), "")[:MOST_ERRORS])
    if isinstance(exc, exceptions.Throttled):
        return Problem("rate-limited", retry_after_seconds=int(getattr(exc, "wait", None) or 1) + 1)
    if isinstance(exc, exceptions.APIException):
        return Problem(_STATUS.get(exc.status_code, "bad-request"), str(exc.detail) if exc.status_code < 500 else "")
    return None


def _errors(details: Any, at: str) -> list[dict[str, str]]:
    if isinstance(details, dict) and set(details) == {"message", "code"}:
        code = "out-of-range" if details["code"] in _RANGES else str(details["code"])
        return [{"pointer": at or "/", "code": code, "detail": str(details["message"])}]
    if isinstance(details, dict):
        return [e for key, value in details.items() for e in _errors(value, f"{at}/{_pointer(str(key))}")]
    found = []
    for index, value in enumerate(details):
        leaf = isinstance(value, dict) and set(value) == {"message", "code"}
        found += _errors(value, at if leaf else f"{at}/{index}")
    return found


def _pointer(key: str) -> str:
    """A key that the caller may have chosen stands before each of its errors: no more than its beginning."""
    return "" if key == "non_field_errors" else key[:100].replace("~", "~0").replace("/", "~1")


def refuse(request: HttpRequest, problem: Problem) -> HttpResponseBase:
    """A problem for programs; for people the log-in, or the page that says they may not."""
    if request.path.startswith("/api/") or "text/html" not in request.headers.get("Accept", ""):
        return problem_response(problem)
    if problem.status_code == 401:
        return HttpResponseRedirect(f"{settings.LOGIN_URL}?{urlencode({'next': request.get_full_path()})}")
    return _forbidden_page(request) if problem.status_code == 403 else problem_response(problem)


def _forbidden_page(request: HttpRequest) -> HttpResponse:
    """The page that says a person may not; `frontend` replaces it by naming `FORBIDDEN_VIEW` in settings."""
    named = getattr(settings, "FORBIDDEN_VIEW", "")
    if named:
        answer: HttpResponse = import_string(named)(request)
        return answer
    return HttpResponse("403 Forbidden", status=403, content_type="text/plain; charset=utf-8")


def unoffered(request: HttpRequest, methods: Sequence[str]) -> HttpResponseBase:
    """The answer to a method that a resource does not have. No view is asked: what is offered is the same for all."""
    options = request.method == "OPTIONS"
    response = HttpResponse(status=204) if options else refuse(request, Problem("method-not-allowed"))
    response.headers["Allow"] = ", ".join(methods)
    return response


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponseBase:
    """Django's handler404: for addresses that no route has, the same body as for objects nobody has."""
    return refuse(request, Problem("not-found"))


class Strict(serializers.Serializer[Any]):
    """A body whose unknown fields are refused by name."""

    def to_internal_value(self, data: Any) -> Any:
        """The validated fields.

        Raises:
            ValidationError: a field is unknown or not as it must be.
        """
        if self.parent is None and (bad := limits.unstorable(data)):
            raise Problem(bad[1], errors=[{"pointer": bad[0], "code": bad[1], "detail": CODES[bad[1]][1] + "."}])
        if isinstance(data, dict) and (unknown := sorted(set(map(str, data)) - set(self.fields))):
            raise serializers.ValidationError(
                {name: serializers.ErrorDetail("There is no such field.", code="unknown-field") for name in unknown}
            )
        return super().to_internal_value(data)


# --- ETags and idempotency ----------------------------------------------------------


def etag(value: Any) -> str:
    """The strong ETag of a representation."""
    return f'"{hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:32]}"'


def require_match(request: Request, current: str) -> None:
    """If-Match names the current ETag (or is `*`).

    Raises:
        Problem: etag-required or etag-mismatch; nothing was done.
    """
    given = request.headers.get("If-Match", "")
    if not given:
        raise Problem("etag-required")
    if given != "*" and current not in [x.strip() for x in given.split(",")]:
        raise Problem("etag-mismatch")


def idempotency_key(request: Request, *, required: bool = False) -> str:
    """The Idempotency-Key, "" where there is none and none is needed.

    Raises:
        Problem: idempotency-key-required or idempotency-key-invalid.
    """
    key = request.headers.get("Idempotency-Key", "")
    if not key:
        if required:
            raise Problem("idempotency-key-required")
        return ""
    if not _KEY.fullmatch(key):
        raise Problem("idempotency-key-invalid")
    return key


def fingerprint(request: Request, actor: str) -> bytes:
    """What must be equal for a request to be the repetition of another: actor, method, path, query and body."""
    parts = (
        actor,
        request.method or "",
        request.get_full_path(),
        msgspec.json.encode(request.data, order="deterministic"),
    )
    digest = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else part.encode()
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.digest()


def private(label: str, *parts: str) -> bytes:
    """32 bytes that only processes with the site's secret can derive."""
    text = "\0".join((label, *parts)).encode()
    return hmac.digest(settings.SECRET_KEY.encode(), text, "sha256")


def validate_only(request: Request) -> bool:
    """Whether this is a rehearsal: the whole check, no effect.

    Raises:
        Problem: validation-failed: neither true nor false; what was meant as a rehearsal must not be the real thing.
    """
    given = request.query_params.get("validate_only", "false").lower()
    if given not in ("true", "1", "false", "0"):
        errors = [{"pointer": "/validate_only", "code": "invalid", "detail": "true or false."}]
        raise Problem("validation-failed", errors=errors)
    return given in ("true", "1")
