"""The witness as a process, over a real signer's log: killed, asked by two, and shown a signer that was set back."""

import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from audit import signing
from audit.keyfiles import verify
from audit.signing import NotAnswered
from kvconsole.serverprocess import free_port
from kvcore import notes, proofs
from tests.architecture.tree import CLONE
from tests.audit.signer.making import Log, a_signer, signed_up_to

NAME = "witness.example/w1"


@pytest.fixture
def start(tmp_path, settings):
    """`start(vkey)` → a running witness that knows this log; settings lead to it."""
    started = []

    def go(vkey):
        port = free_port()
        env = {"PATH": os.environ["PATH"], "KVC_ENV": "test", "KVC_WITNESS_NAME": NAME, "KVC_WITNESS_LOGS": vkey,
               "KVC_WITNESS_KEY_FILE": str(tmp_path / "witness.key"),
               "KVC_WITNESS_STATE": str(tmp_path / "witness.db")}  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "manage.py", "witness", "--port", str(port)], cwd=CLONE, env=env, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        started.append(process)
        settings.WITNESS_URL = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{settings.WITNESS_URL}/vkey", timeout=2) as answer:
                    settings.WITNESS_VKEY = answer.read().decode().strip()
                    return process
            except OSError:
                assert process.poll() is None, process.communicate()[0].decode()
                time.sleep(0.05)
        raise AssertionError("the witness did not answer")

    yield go
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=10)


def cosigned(log, old, size, note):
    return signing.cosign(old_size=old, proof=proofs.consistency(old, size, log.node), note=note)


def test_it_cosigns_a_real_log_and_notices_a_signer_that_was_set_back(start, settings, tmp_path):
    signer, log = a_signer(tmp_path), Log().fill(12)
    keys = signer.public_keys()
    start(keys["log"])
    note = signed_up_to(signer, log)
    line = cosigned(log, 0, 12, note)
    known = [notes.vkey_parse(keys["log"]), notes.vkey_parse(settings.WITNESS_VKEY)]
    opened = notes.note_open(note + line, known, verify)
    assert opened.by == [keys["origin"], NAME]
    assert abs(opened.times[NAME] - time.time()) < 60
    assert cosigned(log, 3, 12, note) == NotAnswered("stale-size", size=12)
    # The signer's own state is set back, and signs another history: the witness does not.
    signer.held.close()
    (tmp_path / "state.json").unlink()
    (tmp_path / "log.key").rename(tmp_path / "kept")
    forger = a_signer(tmp_path)
    forger.keys = forger.keys._replace(log=signer.keys.log)
    forger.state = signer.state._replace(head=signer.state.head._replace(size=0, root=proofs.EMPTY_ROOT))
    forger.held.save(forger.state, before=forger.held.load())
    forged = Log().fill(11)
    forged.add({"forged": True})
    forged.fill(4)
    lie = signed_up_to(forger, forged)
    assert notes.note_open(lie, known[:1], verify).by == [keys["origin"]], "the log's key signed it"
    refused = cosigned(forged, 12, 16, lie)
    assert (refused.code, refused.final) == ("log-fork", True)
    assert cosigned(forged, 12, 12, signed_of(forger, forged, 12)).code == "log-fork"
    assert cosigned(log, 12, 12, note).startswith("— ")
    forger.held.close()


def signed_of(signer, log, size):
    """A note of this size, whatever was signed before: what somebody with the key can make."""
    text = notes.checkpoint_text(notes.Checkpoint(signer.state.origin, size, log.root(size)))
    return notes.note_sign(text, signer.state.origin, notes.ED25519, signer.state.key, signer.keys.log.sign)


def test_an_unknown_log_or_key_is_told_so(start, tmp_path):
    signer, log = a_signer(tmp_path), Log().fill(3)
    start(signer.public_keys()["log"])
    signer.state = signer.state._replace(origin="console.example/log/us/1")
    assert cosigned(log, 0, 3, signed_of(signer, log, 3)).code == "log-unknown"
    signer.state = signer.state._replace(origin="console.example/log/eu/1", key=bytes(32))
    assert cosigned(log, 0, 3, signed_of(signer, log, 3)).code == "log-key-unknown"
    signer.held.close()


def test_killed_at_any_moment_it_never_cosigns_two_histories(start, settings, tmp_path):
    signer, log = a_signer(tmp_path), Log().fill(400)
    forged = Log().fill(1)
    forged.add({"forged": 1})
    forged.fill(400)
    last, rng = 0, random.Random(3)
    for _ in range(3):
        process = start(signer.public_keys()["log"])
        if last > 1:
            assert cosigned(forged, last, last, signed_of(signer, forged, last)).code in ("log-fork", "stale-size")
        timer = threading.Timer(rng.uniform(0.1, 0.6), process.kill)
        timer.start()
        while last < log.size - 2:
            answer = cosigned(log, last, last + 1, signed_of(signer, log, last + 1))
            if isinstance(answer, str):
                last += 1
            elif answer.code == "stale-size":
                assert last <= answer.size <= last + 1, "what left is remembered; what is remembered may not have left"
                last = answer.size
            else:
                assert answer.code == "witness-unavailable", answer
                break
        timer.join()
        process.communicate(timeout=10)
    assert last > 3
    signer.held.close()


@pytest.fixture
def configured(settings, tmp_path):
    settings.WITNESS_NAME, settings.WITNESS_LOGS = NAME, []
    settings.WITNESS_KEY_FILE, settings.WITNESS_STATE = str(tmp_path / "k"), str(tmp_path / "s")
    return settings


@pytest.mark.parametrize(
    ("change", "word"),
    [({"WITNESS_NAME": ""}, "KVC_WITNESS_NAME"), ({"WITNESS_STATE": ""}, "KVC_WITNESS_STATE"), ({}, "names no log"),
     ({"WITNESS_LOGS": ["nonsense"]}, "key-malformed"), ({"WITNESS_STATE": "/nonexistent/s"}, "unable to open")],
)  # fmt: skip
def test_it_does_not_start_without_what_it_needs(configured, change, word):
    for name, value in change.items():
        setattr(configured, name, value)
    with pytest.raises(CommandError, match=word):
        call_command("witness")


def test_its_key_is_made_by_hand_in_production(configured, monkeypatch):
    monkeypatch.setenv("KVC_ENV", "prod")
    with pytest.raises(CommandError, match="No such file"):
        call_command("witness")
    out = StringIO()
    call_command("witness", "--init", stdout=out)
    assert notes.vkey_parse(out.getvalue()).name == NAME
