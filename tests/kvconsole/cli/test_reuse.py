"""Models, adapters, roll-outs, explanations and share groups from the command line, against a real console."""

import json
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from typer.testing import CliRunner

from kvconsole.cli.client import Client
from kvconsole.cli.main import app
from tests.tenants.making import LLAMA, a_model, a_tenant, a_user

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def read(done):
    code, out, err = done
    assert code == 0, err
    return json.loads(out)


def test_models_have_all_their_fields_and_adapters_are_found_by_digest(kvc, staff):
    a_model(name="m")
    said = ("--base", "m", "--kv-scales", "sha256:s", "--tokenizer-digest", "sha256:t", "--modality-digest", "sha256:e")
    more = ("--kv-dtype", "fp8", "--block-tokens", "32", "--tensor-parallel", "2", "--config", "-")
    made = read(kvc("--json", "models", "create", "m-fp8", *said, *more, token=staff, text=json.dumps(LLAMA)))
    assert (made["base"], made["block_tokens"], made["tensor_parallel"]) == ("m", 32, 2)
    assert {"sha256:s", "sha256:t"} <= set(made["layout"].values())
    assert [m["name"] for m in read(kvc("--json", "models", "lineage", "m-fp8", token=staff))["bases"]] == ["m"]
    number = read(kvc("--json", "adapters", "create", "legal", "--model", "m", "--digest", "sha256:a", token=staff))
    assert number["adapter_epoch"] == 1
    assert read(kvc("--json", "adapters", "show", "sha256:a", token=staff))["name"] == "legal"
    assert kvc("adapters", "list", token=staff)[1].splitlines()[1].split()[:2] == ["m", "legal"]
    assert kvc("adapters", "show", "sha256:none", token=staff)[0] == 1
    assert kvc("adapters", "create", "legal", "--model", "m-fp8", "--digest", "sha256:a", token=staff)[0] == 0
    assert kvc("adapters", "show", "sha256:a", token=staff)[0] == 2
    assert read(kvc("--json", "adapters", "show", "sha256:a", "--model", "m", token=staff))["model"] == "m"


def test_one_adapter_is_asked_for_by_its_digest_and_not_looked_for_in_all(kvc, live_server, staff, monkeypatch):
    a_model(name="m")
    for n in range(3):
        kvc("adapters", "create", f"a{n}", "--model", "m", "--digest", f"sha256:{n}", token=staff)
    asked, call = [], Client.call

    def seen(self, method, path, *more, **options):
        asked.append((method, path, options["params"]["digest"]))
        answer = call(self, method, path, *more, **options)
        assert len(answer.json()["items"]) == 1
        return answer

    monkeypatch.setattr(Client, "call", seen)
    env = {"KVC_URL": live_server.url, "KVC_TOKEN": staff, "KVC_CONFIG_HOME": "/nonexistent"}
    shown = CliRunner().invoke(app, ["--json", "adapters", "show", "sha256:1"], env=env)
    assert json.loads(shown.stdout)["name"] == "a1"
    assert asked == [("GET", "/adapters", "sha256:1")]


def test_shares_are_set_and_reuse_is_explained(kvc, staff):
    a_tenant(slug="acme")
    a_model(name="m", epochs=2)
    assert kvc("models", "rollout", "set", "m", "--share", "1=90", "--share", "2=1", token=staff)[0] == 1
    assert kvc("models", "rollout", "set", "m", "--share", "all", token=staff)[0] == 2
    shares = ("--share", "1=90", "--share", "2=10", "--horizon-seconds", "600")
    assert kvc("models", "rollout", "set", "m", *shares, "--validate-only", token=staff)[0] == 0
    assert read(kvc("--json", "models", "rollout", "show", "m", token=staff))["version"] == 0
    after = read(kvc("--json", "models", "rollout", "set", "m", *shares, token=staff))
    assert (after["shares"], after["horizon_seconds"]) == ({"1": 90, "2": 10}, 600)
    spaces = [
        read(kvc("--json", "namespaces", "resolve", "--tenant", "acme", "--model", "m", "--label", label,
                 "--request", "r", token=staff))["namespace"]
        for label in ("a", "b")
    ]  # fmt: skip
    code, out, _ = kvc("explain-reuse", *spaces, token=staff)
    assert code == 0
    assert out.splitlines()[0].split() == ["CODE", "A", "B"]
    assert "label" in out
    assert read(kvc("--json", "explain-reuse", spaces[0], spaces[0], token=staff))["same"] is True
    assert read(kvc("--json", "models", "uses", "m", token=staff))[0]["tenant"] == "acme"


def test_a_share_group_is_asked_for_and_revoked_but_decided_by_people_alone(kvc):
    from kvconsole.infra.access import Principal
    from tenants import services

    for slug in ("acme", "bank"):
        a_tenant(slug=slug)
    asker, decider = a_user(roles=["operator", "viewer"]), a_user(roles=["approver", "viewer"])
    scopes = ["*:read", "*:write", "share-groups:destroy"]
    staff = services.token_issue("user", user=asker, roles=asker.roles, scopes=scopes)[1]
    plain = services.token_issue("user", user=asker, roles=asker.roles)[1]
    second = services.token_issue("user", user=decider, roles=decider.roles)[1]
    until = (datetime.now(UTC) + timedelta(days=7)).isoformat()
    said = ("--owner", "acme", "--audience", "bank", "--expires-at", until, "--reason", "same handbooks")
    group = read(kvc("--json", "share-groups", "create", "one", *said, token=staff))["id"]
    waiting = read(kvc("--json", "approvals", "list", "--state", "open", token=second))
    assert [a["object_id"] for a in waiting] == [group]
    assert read(kvc("--json", "approvals", "show", waiting[0]["id"], token=second))["kind"] == "share_group"
    for kind, id_ in (("share-groups", group), ("approvals", waiting[0]["id"])):
        for act in ("approve", "deny"):
            code, _, err = kvc(kind, act, id_, token=second)
            assert (code, err.split(": ")[1]) == (1, "person-needed"), (kind, act)
    person = Principal(kind="user", id=str(decider.id), roles=frozenset({"approver"}), proved_at=time.time())
    services.share_group_approve(group_id=UUID(group), actor=person)
    code, _, err = kvc("share-groups", "revoke", group, "--reason", "x", token=plain)
    assert (code, err) == (1, "kvc: scope-missing: The token must have the scope share-groups:destroy.\n")
    assert read(kvc("--json", "share-groups", "revoke", group, "--reason", "x", token=staff))["state"] == "revoked"
