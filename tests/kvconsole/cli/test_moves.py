"""`kvc migrate`, `drain`, `prefetch` and `pins` against a real console."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from tests.tenants.making import a_namespace, a_tenant

NOW = datetime.now(UTC)
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
    assert "nodes:read" in kvc("drain", "fra-d1", token=token)[2], "a name is looked up"
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


def test_a_node_is_called_by_its_name_or_its_id(kvc, settings):
    from audit.services import record
    from catalog.models import Node
    from tenants import services

    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    with transaction.atomic():
        node = Node.objects.create(name="fra-d1", region="eu", state="ready", state_since=NOW, created_at=NOW,
                                   enrolled_at=NOW, last_heard_at=NOW, public_key=b"k" * 32)  # fmt: skip
        record(event_type="node.changed", outcome="success", actor=None, tenant_id=None, object_kind="node",
               object_id=str(node.id), body={"name": "fra-d1", "changed": ["wanted"]})  # fmt: skip
    token = services.token_issue("service", roles=["operator"], scopes=["nodes:read", "nodes:write"])[1]
    for called in ("fra-d1", str(node.id)):
        for words in (["nodes", "show"], ["cordon"], ["uncordon"], ["drain", "--validate-only"]):
            code, out, err = kvc("--json", *words, called, token=token)
            assert code == 0 or "not-found" not in err + out, (words, called, err)
        assert json.loads(kvc("--json", "nodes", "show", called, token=token)[1])["id"] == str(node.id)
    for words in (["nodes", "show"], ["cordon"], ["uncordon"], ["drain"]):
        code, _, err = kvc(*words, "fra-x9", token=token)
        assert (code, "There is no node 'fra-x9'." in err) == (1, True)
