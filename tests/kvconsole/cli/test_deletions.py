"""`kvc delete` and `kvc operations` against a real console: a plan is seen before anything goes."""

import json

import pytest

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
