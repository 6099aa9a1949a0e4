"""What the signer answers, asked directly."""

import asyncio
import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from audit.asked import MOST_COMMANDS
from audit.keyfiles import verify
from audit.signer import orders
from audit.signer.app import BODY_BYTES
from kvcore import notes
from kvcore.messages import PROTOCOL, EnrolmentQuestion, enrolment_bytes, fingerprint, signed_bytes
from kvcore.notes import Checkpoint
from tests.audit.signer.making import (
    APPROVAL,
    DECIDER,
    NOW,
    ORIGIN,
    TOKENS,
    Log,
    a_signer,
    ask,
    command,
    decision_body,
    order_body,
    signed_up_to,
)  # fmt: skip


@pytest.fixture
def signer(tmp_path):
    signer = a_signer(tmp_path)
    yield signer
    signer.held.close()


def plain(**fields):
    return json.dumps({
        "v": PROTOCOL, "step": "s", "kind": "ping", "node": "n", "order_hash": "00", "issued_at": NOW,
        "expires_at": NOW + 60, **fields,
    }).encode()  # fmt: skip


def over_http(signer, method, path, body=b"", token=TOKENS.console):
    """Status and body, as ASGI has them."""
    sent, pieces = [], [body[at : at + 65_536] for at in range(0, max(1, len(body)), 65_536)]

    async def receive():
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(b"authorization", f"Bearer {token}".encode())],
    }
    asyncio.run(signer(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


# --- commands -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["inventory", "digest", "ping", "verify", "probe"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_harmless_commands_are_signed(signer, kind, wrapped):
    raw = plain(kind=kind)
    status, envelope = signer.sign(ask(json.loads(raw)) if wrapped else raw)
    assert status == 200
    key = Ed25519PublicKey.from_public_bytes(signer.command_public)
    key.verify(bytes.fromhex(envelope.signature), signed_bytes("command", envelope.body))
    assert envelope.key == fingerprint(signer.command_public)
    assert envelope.body["kind"] == kind


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        *[(plain(kind=k), 403, "order-missing") for k in ("purge", "erase", "shred", "fence", "migrate", "anything")],
        *[
            (plain(kind=k), 403, "kind-not-allowed")
            for k in ("", "PING", "ping ", "pu rge", "-", "x" * 33, "purgé", "p1")
        ],
        (plain(expires_at=NOW - 1), 403, "command-expired"),
        (plain(expires_at=NOW + 5000), 403, "command-expired"),
        (plain(issued_at=NOW + 1000, expires_at=NOW + 500), 403, "command-expired"),
        (plain(v=2), 400, "version-unsupported"),
        (b"", 400, "command-malformed"),
        (b"{", 400, "command-malformed"),
        (plain(args={"n": 2**60}), 400, "command-malformed"),
        (plain(issued_at=0)[:-1] + b',"issued_at":-1e400}', 400, "command-malformed"),
        (plain().replace(str(NOW).encode(), b"-1e400", 1), 400, "command-malformed"),
        (plain()[:-1] + b',"args":{"x":' + b"[" * 30000 + b"]" * 30000 + b"}}", 400, "command-malformed"),
        (plain()[:-1] + b',"kind":"ping"}', 400, "command-malformed"),
        (plain(more=1), 400, "command-malformed"),
        (b"[]", 400, "command-malformed"),
        (plain(kind=1), 400, "command-malformed"),
        (b'{"command":{}}', 400, "command-malformed"),
        (b'{"command":[]}', 400, "command-malformed"),
    ],
)
def test_nothing_else_is(signer, raw, status, code):
    assert signer.sign(raw) == (status, {"code": code})


@pytest.fixture
def logged(signer):
    """A log that was signed, with an order that a second person approved in it: (log, order, approval)."""
    log = Log().fill(5)
    order = log.add(order_body(risk="R3", approval=APPROVAL), event_type=0x0501)
    approval = log.add(decision_body(), event_type=0x0230, actor_ref=DECIDER)
    log.fill(4)
    signed_up_to(signer, log)
    return log, order, approval


def test_a_destructive_command_is_signed_with_the_proof_of_its_order(signer, logged):
    log, order, approval = logged
    raw = ask(command(log, order), log.evidence(order), log.evidence(approval), size=log.size)
    status, envelope = signer.sign(raw)
    assert status == 200
    key = Ed25519PublicKey.from_public_bytes(signer.command_public)
    key.verify(bytes.fromhex(envelope.signature), signed_bytes("command", envelope.body))
    assert envelope.body["kind"] == "purge"


def test_a_proof_of_another_size_says_which_one_is_wanted(signer, logged):
    log, order, approval = logged
    raw = ask(command(log, order), log.evidence(order), log.evidence(approval), size=log.size)
    log.fill(1)
    signed_up_to(signer, log)
    assert signer.sign(raw) == (409, {"code": "stale-size", "size": log.size, "root": log.root().hex()})
    unsized = ask(command(log, order), log.evidence(order, log.size - 1), log.evidence(approval))
    assert signer.sign(unsized) == (403, {"code": "order-not-in-log"})
    assert signer.sign(ask(command(log, order), log.evidence(order), log.evidence(approval), size=log.size))[0] == 200


