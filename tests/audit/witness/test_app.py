"""The witness's answers, asked directly."""

import asyncio
from hashlib import sha256

import pytest

from audit.keyfiles import verify
from audit.witness.app import BODY_BYTES, Witness
from audit.witness.store import Store
from kvcore import notes
from tests.audit.signer.making import NOW, ORIGIN, Log
from tests.audit.witness.asking import LOGS, OTHER_KEY, body, note_of

LOG = Log().fill(30)


@pytest.fixture
def witness(tmp_path):
    store = Store(tmp_path / "w")
    yield Witness(name="witness.example/w1", key=OTHER_KEY, store=store, logs=LOGS, clock=lambda: NOW)
    store.close()


def over_http(witness, method, path, raw=b""):
    sent = []

    async def receive():
        return {"type": "http.request", "body": raw, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(witness({"type": "http", "method": method, "path": path, "headers": []}, receive, send))
    return sent[0]["status"], sent[1]["body"].decode(), dict(sent[0]["headers"])[b"content-type"].decode()


def test_a_cosignature_holds_and_says_when(witness):
    status, line, _ = over_http(witness, "POST", "/add-checkpoint", body(LOG, 0, 9))
    assert status == 200
    opened = notes.note_open(note_of(LOG, 9) + line, [witness.vkey], verify)
    assert (opened.by, opened.times) == (["witness.example/w1"], {"witness.example/w1": int(NOW)})
    witness.clock = lambda: NOW + 60
    status, again, _ = over_http(witness, "POST", "/add-checkpoint", body(LOG, 9, 9))
    assert (status, again != line) == (200, True), "a heartbeat has a time of its own"
    assert over_http(witness, "POST", "/add-checkpoint", body(LOG, 9, 20))[0] == 200


def test_the_size_it_knows_is_said_as_the_specification_has_it(witness):
    witness.add_checkpoint(body(LOG, 0, 9))
    assert over_http(witness, "POST", "/add-checkpoint", body(LOG, 4, 12)) == (409, "9\n", "text/x.tlog.size")
    assert over_http(witness, "POST", "/add-checkpoint", b"old")[0] == 400


def test_a_file_that_cannot_be_written_gives_no_signature(witness):
    witness.add_checkpoint(body(LOG, 0, 9))
    witness.store.connection.execute("PRAGMA query_only = on")
    assert over_http(witness, "POST", "/add-checkpoint", body(LOG, 9, 20))[0] == 503
    witness.store.connection.execute("PRAGMA query_only = off")
    assert over_http(witness, "POST", "/add-checkpoint", body(LOG, 9, 20))[0] == 200


def test_who_lost_what_was_signed_finds_it_here(witness):
    path = f"/{sha256(ORIGIN.encode()).hexdigest()}/checkpoint"
    assert over_http(witness, "GET", path)[0] == 404
    witness.add_checkpoint(body(LOG, 0, 9))
    assert over_http(witness, "GET", path)[1] == note_of(LOG, 9)
    assert over_http(witness, "GET", "/vkey")[1] == witness.vkey.text + "\n"
    assert over_http(witness, "GET", "/healthz")[0] == 200
    for method, other in (("GET", "/add-checkpoint"), ("GET", "/"), ("PUT", "/add-checkpoint"), ("POST", "/vkey")):
        assert over_http(witness, method, other)[0] == 404
    assert over_http(witness, "POST", "/add-checkpoint", b"x" * (BODY_BYTES + 1))[0] == 413
