"""Commands of operators: nodes, the demonstration."""

import json
import stat
import subprocess
import sys
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from catalog.models import Node
from kvconsole.management.commands.seed_demo import NODES, PEOPLE, TENANTS, read_logins
from tenants import selectors
from tests.architecture.tree import CLONE

# --- nodes -----------------------------------------------------------------------------


@pytest.fixture
def key_file(settings, tmp_path):
    settings.SIGNER_URL, settings.COMMAND_KEY_FILE = "http://127.0.0.1:1", str(tmp_path / "command.key")


def run(*arguments, **options):
    out = StringIO()
    call_command(*arguments, stdout=out, **options)
    return out.getvalue()


@pytest.mark.django_db
def test_a_node_and_its_token(key_file):
    token = run("node_create", "n1", "--region", "eu", "--role", "decode").strip()
    assert token.startswith("kvc_enrol_")
    node = Node.objects.get(name="n1")
    assert (node.region, node.role, node.agent_url) == ("eu", "decode", "")
    assert run("node_create", "n1").strip() != token
    assert Node.objects.count() == 1


def said(name, *more):
    err, out = StringIO(), StringIO()
    call_command("node_create", name, *more, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@pytest.mark.django_db
def test_what_to_run_next_is_said_apart_from_the_token(key_file, settings):
    settings.CONSOLE_URL = "https://console.example.org"
    token, steps = said("n1", "--agent-url", "http://127.0.0.1:9300")
    assert token.startswith("kvc_enrol_")
    assert len(token.splitlines()) == 1
    assert "kvc_" not in steps
    assert [line.strip() for line in steps.splitlines() if "nodeagent" in line] == [
        "python -m nodeagent join --console https://console.example.org --dir agent-n1 --name n1"
        " --listen 127.0.0.1:9300 --token -",
        "python -m nodeagent run --dir agent-n1",
    ]
    _, steps = said("n2")
    assert "--dir agent-n2 --name n2 --token -" in steps
    settings.AGENT_NETWORKS = ["10.0.0.0/8"]
    _, steps = said("n3", "--agent-url", "https://10.0.0.7:9443")
    assert "--listen 0.0.0.0:9443 --agent-url https://10.0.0.7:9443 --tls-cert CERTIFICATE --tls-key KEY" in steps


@pytest.mark.django_db
def test_the_next_step_is_one_the_agent_takes(key_file):
    _, steps = said("n1", "--agent-url", "http://127.0.0.1:9300")
    join, go = (line.split()[3:] for line in steps.splitlines() if "nodeagent" in line)
    for arguments in (join, go):
        done = subprocess.run(
            [sys.executable, "-m", "nodeagent", *arguments, "--help"], capture_output=True, text=True, cwd=CLONE
        )
        assert done.returncode == 0
        options = {word for word in arguments if word.startswith("--")}
        assert all(option in done.stdout for option in options)


@pytest.mark.django_db
def test_retired_nodes_are_fenced_all_or_none(key_file):
    run("node_create", "n1", "n2")
    with pytest.raises(CommandError, match="not a node: n3; none"):
        run("node_retire", "n1", "n3", "--reason", "test")
    assert set(Node.objects.values_list("state", flat=True)) == {"joining"}
    assert "n1 is retired" in run("node_retire", "n1", "n2", "--reason", "test")
    assert set(Node.objects.values_list("state", "wanted")) == {("fenced", "fenced")}


@pytest.mark.django_db
def test_several_nodes_as_json(key_file):
    made = json.loads(run("node_create", "--json", "a=http://127.0.0.1:9,region=x,rack=r", "b"))
    assert set(made) == {"a", "b"}
    node = Node.objects.get(id=made["a"]["id"])
    assert (node.agent_url, node.region, node.rack) == ("http://127.0.0.1:9", "x", "r")


@pytest.mark.django_db
@pytest.mark.parametrize("spec", ["a b", "a,colour=red", "a=http://10.0.0.1", "a,role=boss"])
def test_when_one_node_is_refused_none_is_made(key_file, spec):
    with pytest.raises(CommandError):
        run("node_create", "good", spec)
    assert not Node.objects.exists()


# --- the demonstration --------------------------------------------------------------------


@pytest.mark.django_db
def test_the_demonstration_twice_is_once(key_file, tmp_path):
    logins, nodes = tmp_path / "logins", tmp_path / "nodes"
    run("seed_demo", "--logins", str(logins), "--nodes", str(nodes))
    first = read_logins(logins)
    assert set(first) == {name for name, _, _ in PEOPLE}
    assert len(set(first.values())) == len(first)
    for path in (logins, nodes):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(json.loads(nodes.read_text())) == {n["name"] for n in NODES} == {"fra-p1", "fra-p2", "fra-d1", "ams-m1"}
    before = len(selectors.namespaces_active())
    run("seed_demo", "--logins", str(logins), "--nodes", str(nodes))
    assert read_logins(logins) == first
    assert len(selectors.namespaces_active()) == before
    assert Node.objects.count() == 4
    assert {t["slug"] for t in TENANTS} <= {t.slug for t in selectors.Tenant.objects.all()}
    sizes = {m.name: m.bytes_per_token for m in selectors.Model.objects.all()}
    assert (sizes["ref-1k"], sizes["ref-64"], sizes["llama-3.1-8b"]) == (1024, 64, 131_072)


@pytest.mark.django_db
def test_lost_logins_are_made_anew_and_work(key_file, tmp_path):
    from django.contrib.auth import authenticate

    path = tmp_path / "logins"
    run("seed_demo", "--logins", str(path))
    old = read_logins(path)
    path.unlink()
    run("seed_demo", "--logins", str(path))
    new = read_logins(path)
    assert authenticate(username="operator", password=old["operator"]) is None
    user = authenticate(username="operator", password=new["operator"])
    assert user is not None
    assert "operator" in user.roles


def test_production_is_not_seeded(monkeypatch):
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "kvconsole.settings.prod")
    with pytest.raises(CommandError, match="demonstration"):
        run("seed_demo")