def test_an_order_that_is_not_signed_yet_is_not_in_the_log(signer, logged):
    log, _, _ = logged
    order = log.add(order_body(), event_type=0x0501)
    assert signer.sign(ask(command(log, order), log.evidence(order))) == (403, {"code": "order-not-in-log"})
    signed_up_to(signer, log)
    assert signer.sign(ask(command(log, order), log.evidence(order)))[0] == 200


def ask_all(commands, order=None, approval=None, **more):
    """The bytes of a request to sign several."""
    one = json.loads(ask({}, order, approval, **more))
    del one["command"]
    return json.dumps({"commands": commands, **one}).encode()


def test_of_several_commands_each_is_answered_as_alone_with_one_look_at_their_order(signer, logged, monkeypatch):
    log, order, approval = logged
    good, proofs = command(log, order), (log.evidence(order), log.evidence(approval))
    several = [
        good,
        {**good, "node": APPROVAL},
        {**good, "kind": "erase"},
        {**good, "kind": "Purge"},
        {**good, "kind": "ping"},
        {**good, "expires_at": NOW - 1},
        {**good, "v": 0},
        {**good, "more": 1},
        {**good, "order_hash": "00" * 32},
        *[{**good, "step": str(n)} for n in range(100)],
    ]
    alone = [signer.sign(ask(one, *proofs, size=log.size))[1] for one in several]
    looks, verified = [], orders.verify_inclusion
    monkeypatch.setattr(orders, "verify_inclusion", lambda *given: (looks.append(1), verified(*given))[1])
    status, answer = signer.sign_all(ask_all(several, *proofs, size=log.size))
    assert (status, answer["answers"]) == (200, alone)
    assert len(looks) == 2  # the order and its approval, once
    assert [one["code"] for one in alone if isinstance(one, dict)] == [
        "order-of-another-node", "order-of-another-kind", "kind-not-allowed", "command-expired", "version-unsupported",
        "command-malformed", "order-of-another-command",
    ]  # fmt: skip


def test_several_commands_under_an_older_head_are_not_signed_at_all(signer, logged):
    log, order, approval = logged
    raw = ask_all([command(log, order)] * 2, log.evidence(order), log.evidence(approval), size=log.size)
    assert signer.sign_all(raw)[0] == 200
    log.fill(1)
    signed_up_to(signer, log)
    assert signer.sign_all(raw) == (409, {"code": "stale-size", "size": log.size, "root": log.root().hex()})


def test_several_commands_need_what_each_needs(signer, logged):
    log, order, approval = logged
    one = command(log, order)
    told = {
        "order-missing": ask_all([one]),
        "approval-missing": ask_all([one], log.evidence(order), size=log.size),
        "order-of-another-type": ask_all([one], log.evidence(approval), size=log.size),
    }
    for code, raw in told.items():
        assert signer.sign_all(raw) == (200, {"answers": [{"code": code}]})
    for wrong in (ask_all([]), ask_all([{}] * (MOST_COMMANDS + 1)), ask(one), b"{}", ask_all([1])):
        assert signer.sign_all(wrong) == (400, {"code": "command-malformed"})
    assert over_http(signer, "POST", "/v1/sign-all", ask_all([one]), TOKENS.log)[0] == 403


@pytest.mark.parametrize("change", ["order", "leaf", "more", "body"])
def test_evidence_that_is_none_is_malformed(signer, logged, change):
    log, order, approval = logged
    asked = json.loads(ask(command(log, order), log.evidence(order), log.evidence(approval)))
    if change == "order":
        asked["order"] = []
    elif change == "leaf":
        asked["order"]["leaf"] = asked["order"]["leaf"].upper()
    elif change == "more":
        asked["order"]["root"] = log.root().hex()
    else:
        asked["order"]["body"] = 1
    assert signer.sign(json.dumps(asked).encode()) == (400, {"code": "command-malformed"})


# --- heads ------------------------------------------------------------------------------


def test_a_head_is_signed_with_its_time_and_is_on_the_disk(signer):
    log = Log().fill(6)
    note = signed_up_to(signer, log)
    keys = signer.public_keys()
    opened = notes.note_open(note, [notes.vkey_parse(keys["log"]), notes.vkey_parse(keys["log_time"])], verify)
    assert notes.checkpoint_parse(opened.text) == Checkpoint(ORIGIN, 6, log.root())
    assert (opened.by, opened.times) == ([ORIGIN, ORIGIN], {ORIGIN: int(NOW)})
    assert signer.held.load().head == (6, log.root())
    assert (keys["origin"], keys["size"], keys["root"]) == (ORIGIN, 6, log.root().hex())
    assert signed_up_to(signer, log) == note, "a heartbeat at the same second is the same note"
    signer.clock = lambda: NOW + 60
    again = signed_up_to(signer, log)
    assert again.split("\n")[:5] == note.split("\n")[:5]
    assert again != note, "and later a fresh one"


