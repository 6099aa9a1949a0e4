"""Commands of operators: the commander, nodes, the demonstration."""

import json
import os
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from io import StringIO

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.core.management import CommandError, call_command

from catalog.models import Node
from kvconsole.management.commands.commander import BODY_BYTES, Commander, command_key
from kvconsole.management.commands.seed_demo import NODES, PEOPLE, TENANTS, read_logins
from kvcore.messages import PROTOCOL, EnrolmentQuestion, enrolment_bytes, fingerprint, signed_bytes
from tenants import selectors
from tests.architecture.tree import CLONE
from tests.catalog.farnode import RunningCommander

# --- the commander -------------------------------------------------------------------


@pytest.fixture
def signer(tmp_path):
    return Commander(command_key(tmp_path / "k", make=True), "t" * 40, clock=lambda: 1000.0)


def order(**fields):
    return json.dumps({
        "v": PROTOCOL, "step": "s", "kind": "ping", "node": "n", "order_hash": "00", "issued_at": 1000.0,
        "expires_at": 1060.0, **fields,
    }).encode()  # fmt: skip


@pytest.mark.parametrize("kind", ["inventory", "digest", "ping"])
def test_harmless_orders_are_signed(signer, kind):
    status, envelope = signer.sign(order(kind=kind))
    assert status == 200
    key = Ed25519PublicKey.from_public_bytes(signer.public)
    key.verify(bytes.fromhex(envelope.signature), signed_bytes("command", envelope.body))
    assert envelope.key == fingerprint(signer.public)
    assert envelope.body["kind"] == kind


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        *[
            (order(kind=k), 403, "kind-not-allowed")
            for k in ("purge", "erase", "verify", "migrate", "", "PING", "ping ")
        ],
        (order(expires_at=999.0), 403, "command-expired"),
        (order(expires_at=5000.0), 403, "command-expired"),
        (order(issued_at=2000.0, expires_at=1500.0), 403, "command-expired"),
        (order(v=2), 400, "version-unsupported"),
        (b"", 400, "command-malformed"),
        (b"{", 400, "command-malformed"),
        (order(args={"n": 2**60}), 400, "command-malformed"),
        (order()[:-1] + b',"args":{"x":' + b"[" * 30000 + b"]" * 30000 + b"}}", 400, "command-malformed"),
        (b"[]", 400, "command-malformed"),
        (order(kind=1), 400, "command-malformed"),
    ],
)
def test_nothing_else_is(signer, raw, status, code):
    assert signer.sign(raw) == (status, {"code": code})


QUESTION = {"console": "console.example", "nonce": "0a" * 32, "public_key": "0b" * 32, "node": "n1"}


def test_a_nodes_question_is_answered_in_a_domain_of_its_own(signer):
    status, answer = signer.prove(json.dumps(QUESTION).encode())
    assert (status, answer["public_key"]) == (200, signer.public.hex())
    key, signature = Ed25519PublicKey.from_public_bytes(signer.public), bytes.fromhex(answer["signature"])
    key.verify(signature, enrolment_bytes(EnrolmentQuestion(**QUESTION)))
    for other in ("command", "receipt"):
        with pytest.raises(InvalidSignature):
            key.verify(signature, signed_bytes(other, QUESTION))


@pytest.mark.parametrize(
    "change",
    [{"nonce": "0a"}, {"nonce": "0A" * 32}, {"public_key": ""}, {"node": ""}, {"node": "x" * 64}, {"console": ""},
     {"kind": "purge"}, {"node": 1}],
)  # fmt: skip
def test_no_other_question_is(signer, change):
    assert signer.prove(json.dumps(QUESTION | change).encode()) == (400, {"code": "question-malformed"})
    assert signer.prove(b"{") == (400, {"code": "question-malformed"})
    assert signer.prove(order()) == (400, {"code": "question-malformed"})


def test_it_runs_without_a_database_and_answers_who_knows_the_token(tmp_path):
    running = RunningCommander(tmp_path)
    try:

        def ask(path, body=None, token=running.token):
            request = urllib.request.Request(running.url + path, body, {"Authorization": f"Bearer {token}"})
            try:
                with urllib.request.urlopen(request, timeout=5) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as e:
                with e:
                    return e.code, json.load(e)

        now = time.time()
        good = order(issued_at=now, expires_at=now + 60)
        assert ask("/v1/sign", good)[0] == 200
        assert ask("/v1/sign", order(kind="purge", issued_at=now, expires_at=now + 60))[0] == 403
        for token in ("", "x", running.token + "x"):
            assert ask("/v1/sign", good, token) == (401, {"code": "not-authenticated"})
            assert ask("/v1/public-key", None, token)[0] == 401
        assert ask("/v1/prove", json.dumps(QUESTION).encode())[0] == 200
        assert ask("/v1/prove", json.dumps(QUESTION).encode(), "x")[0] == 401
        assert ask("/v1/sign", b"x" * (BODY_BYTES + 1))[0] == 413
        assert ask("/v1/other")[0] == 404
        public = ask("/v1/public-key")[1]["public_key"]
        assert (tmp_path / "command.key.pub").read_text().strip() == public
        assert stat.S_IMODE((tmp_path / "command.key").stat().st_mode) == 0o600
    finally:
        running.close()


def test_a_key_that_is_missing_damaged_or_open_is_not_used(tmp_path):
    with pytest.raises(CommandError, match="command key"):
        command_key(tmp_path / "k")
    key = command_key(tmp_path / "k", make=True)
    assert command_key(tmp_path / "k", make=True).private_bytes_raw() == key.private_bytes_raw()
    os.chmod(tmp_path / "k", 0o644)
    with pytest.raises(CommandError, match="0600"):
        command_key(tmp_path / "k")
    os.chmod(tmp_path / "k", 0o600)
    (tmp_path / "k").write_bytes(b"short")
    with pytest.raises(CommandError, match="damaged"):
        command_key(tmp_path / "k")


@pytest.mark.parametrize(("token", "file"), [("", "x"), ("short", "x"), ("t" * 40, "")])
def test_it_does_not_start_without_token_and_key(settings, token, file):
    settings.COMMANDER_TOKEN, settings.COMMAND_KEY_FILE = token, file
    with pytest.raises(CommandError):
        call_command("commander")


# --- nodes -----------------------------------------------------------------------------


@pytest.fixture
def key_file(settings, tmp_path):
    settings.COMMANDER_URL, settings.COMMAND_KEY_FILE = "http://127.0.0.1:1", str(tmp_path / "command.key")


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
