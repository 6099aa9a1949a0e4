"""Generated calls over the served description: none breaks the console, none answers what is not described.

`make test` runs a short form; KVC_ACCEPT=full the long one.
"""

import json
import os

import pytest
import schemathesis
from django.core import signals
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from audit.keyfiles import key_file
from kvconsole import apidocs
from kvconsole.infra import access, sql
from routing import replica as replicas
from routing.replica import Replica
from tenants import services
from tests.tenants.making import a_model, a_tenant

CALLS = 2_000 if os.environ.get("KVC_ACCEPT") == "full" else 200
ROLES = ["operator", "viewer", "destructive-operator", "approver", "auditor"]
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip
KNOWN = {"slug": "fuzzed", "name": "fuzzed-model"}
"""Path parameters that lead to something, for half of the calls."""


@pytest.fixture
def token(db, tmp_path, settings):
    settings.COMMAND_KEY_FILE = str(tmp_path / "command.key")
    key_file(tmp_path / "command.key", make=True)
    tenant = a_tenant(slug="fuzzed")
    a_model(name="fuzzed-model")
    assert tenant.slug == KNOWN["slug"]
    assert access.unregistered() == []
    return services.token_issue("service", roles=ROLES, scopes=sorted(access.scopes()))[1]


@pytest.fixture
def kept():
    """The server's end of a request does not close the connection of the test."""
    for signal in (signals.request_started, signals.request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (signals.request_started, signals.request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def index(db, monkeypatch):
    """The index that look-ups start follows the ledger no longer than the database may be reached."""
    replica = Replica()
    monkeypatch.setattr(replicas, "_replica", replica)
    yield
    replica.close()
    with sql.connect("router") as connection:  # it was committed beside the test's transaction
        connection.execute("DELETE FROM routing_indexlease")


@pytest.fixture
def operations(kept, index):
    schema = schemathesis.openapi.from_wsgi("/api/schema", get_wsgi_application())
    return [found.ok() for found in schema.get_all_operations()]


def described(operation):
    return apidocs.description()["paths"][operation.path][operation.method.lower()]


def check(case, response, operation):
    """The answer is described, down to the code of a problem."""
    case.validate_response(response, checks=CHECKS)
    if response.status_code >= 400 and response.status_code != 405:
        code = json.loads(response.content)["code"]
        about = (
            f"{operation.method} {operation.path} answered {response.status_code} {code}: {response.content[:300]!r}"
        )
        assert code in described(operation)["x-problem-codes"], about
        assert str(response.status_code) in described(operation)["responses"], about


def fuzz(operation, token, most, made):
    """So many calls of one operation, positive and negative ones."""

    @given(case=operation.as_strategy())
    @examples(max_examples=most, derandomize=True, database=None, deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    def call(case):
        if len(made) % 2 and case.path_parameters:
            case.path_parameters |= {k: v for k, v in KNOWN.items() if k in case.path_parameters}
        made.append(operation.path)
        check(case, case.call(headers={"Authorization": f"Bearer {token}"}), operation)

    call()


@pytest.mark.timeout(1200)
def test_generated_calls_are_answered_as_described(operations, token):
    made, failed = [], []
    for operation in operations:
        try:
            fuzz(operation, token, max(2, CALLS // len(operations) + 1), made)
        except (Exception, BaseExceptionGroup) as e:
            failed.append(f"{operation.method} {operation.path}: {type(e).__name__}: {e}"[:1500])
    assert not failed, "\n\n".join(failed)
    assert len(made) >= CALLS // 2
