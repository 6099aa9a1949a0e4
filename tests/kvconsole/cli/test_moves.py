"""`kvc migrate`, `drain`, `prefetch` and `pins` against a real console."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_moves_are_asked_for_and_pins_made(kvc, settings):
    from tenants import services

    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    scopes = ["migrations:write", "prefetches:write", "nodes:write", "pins:write", "pins:read"]
    token = services.token_issue("service", roles=["operator"], scopes=scopes)[1]
    tenant = a_tenant(slug="acme", erasure_scope="label")
    namespace = a_namespace(tenant, label="a")
    code, out, err = kvc("migrate", "--tenant", "acme", "--from", "hbm", "--to", "ssd", token=token)
    assert (code, "nothing-selected" in err or "nothing-selected" in out) == (1, True), (out, err)
    assert kvc("drain", str(uuid.uuid4()), token=token)[0] == 1
    prefetch = ["prefetch", "--namespace", str(namespace.id), "--prefix", "ab" * 32, "--to-node", "n", "--to", "hbm"]
    assert kvc(*prefetch, "--need-at", "2030-01-01T00:00:00Z", token=token)[0] == 1
    late = kvc("pins", "create", str(namespace.id), "--until", "2020-01-01T00:00:00Z", token=token)
    assert late[0] == 1
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    code, out, err = kvc("--json", "pins", "create", str(namespace.id), "--until", until, "--reason", "x", token=token)
    assert code == 0, err
    pin = json.loads(out)["id"]
    assert pin in kvc("pins", "list", token=token)[1]
    assert kvc("pins", "show", pin, token=token)[0] == 0
    assert kvc("pins", "remove", pin, token=token)[0] == 0
