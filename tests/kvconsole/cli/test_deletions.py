"""`kvc delete` and `kvc operations` against a real console: a plan is seen before anything goes."""

import json

import pytest

from kvconsole.cli.deletions import in_the_way
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_a_plan_is_seen_applied_and_waited_for(kvc, settings):
    from tenants import services

    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    scopes = ["deletions:write", "deletions:read", "operations:read", "deletions:destroy"]
    token = services.token_issue("service", roles=["destructive-operator"], scopes=scopes)[1]
    tenant = a_tenant(slug="acme", erasure_scope="label")
    a_namespace(tenant, label="a")
    code, out, err = kvc("delete", "plan", "--tenant", "acme", "--label", "a", token=token)
    assert code == 0, err
    assert "risk R1" in out
    plan, hash_ = out.splitlines()[-1].split()[3], out.splitlines()[-1].split()[5]
    code, _, err = kvc("delete", "apply", plan, "--hash", "0" * 64, token=token)
    assert (code, "plan-mismatch" in err, "Nothing was fenced" in err) == (1, True, True)
    done = kvc("--json", "delete", "apply", plan, "--hash", hash_, "--throttle", "1000", token=token)
    assert done[0] == 0, done
    operation = json.loads(done[1])["id"]
    code, out, err = kvc("delete", "wait", operation, "--seconds", "0", token=token)
    assert (code, "there is no certificate" in err) == (1, True)
    assert kvc("delete", "verify", operation, token=token)[0] == 1
    assert kvc("operations", "pause", operation, token=token)[0] == 0
    assert operation in kvc("operations", "list", "--state", "open", token=token)[1]
    assert kvc("operations", "stop", operation, token=token)[0] == 0


def test_a_lease_of_a_key_is_no_lease_of_blocks_and_is_said_with_its_namespace():
    blocker = {"kind": "key_lease", "ref": "node", "ns": "ab" * 32, "blocks": 0, "reason": "4"}
    said = in_the_way(blocker)
    assert said.startswith(f"lease of the key of namespace {'ab' * 32}, holders: 4 (node)")
    assert "blocks" not in said
    assert in_the_way(blocker | {"kind": "pin", "reason": "keys"}) == "pin keys"
