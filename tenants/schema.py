"""Says in the OpenAPI description how callers are known, and that each call can answer with a problem."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension

from kvconsole.infra.rest import CODES

PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457; `code` has a page under /docs/problems/ that says what was not done.",
    "required": ["type", "title", "status", "detail", "code", "request_id", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "code", "detail"],
                "properties": {name: {"type": "string"} for name in ("pointer", "code", "detail")},
            },
        },
        "retry_after_seconds": {"type": "integer"},
    },
}


class ConsoleScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """A session's cookie or a bearer token."""

    target_class = "tenants.authentication.ConsoleAuthentication"
    name = ["session", "bearer"]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[Any]]]:
        """Either of them: entries of the list are alternatives, names within one entry would be needed together."""
        return [{name: []} for name in self.name]

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        """Both schemes."""
        return [
            {"type": "apiKey", "in": "cookie", "name": "kvc"},
            {"type": "http", "scheme": "bearer", "bearerFormat": "kvc_<kind>_<id>_<secret><crc>"},
        ]


HEADERS: dict[str, dict[str, Any]] = {
    "X-Request-ID": {"description": "The caller's, or a new one; it is in the log and in the audit event."},
    "RateLimit-Policy": {"description": "The quotas that hold for the caller (draft-ietf-httpapi-ratelimit-headers)."},
    "RateLimit": {"description": "What is left of each: `r` calls, full again in `t` seconds."},
}
RETRY = {"Retry-After": {"description": "Seconds until a repetition makes sense.", "schema": {"type": "integer"}}}
TAG = {"ETag": {"description": "Strong; `If-Match` of a change names it.", "schema": {"type": "string"}}}
REPLAYED = {"Idempotency-Replayed": {"description": "`true`: the first call's answer.", "schema": {"type": "string"}}}


def describe_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Every operation says its problems and the headers of its answers; called when the description is made."""
    code = {**PROBLEM["properties"]["code"], "enum": sorted(CODES)}
    problem = {**PROBLEM, "properties": {**PROBLEM["properties"], "code": code}}
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = problem
    answer = {
        "description": "A refusal; nothing was done.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    _tidy(result)
    _closed(result)
    for methods in result.get("paths", {}).values():
        for verb, operation in methods.items():
            if isinstance(operation, dict) and "responses" in operation:
                operation["responses"].setdefault("default", answer)
                for status, response in operation["responses"].items():
                    response["headers"] = _headers(verb, status, operation)
    return result


def _headers(verb: str, status: str, operation: dict[str, Any]) -> dict[str, Any]:
    found = {name: {**about, "schema": {"type": "string"}} for name, about in HEADERS.items()}
    paged = any(p["name"] == "cursor" for p in operation.get("parameters", []))
    if status in ("429", "503", "409", "default"):
        found |= RETRY
    if status.startswith("2"):
        found |= ({} if paged or verb == "delete" else TAG) | ({} if verb == "get" else REPLAYED)
    return found


def _tidy(value: Any) -> None:
    """Marks that only the generator's own hooks need are gone."""
    if isinstance(value, dict):
        value.pop("x-spec-enum-id", None)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _tidy(inner)


def _closed(result: dict[str, Any]) -> None:
    """Bodies take the fields they name and no other; `rest.Strict` refuses the rest."""
    schemas = result["components"]["schemas"]
    bodies = [
        operation["requestBody"]
        for methods in result.get("paths", {}).values()
        for operation in methods.values()
        if isinstance(operation, dict) and "requestBody" in operation
    ]
    waiting, seen = [name for body in bodies for name in _named(body)], set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += _named(schemas[name])
            if "properties" in schemas[name]:
                schemas[name].setdefault("additionalProperties", False)


def _named(value: Any) -> list[str]:
    """Names of the components that a piece of the description refers to."""
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if isinstance(value.get("$ref"), str) else []
        return own + [name for inner in value.values() for name in _named(inner)]
    return [name for inner in value for name in _named(inner)] if isinstance(value, list) else []
