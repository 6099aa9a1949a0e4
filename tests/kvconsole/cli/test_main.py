"""`kvc` as people and programs run it: a process of its own against a console that answers for real."""

import json
import os
import stat
import subprocess
import sys

import pytest

from tests.architecture.tree import CLONE
from tests.tenants.making import LLAMA, a_model, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_tenants_models_epochs_and_namespaces_from_the_command_line(kvc, staff, tmp_path):
    code, out, err = kvc("tenants", "create", "acme", "--name", "Acme\x1b[31m", "--class", "a", "--retention", "a=60",
                         token=staff)  # fmt: skip
    assert (code, err) == (0, "")
    assert "slug" in out
    assert "\x1b" not in out
    code, out, _ = kvc("--json", "tenants", "set", "acme", "--name", "Acme Ltd", token=staff)
    assert json.loads(out)["name"] == "Acme Ltd"
    assert json.loads(kvc("--json", "tenants", "show", "acme", token=staff)[1])["classes"] == ["a"]
    listed = kvc("tenants", "list", token=staff)[1].splitlines()
    assert listed[0].startswith("SLUG")
    assert listed[1].startswith("acme")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert kvc("models", "create", "m", "--config", str(tmp_path / "config.json"), token=staff)[0] == 0
    assert kvc("models", "create", "m2", "--config", "-", token=staff, text=json.dumps(LLAMA))[0] == 0
    assert kvc("epochs", "create", "m", "--weights-digest", "w1", token=staff)[1].split() == ["epoch", "1"]
    assert [e["epoch"] for e in json.loads(kvc("--json", "epochs", "list", "m", token=staff)[1])] == [1]
    resolved = kvc("--json", "namespaces", "resolve", "--tenant", "acme", "--model", "m", token=staff)
    assert set(json.loads(resolved[1])) >= {"namespace", "digest", "generation"}
    assert len(json.loads(kvc("--json", "models", "list", "--limit", "1", token=staff)[1])) == 1
    rehearsed = kvc("tenants", "create", "beta", "--name", "B", "--validate-only", token=staff)
    assert rehearsed[0] == 0
    assert "beta" not in kvc("tenants", "list", token=staff)[1]


def test_lists_are_walked_to_their_end(kvc, staff):
    for i in range(5):
        a_tenant(slug=f"s{i}")
    assert len(json.loads(kvc("--json", "tenants", "list", token=staff)[1])) == 6


def test_exit_codes_say_what_kind_of_no_it_is(kvc, staff):
    a_model()
    refused = kvc("--json", "tenants", "show", "none", token=staff)
    assert (refused[0], json.loads(refused[1])["code"]) == (1, "not-found")
    assert kvc("tenants", "create", "A", "--name", "x", token=staff)[0] == 1
    assert kvc("tenants", "nonsense", token=staff)[0] == 2
    assert kvc("tenants", "set", "platform", token=staff)[0] == 2
    assert kvc("models", "create", "m", "--config", "/nowhere", token=staff)[0] == 2
    assert kvc("tenants", "list", token=staff, url="http://127.0.0.1:1")[0] == 3
    assert kvc("tenants", "list")[0] == 5
    assert kvc("tenants", "list", token=staff[:-1] + "x")[0] == 5


def test_started_anew_it_does_the_same(kvc, staff, live_server, tmp_path):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KVC_URL": live_server.url, "KVC_TOKEN": staff}
    for words, code in ((("--json", "tenants", "list"), 0), (("tenants", "show", "none"), 1), (("nonsense",), 2)):
        done = subprocess.run(
            [sys.executable, "-m", "kvconsole.cli.main", *words], capture_output=True, text=True, cwd=CLONE, env=env,
            timeout=60,
        )  # fmt: skip
        forked = kvc(*words, token=staff)
        assert (done.returncode, done.stdout) == forked[:2] == (code, done.stdout), done.stderr


def test_secrets_stay_off_the_command_line_and_in_a_private_file(kvc, staff, tmp_path, live_server):
    code, out, err = kvc("--token", staff, "tenants", "list")
    assert (code, out) == (2, "")
    assert staff not in err
    assert kvc("--token", "-", "tenants", "list", text=staff)[0] == 0
    assert kvc("login", text=staff)[0] == 0
    kept = tmp_path / "c" / "kvc" / "login.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kvc("whoami")[0] == 0
    # the kept token goes to the console it was kept for, and to no other
    assert kvc("tenants", "list", url=live_server.url.replace("localhost", "127.0.0.1"))[0] == 5
    kept.chmod(0o644)
    assert kvc("whoami")[0] == 2
    kept.chmod(0o600)
    assert kvc("logout")[0] == 0
    assert kvc("whoami")[0] == 5
    assert kvc("login", text="kvc_wrong")[0] == 5
    assert not kept.exists()


def test_a_token_is_not_sent_in_the_clear_to_another_machine(kvc, staff):
    code, _, err = kvc("tenants", "list", token=staff, url="http://192.0.2.1")
    assert code == 2
    assert "https" in err
