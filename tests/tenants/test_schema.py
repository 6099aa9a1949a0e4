"""The served description is complete and made without a warning."""

import subprocess
import sys

import pytest
from drf_spectacular.generators import SchemaGenerator

from tests.architecture.tree import CLONE


@pytest.fixture(scope="module")
def schema():
    return SchemaGenerator().get_schema(public=True)


def operations(schema):
    return {(m.upper(), p): o for p, methods in schema["paths"].items() for m, o in methods.items()}


def test_it_is_made_without_a_warning():
    done = subprocess.run(
        [sys.executable, "manage.py", "spectacular", "--fail-on-warn", "--validate"],
        capture_output=True, text=True, cwd=CLONE, env={"KVC_ENV": "test", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_call_says_that_it_can_be_refused(schema):
    for call, operation in operations(schema).items():
        assert "application/problem+json" in operation["responses"]["default"]["content"], call
    assert "Problem" in schema["components"]["schemas"]


def test_both_ways_of_being_known_are_described(schema):
    assert set(schema["components"]["securitySchemes"]) == {"session", "bearer"}
    calls = operations(schema)
    public = [
        ("POST", "/api/v1/nodes:enrol"), ("GET", "/api/v1/fleet-key"), ("POST", "/api/v1/certificates:verify"),
    ]  # fmt: skip
    for call, operation in calls.items():
        assert operation.get("security", []) == ([] if call in public else [{"session": []}, {"bearer": []}]), call


def test_ids_of_calls_name_what_and_then_what_is_done_with_it(schema):
    verbs = ("list", "get", "create", "change", "set", "remove", "close", "revoke", "rotate", "invite", "request",
             "approve", "deny", "resolve", "renew", "enrol", "explain", "lookup", "lineage", "uses", "verify", "cancel",
             "download", "shred", "test", "retire", "pause", "resume", "stop", "release", "drain",
             "cordon", "uncordon", "acknowledge")  # fmt: skip
    for call, operation in operations(schema).items():
        what, _, verb = operation["operationId"].rpartition("_")
        assert what, call
        assert verb in verbs, call


def test_no_answer_is_any_object(schema):
    for call, operation in operations(schema).items():
        for status, answer in operation["responses"].items():
            for kind, content in answer.get("content", {}).items():
                shape = content["schema"]
                text = kind == "text/plain" and shape == {"type": "string"}
                assert text or "$ref" in shape or shape.get("format") == "binary", (call, status, kind, shape)
    for name, shape in schema["components"]["schemas"].items():
        assert shape.get("properties") or "enum" in shape, name


def test_the_calls_of_tenancy_and_fleet_are_there(schema):
    wanted = {
        ("GET", "/api/v1/tenants"), ("POST", "/api/v1/tenants"), ("GET", "/api/v1/tenants/{slug}"),
        ("POST", "/api/v1/models"), ("POST", "/api/v1/models/{name}/epochs"), ("POST", "/api/v1/namespaces:resolve"),
        ("POST", "/api/v1/key-leases"), ("GET", "/api/v1/nodes"), ("POST", "/api/v1/nodes"),
        ("GET", "/api/v1/nodes/{node_id}"), ("POST", "/api/v1/nodes:enrol"), ("GET", "/api/v1/fleet-key"),
    }  # fmt: skip
    assert wanted <= set(operations(schema))
