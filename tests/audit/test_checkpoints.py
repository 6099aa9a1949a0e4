"""Signed heads: with a real signer and a real witness; their refusals are findings, events and a state."""

import asyncio
import contextlib
import threading
import time

import pytest
import uvicorn

from audit import checkpoints, tree
from audit.checkpoints import Signer, head_keep, head_sign
from audit.keyfiles import key_file, verify
from audit.witness.app import Witness
from audit.witness.store import Store
from kvcore import notes
from tests.catalog.farnode import RunningSigner

REFUSED = 0x0F05


@pytest.fixture
def signer(log, tmp_path, settings):
    running = RunningSigner(tmp_path)
    settings.SIGNER_URL, settings.SIGNER_LOG_TOKEN, settings.SIGNER_TOKEN = (
        running.url,
        running.log_token,
        running.token,
    )
    settings.WITNESS_URL = settings.WITNESS_VKEY = ""
    yield running
    if running.process.poll() is None:
        running.close()


@contextlib.contextmanager
def serving(application):
    """The application over HTTP in a thread; its address."""
    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


def test_an_empty_log_is_not_signed(log, signer):
    assert head_sign() == "empty"
    assert tree.checkpoint_latest() is None


def test_heads_of_a_growing_log_are_signed_and_kept(log, signer):
    key = notes.vkey_parse(signer.ask("/v1/public-keys")[1]["log"])
    for count in (1, 300, 1000):
        log.events(count)
        log.seal()
        assert head_sign() == "ok"
        head_keep(witness=False)
        found, now = tree.checkpoint_latest(), tree.tree_now()
        assert notes.note_open(found.note, [key], verify).by
        said = notes.checkpoint_parse(notes.note_text(found.note))
        assert (said.size, said.root) == (found.size, found.root) == (now.size, now.root)
    assert [size for (size,) in log.rows("SELECT size FROM audit_checkpoint ORDER BY size")] == [1, 301, 1301]
    state = tree.log_state()
    assert (state.signer, state.signed_size, state.witness, state.findings) == ("ok", 1301, "none", 0)


def test_a_heartbeat_signs_the_same_size_again(log, signer):
    log.events(5)
    log.seal()
    assert head_sign() == "ok"
    head_keep(witness=False)
    before = tree.checkpoint_latest().signed_at
    assert head_sign() == "ok"
    head_keep(witness=False)
    assert tree.checkpoint_latest().signed_at > before
    assert log.rows("SELECT count(*) FROM audit_checkpoint") == [(1,)]


def test_a_database_that_forgot_what_was_signed_is_told(log, signer):
    log.events(700)
    log.seal()
    assert head_sign() == "ok"
    log.rows("UPDATE audit_signing SET size = 0, note = '' RETURNING size")
    log.events(10)
    log.seal()
    assert head_sign() == "ok"
    assert tree.checkpoint_latest().size == 710


def test_a_log_that_was_cut_is_refused_and_work_goes_on(log, signer):
    log.events(1024 + 100)
    log.seal()
    assert head_sign() == "ok"
    log.attack(
        "DELETE FROM audit_leaf WHERE idx >= 1024",
        "UPDATE audit_tree SET size = 1024, frontier = root",
        "UPDATE audit_signing SET size = 0",
    )
    made = tree.frontier_rebuilt(1024, tree.node_reader())
    log.attack(f"UPDATE audit_tree SET frontier = '\\x{made.pack().hex()}', root = '\\x{made.root().hex()}'")
    assert head_sign() == "refused"
    state = tree.log_state()
    assert (state.signer, state.signer_why, state.findings) == ("refused", "log-shrunk", 1)
    assert log.findings() == [("signer-refused", 1024)]
    assert log.told(REFUSED) == 1
    assert head_sign() == "refused"
    assert log.told(REFUSED) == 1
    log.events(3)
    assert log.seal() == 4


def test_a_log_that_was_written_anew_is_refused(log, signer):
    log.events(40)
    log.seal()
    assert head_sign() == "ok"
    log.attack(
        "UPDATE audit_leaf SET data = set_byte(data, 80, 7) WHERE idx = 11",
        "UPDATE audit_leaf SET hash = sha256('\\x00'::bytea || data) WHERE idx = 11",
    )
    made = tree.frontier_rebuilt(40, tree.node_reader())
    log.attack(f"UPDATE audit_tree SET frontier = '\\x{made.pack().hex()}', root = '\\x{made.root().hex()}'")
    log.events(5)
    log.seal()
    assert head_sign() == "refused"
    assert tree.log_state().signer_why == "log-fork"


def test_a_tree_that_is_not_that_of_its_leaves_is_not_shown_to_the_signer(log, signer):
    log.events(40)
    log.seal()
    log.attack("UPDATE audit_tree SET root = set_byte(root, 0, get_byte(root, 0) # 1)")
    assert head_sign() == "refused"
    assert tree.log_state().signer_why == "log-torn"
    log.events(1)
    log.seal()
    assert head_sign() == "ok"
    assert log.findings() == []


def test_a_signer_that_is_away_is_a_state_and_no_finding(log, signer):
    log.events(1)
    log.seal()
    signer.close(kill=True)
    assert head_sign() == "away"
    state = tree.log_state()
    assert (state.signer, state.findings, log.told(REFUSED)) == ("away", 0, 0)


def test_a_witness_cosigns_what_is_kept(log, signer, settings, tmp_path):
    keys = signer.ask("/v1/public-keys")[1]
    logs = {keys["origin"]: [notes.vkey_parse(keys["log"])]}
    key = key_file(tmp_path / "witness.key", make=True)
    witness = Witness(name="witness.example/w1", key=key, store=Store(tmp_path / "witness.sqlite3"), logs=logs)
    with serving(witness) as url:
        settings.WITNESS_URL, settings.WITNESS_VKEY = url, witness.vkey.text
        for count in (300, 20):
            log.events(count)
            log.seal()
            assert head_sign() == "ok"
            head_keep(witness=True)
            assert tree.log_state().witness == "ok"
    for (note,) in log.rows("SELECT note FROM audit_checkpoint"):
        assert notes.note_open(note, [witness.vkey], verify).by == ["witness.example/w1"]
    log.events(1)
    log.seal()
    assert head_sign() == "ok"
    head_keep(witness=True)
    assert tree.log_state().witness == "away"
    assert tree.checkpoint_latest().size == 321


def test_the_thread_signs_soon_after_the_log_grew_and_each_heartbeat(log, signer, monkeypatch):
    monkeypatch.setattr(checkpoints, "HEARTBEAT_SECONDS", 1.5)
    log.events(2)
    log.seal()
    thread_of = Signer(lambda: True)
    thread = threading.Thread(target=thread_of.run)
    thread.start()
    try:
        thread_of.grown.set()
        _until(lambda: tree.log_state().signed_size == 2)
        first = tree.log_state().signed_at
        _until(lambda: tree.log_state().signed_at > first)
        log.events(2)
        log.seal()
        begin = time.monotonic()
        thread_of.grown.set()
        _until(lambda: tree.log_state().signed_size == 4)
        assert time.monotonic() - begin < 5
    finally:
        thread_of.stopping.set()
        thread.join(10)


def _until(true, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