@pytest.mark.parametrize(
    ("old", "new", "other", "code"),
    [(6, 4, False, "log-shrunk"), (6, 6, True, "log-fork"), (6, 9, True, "log-fork"),
     (4, 9, False, "stale-size"), (9, 9, False, "stale-size")],
)  # fmt: skip
def test_refusals_say_where_the_log_stands(signer, old, new, other, code):
    log = Log().fill(9)
    signed_up_to(signer, log, 6)
    root = log.root(6).hex()
    if other:
        log = Log()
        log.add({"forged": 1})
        log.fill(8)
    assert signer.checkpoint(json.dumps(log.head(old, new)).encode()) == (409, {"code": code, "size": 6, "root": root})
    assert signer.held.load().head.size == 6


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"old_size":0,"old_size":0,"new_size":0,"new_root":"x"}'])
def test_a_head_that_is_none_is_malformed(signer, raw):
    assert signer.checkpoint(raw) == (400, {"code": "head-malformed"})


def test_what_cannot_be_written_is_not_signed(signer):
    log = Log().fill(6)
    signed_up_to(signer, log, 3)
    older = signer.held.path.read_bytes()
    signed_up_to(signer, log, 5)
    signer.held.path.write_bytes(older)  # a backup of yesterday
    assert signer.checkpoint(json.dumps(log.head(5)).encode()) == (503, {"code": "state-not-written"})
    signer.held.path.unlink()
    assert signer.checkpoint(json.dumps(log.head(5)).encode()) == (503, {"code": "state-not-written"})


# --- exports, questions -------------------------------------------------------------------


def test_a_manifest_is_signed_by_the_export_key(signer):
    status, answer = signer.export(json.dumps({"manifest_sha256": "ab" * 32}).encode())
    assert status == 200
    key = notes.vkey_parse(signer.public_keys()["export"])
    assert key.name == f"{ORIGIN}/export"
    assert notes.note_open(answer["note"], [key], verify).text == f"kvconsole/bundle/v1\n{ORIGIN}\n{'ab' * 32}\n"
    for raw in (b"{}", b'{"manifest_sha256":"AB"}', b"x"):
        assert signer.export(raw) == (400, {"code": "export-malformed"})


WORDS = (
    "command",
    "order",
    "approval",
    "leaf",
    "proof",
    "body",
    "index",
    "size",
    "kind",
    "old_size",
    "new_size",
    "new_root",
)
QUESTION = {"console": "console.example", "nonce": "0a" * 32, "public_key": "0b" * 32, "node": "n1"}


def test_a_nodes_question_is_answered_in_a_domain_of_its_own(signer):
    status, answer = signer.prove(json.dumps(QUESTION).encode())
    assert (status, answer["public_key"]) == (200, signer.command_public.hex())
    key, signature = Ed25519PublicKey.from_public_bytes(signer.command_public), bytes.fromhex(answer["signature"])
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
    assert signer.prove(plain()) == (400, {"code": "question-malformed"})
    assert signer.prove(json.dumps(QUESTION | {"node": "\ud800"}).encode()) == (400, {"code": "question-malformed"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.sampled_from(WORDS), inner),
    max_leaves=12,
)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
@examples(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_comes_is_answered_and_nothing_is_signed(signer, raw):
    for do in (signer.sign, signer.checkpoint, signer.prove, signer.export):
        assert do(raw)[0] in (400, 403, 409)


# --- who may ask ---------------------------------------------------------------------------


def test_nobody_without_a_token_is_answered(signer):
    assert over_http(signer, "GET", "/healthz", token="") == (200, {"ok": True})
    for token in ("", "x", TOKENS.console + "x", TOKENS.log[:-1]):
        for path in ("/v1/sign", "/v1/checkpoint", "/v1/export", "/v1/prove", "/v1/other"):
            assert over_http(signer, "POST", path, plain(), token) == (401, {"code": "not-authenticated"})
        assert over_http(signer, "GET", "/v1/public-keys", token=token)[0] == 401


def test_who_writes_events_has_no_heads_signed_and_who_keeps_the_log_no_commands(signer):
    head = json.dumps(Log().fill(1).head(0)).encode()
    assert over_http(signer, "POST", "/v1/checkpoint", head) == (403, {"code": "token-of-another-use"})
    assert signer.state.head.size == 0
    for path in ("/v1/sign", "/v1/export", "/v1/prove"):
        assert over_http(signer, "POST", path, plain(), TOKENS.log) == (403, {"code": "token-of-another-use"})
    assert over_http(signer, "POST", "/v1/checkpoint", head, TOKENS.log)[0] == 200
    assert over_http(signer, "POST", "/v1/sign", plain())[0] == 200
    assert over_http(signer, "GET", "/v1/public-keys", token=TOKENS.log)[1]["size"] == 1


def test_paths_and_bodies_are_bounded(signer):
    assert over_http(signer, "POST", "/v1/sign", b"x" * (BODY_BYTES + 1)) == (413, {"code": "body-too-large"})
    for method, path in (("GET", "/v1/sign"), ("POST", "/v1/public-keys"), ("GET", "/"), ("POST", "/v1/public-key")):
        assert over_http(signer, method, path) == (404, {"code": "not-found"})
