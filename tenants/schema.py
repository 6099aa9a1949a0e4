"""Says in the OpenAPI description how callers are known, and that each call can answer with a problem."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension

PROBLEM = {
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

    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        """Both schemes."""
        return [
            {"type": "apiKey", "in": "cookie", "name": "kvc"},
            {"type": "http", "scheme": "bearer", "bearerFormat": "kvc_<kind>_<id>_<secret><crc>"},
        ]


def describe_problems(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Every operation also answers with a problem; called by drf-spectacular when the description is made."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = PROBLEM
    answer = {
        "description": "A refusal; nothing was done.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for methods in result.get("paths", {}).values():
        for operation in methods.values():
            if isinstance(operation, dict) and "responses" in operation:
                operation["responses"].setdefault("default", answer)
    return result
