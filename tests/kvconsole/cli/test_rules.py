"""`kvc windows`, `kvc sessions` and the end of epochs against a real console."""

import json

import pytest

from tenants import services
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_windows_hold_back_what_is_asked_for_and_an_epoch_is_drained(kvc, settings):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    scopes = ["deny-windows:write", "deny-windows:read", "deny-windows:destroy", "deletions:destroy", "sessions:write",
              "operations:read", "deletions:write", "deletions:read", "models:read", "epochs:read"]  # fmt: skip
    token = services.token_issue("service", roles=["destructive-operator", "viewer"], scopes=scopes)[1]
    model, tenant = a_model(name="old-model"), a_tenant(slug="acme", erasure_scope="session")
    a_namespace(tenant, model, session="s1")
    made = kvc("--json", "windows", "create", "* * * * *", "--minutes", "5", "--reason", "night", token=token)
    assert made[0] == 0, made
    window = json.loads(made[1])["id"]
    assert window in kvc("windows", "list", token=token)[1]
    assert kvc("windows", "show", window, token=token)[0] == 0
    assert kvc("windows", "create", "nonsense", "--minutes", "5", "--reason", "night", token=token)[0] == 1
    retire = ("epoch", "retire", "old-model", "1", "--reason", "new weights", "--policy", "drain", "--drain-seconds",
              "60", "--throttle", "1000")  # fmt: skip
    code, _, err = kvc(*retire, token=token)
    assert (code, "deny-window" in err, "until" in err, "Nothing was fenced" in err) == (1, True, True, True)
    ended = kvc("--json", "sessions", "end", "s1", "--tenant", "acme", token=token)
    assert ended[0] == 0, ended
    waiting = kvc("--json", "operations", "show", json.loads(ended[1])["operation"], token=token)
    assert json.loads(waiting[1])["error"]["code"] == "deny-window"
    assert kvc("windows", "remove", window, token=token)[0] == 0
    done = kvc("--json", *retire, token=token)
    assert done[0] == 0, done
    operation = json.loads(done[1])
    assert (operation["state"], operation["error"]["code"], operation["throttle"]) == ("planned", "draining", 1000)
    assert kvc("operations", "throttle", operation["id"], "500", token=token)[0] == 0
    assert kvc("operations", "stop", operation["id"], token=token)[0] == 0
    listed = kvc("epochs", "list", "old-model", token=token)
    assert "open" in listed[1], listed
