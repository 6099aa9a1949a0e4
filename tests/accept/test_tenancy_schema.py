"""Tenancy, seen from outside: the API answers as it says it does, and a repeated POST has one effect."""

import os
import threading
import time
import uuid
from collections import Counter
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.accept.fleet import rows, say
from tests.accept.foreign import OWN, own_ids
from tests.accept.tenancy import Caller, People, plant_token
from tests.running import Console

pytestmark = [pytest.mark.accept, pytest.mark.walk]
LONG = os.environ.get("KVC_ACCEPT", "") == "full"
CALLS = 2000 if LONG else 250
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
]  # fmt: skip
ALL_ROLES = ("viewer", "operator", "destructive-operator", "approver", "auditor")
DESTROY = ("people:manage", "people:destroy", "tokens:manage", "nodes:manage", "tenants:destroy",
           "share-groups:destroy")  # fmt: skip


class Bearer(requests.auth.AuthBase):
    """The token goes with the request whatever was generated for the schema's two ways to be known."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """The request with its token."""
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


NO_HTTP = b"Invalid HTTP request received."
"""What the web server says to bytes that it cannot read as a request."""


class Fuzz:
    """Calls every operation of the served schema with what it says it takes, and with what it says it does not."""

    def __init__(self, console: Console) -> None:
        url = console.url
        ours = rows(console, "SELECT id FROM tenants_tenant WHERE slug = %s", OWN)[0][0]
        scopes = ("*:read", "*:write", *DESTROY)
        self.callers = [
            plant_token(console, *ALL_ROLES, scopes=scopes),
            plant_token(
                console, "tenant-admin", "tenant-member", "gateway", tenant=ours, kind="gateway", scopes=scopes
            ),
        ]
        self.schema = schemathesis.openapi.from_url(f"{url}/api/schema")
        self.known = own_ids(console) | {"name": "ref-64"}
        self.statuses, self.wrong = Counter[int](), dict[str, str]()
        self.calls = self.no_http = 0
        self.unlisted = Counter[str]()
        """Answers that only the schema's `default` describes."""

    def operations(self) -> list[Any]:
        """All of them; what takes things away comes last."""
        found = [result.ok() for result in self.schema.get_all_operations()]
        return sorted(found, key=lambda o: (o.method.upper() == "DELETE", o.path, o.method))

    def run(self, operation: Any, count: int, number: int) -> None:
        """So many calls of the operation, half of them as the schema says, half of them not."""
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            self._run(operation, operation.as_strategy(generation_mode=mode), (count + 1) // 2, number)

    def _run(self, operation: Any, strategy: Any, count: int, number: int) -> None:
        begun = self.calls

        @seed(number)
        @settings(max_examples=count, deadline=None, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=strategy)
        def attempt(case: Any) -> None:
            if self.calls - begun < count:
                self._call(operation, case)

        try:
            attempt()
        except Exception as e:  # there is nothing that the schema does not take
            if "Unsatisfiable" not in type(e).__name__:
                raise

    def _call(self, operation: Any, case: Any) -> None:
        self.calls += 1
        if self.calls % 2:
            case.path_parameters = {k: self.known.get(k, v) for k, v in (case.path_parameters or {}).items()}
        session = requests.Session()
        session.auth = Bearer(self.callers[self.calls % 3 == 0]) if self.calls % 11 else None
        answer = case.call(session=session)
        if answer.content == NO_HTTP:  # names of headers that are none: it reached no operation
            self.calls, self.no_http = self.calls - 1, self.no_http + 1
            return
        label = f"{operation.method.upper()} {operation.path}"
        self.statuses[answer.status_code] += 1
        if str(answer.status_code) not in operation.definition.raw["responses"]:
            self.unlisted[f"{label} {answer.status_code}"] += 1
        try:
            case.validate_response(answer, checks=CHECKS)
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            self.wrong.setdefault(f"{label} {answer.status_code}", f"{e}\n{getattr(e, 'exceptions', '')}"[:2500])


@pytest.mark.timeout(300)
def test_500_posts_with_one_idempotency_key_from_20_threads_have_one_effect(people: People) -> None:
    """Exactly one effect, where two would be possible (an epoch) and where the name stands against it (a tenant)."""
    console = people.console
    operator = people.token("operator", "operator", "viewer")
    figures = {}
    tries = {
        "epoch": ("/models/ref-64/epochs", {"weights_digest": "sha256:once"}, "epoch.created"),
        "tenant": ("/tenants", {"slug": "once", "name": "Once"}, "tenant.created"),
    }
    for what, (path, body, action) in tries.items():
        before = _events(console, action)
        start = time.monotonic()
        answers = _storm(console.url, operator.token, path, body, str(uuid.uuid4()))
        took = time.monotonic() - start
        made = {a[1] for a in answers if a[0] == 201}
        figures[what] = {"statuses": dict(Counter(a[0] for a in answers)), "events": _events(console, action) - before,
                         "answers": len(made), "seconds": round(took, 1)}  # fmt: skip
        assert len(answers) == 500
        assert {a[0] for a in answers} <= {201, 409}
        assert {a[2] for a in answers if a[0] == 409} <= {"idempotency-in-progress"}
        assert len(made) == 1, made
        assert figures[what]["events"] == 1
    epochs = rows(console, "SELECT count(*) FROM tenants_epoch WHERE weights_digest = 'sha256:once'")[0][0]
    say("once", posts=500, threads=20, rows_epoch=epochs, **figures)
    assert epochs == 1


def _storm(url: str, token: str, path: str, body: dict[str, Any], key: str) -> list[tuple[int, str, str]]:
    """(status, answer, code) of 500 POSTs by 20 threads at once."""
    answers, gate = list[tuple[int, str, str]](), threading.Barrier(20)

    def post() -> None:
        caller = Caller(url, token)
        gate.wait()
        for _ in range(25):
            answer = caller("POST", path, body, **{"Idempotency-Key": key})
            answers.append((answer.status_code, answer.text, answer.json().get("code", "")))

    threads = [threading.Thread(target=post) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _events(console: Console, action: str) -> int:
    query = "SELECT count(*) FROM audit_event WHERE convert_from(body, 'UTF8')::jsonb->>'action' = %s"
    return int(rows(console, query, action)[0][0])


@pytest.mark.timeout(1800)
def test_no_call_of_the_served_schema_is_answered_otherwise_than_it_says(people: People) -> None:
    """2,000 calls: no 5xx, no answer the schema does not describe."""
    fuzz = Fuzz(people.console)
    operations = fuzz.operations()
    start, each = time.monotonic(), -(-CALLS // len(operations))
    for number, operation in enumerate(operations):
        fuzz.run(operation, each, number)
    for turn in range(100, 110):  # operations that take next to nothing are through sooner
        for number, operation in enumerate(operations):
            if fuzz.calls < CALLS and (operation.body or operation.query):
                fuzz.run(operation, each, number + turn)
    say("schema", calls=fuzz.calls, operations=len(operations), statuses=dict(sorted(fuzz.statuses.items())),
        not_described=len(fuzz.wrong), by_default_only=dict(fuzz.unlisted), no_http=fuzz.no_http,
        seconds=round(time.monotonic() - start, 1))  # fmt: skip
    assert not fuzz.wrong, "\n\n".join(f"{k}: {v}" for k, v in list(fuzz.wrong.items())[:8])
    assert not any(status >= 500 for status in fuzz.statuses)
    assert not fuzz.unlisted
    assert fuzz.calls >= CALLS
