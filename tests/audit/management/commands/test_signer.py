"""The signer as a process: alone over its state, killed, set back, and without what belongs to it."""

import base64
import http.client
import json
import random
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from audit.keyfiles import key_file
from audit.signer.app import BODY_BYTES
from audit.signer.state import StateFile
from tests.architecture.tree import CLONE
from tests.audit.signer.making import Log, a_signer, signed_up_to
from tests.audit.signer.test_app import QUESTION, plain
from tests.catalog.farnode import RunningSigner

LOG = Log().fill(3000)


@pytest.fixture
def start(tmp_path):
    """`start()` → a signer over the directory of this test; what still runs at the end is ended."""
    started = []

    def go():
        started.append(RunningSigner(tmp_path))
        return started[-1]

    yield go
    for running in started:
        if running.process.poll() is None:
            running.close()


def refused(directory, *arguments):
    """What a signer says that does not start."""
    done = subprocess.run(
        [sys.executable, "manage.py", "signer", "--port", "1", *arguments], cwd=CLONE, env=RunningSigner.env(directory),
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_it_runs_without_a_database_and_answers_who_knows_the_token(start, tmp_path):
    running, now = start(), time.time()
    good = plain(issued_at=now, expires_at=now + 60)
    assert running.ask("/v1/sign", good)[0] == 200
    purge = plain(kind="purge", issued_at=now, expires_at=now + 60)
    assert running.ask("/v1/sign", purge) == (403, {"code": "order-missing"})
    for token in ("x", running.token + "x"):
        assert running.ask("/v1/sign", good, token) == (401, {"code": "not-authenticated"})
        assert running.ask("/v1/public-keys", None, token)[0] == 401
    assert running.ask("/v1/prove", QUESTION)[0] == 200
    assert running.ask("/v1/sign", b"x" * (BODY_BYTES + 1))[0] == 413
    keys = running.ask("/v1/public-keys")[1]
    assert (tmp_path / "command.key.pub").read_text().strip() == keys["command"]
    assert keys["origin"] == "127.0.0.1/log/main/1"
    for name in ("command.key", "log.key", "export.key", "signer.json"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_second_one_is_refused_and_takes_over_when_the_first_was_killed(start, tmp_path):
    first = start()
    assert first.head(LOG.head(0, 5))[0] == 200
    assert "another signer works with this state" in refused(tmp_path)
    first.close(kill=True)
    second = start()
    assert second.ask("/v1/public-keys")[1]["size"] == 5
    assert second.head(LOG.head(3, 3)) == (409, {"code": "log-shrunk", "size": 5, "root": LOG.root(5).hex()})


def test_a_database_of_yesterday_and_a_forged_one_meet_a_signer_of_today(start):
    running = start()
    assert running.head(LOG.head(0, 40))[0] == 200
    forged = Log().fill(20)
    forged.add({"forged": True})
    forged.fill(40)
    assert running.head(LOG.head(30, 30))[1]["code"] == "log-shrunk"
    assert running.head(LOG.head(30, 50))[1]["code"] == "stale-size"
    for old in (0, 20, 40):
        assert running.head(forged.head(old, 40))[1]["code"] == "log-fork"
    assert running.head(forged.head(40, 60))[1]["code"] == "log-fork"
    assert running.head(LOG.head(40, 60))[0] == 200


def test_two_at_once_are_two_heads_of_one_log(start):
    """Many ask for heads at once, of the log and of forged ones: what is signed is one history."""
    running, notes = start(), []
    forged = [Log().fill(n) for n in (2, 5, 9)]
    for n, other in enumerate(forged):
        other.add({"forged": n})
        other.fill(60)

    def ask(n):
        log = LOG if n % 2 else forged[n % 3]
        size = running.ask("/v1/public-keys")[1]["size"]
        return log, running.head(log.head(min(size, 60), 60 if n % 2 == 0 else min(size + n % 7 + 1, 3000)))

    assert running.head(LOG.head(0, 10))[0] == 200
    with ThreadPoolExecutor(8) as pool:
        for log, (status, answer) in pool.map(ask, range(200)):
            assert status in (200, 409)
            if status == 200:
                assert log is LOG
                notes.append(answer["note"])
    signed = {int(note.split("\n")[1]): note.split("\n")[2] for note in notes}
    assert len(signed) > 1
    assert all(LOG.head(0, size)["new_root"] == base64.b64decode(root).hex() for size, root in signed.items())


def test_killed_at_any_moment_it_never_forgets_what_it_signed(start, tmp_path):
    """kill -9 while heads are signed, again and again: what left is in the state, and the log goes on."""
    seen, rng = 0, random.Random(7)
    for _ in range(4):
        running = start()
        size = running.ask("/v1/public-keys")[1]["size"]
        assert size >= seen, "a signature left that the state does not know"
        assert size == 0 or running.head(LOG.head(size - 1, size - 1))[1]["code"] == "log-shrunk"
        timer = threading.Timer(rng.uniform(0.05, 0.5), running.process.kill)
        timer.start()
        try:
            while size < LOG.size:
                status, answer = running.head(LOG.head(size, size + 1))
                assert status == 200, answer
                size = seen = size + 1
        except (OSError, http.client.HTTPException, ValueError):  # cut off anywhere: not an answer, or half of one
            pass
        timer.join()
        running.process.communicate(timeout=10)
    held = StateFile(tmp_path / "signer.json")
    assert seen <= held.load().head.size <= seen + 1
    held.close()
    assert seen


DYING = """
import json, os, signal, sys
from pathlib import Path
from tests.audit.signer.making import Log, a_signer
class Dies:
    def sign(self, message):
        os.kill(os.getpid(), signal.SIGKILL)
signer = a_signer(Path(sys.argv[1]))
signer.keys = signer.keys._replace(log=Dies())
signer.checkpoint(json.dumps(Log().fill(9).head(0)).encode())
"""


def test_killed_between_disk_and_signature_it_signs_that_head_and_no_other(tmp_path):
    done = subprocess.run([sys.executable, "-c", DYING, str(tmp_path)], cwd=CLONE, timeout=60)
    assert done.returncode == -9
    signer = a_signer(tmp_path)
    assert signer.state.head == (9, LOG.root(9))
    other = Log().fill(8)
    other.add({"another": 1})
    assert signer.checkpoint(json.dumps(other.head(9, 9)).encode())[1]["code"] == "log-fork"
    assert signed_up_to(signer, LOG, 9).split("\n")[1] == "9"
    signer.held.close()


@pytest.fixture
def configured(settings, tmp_path):
    settings.SIGNER_TOKEN, settings.SIGNER_LOG_TOKEN = "t" * 40, "g" * 40
    settings.COMMAND_KEY_FILE, settings.LOG_KEY_FILE = str(tmp_path / "command.key"), str(tmp_path / "log.key")
    settings.EXPORT_KEY_FILE, settings.SIGNER_STATE = str(tmp_path / "export.key"), str(tmp_path / "signer.json")
    return settings


def test_what_does_not_belong_together_does_not_start(start, tmp_path, configured):
    running = start()
    running.head(LOG.head(0, 5))
    running.close()

    def no(word):
        with pytest.raises(CommandError, match=word):
            call_command("signer", port=1)

    state, key = tmp_path / "signer.json", tmp_path / "log.key"
    whole, good = state.read_bytes(), key.read_bytes()
    state.write_bytes(whole.replace(b'"size":5', b'"size":4'))
    no("the signer's state is damaged")
    state.unlink()
    no("what it signed last is not")
    assert not state.exists()
    state.write_bytes(whole)
    no("0600")
    state.chmod(0o600)
    key.unlink()
    key_file(key, make=True)
    no("not the key that signed")
    key.write_bytes(good)
    assert start().head(LOG.head(5, 9))[0] == 200


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"SIGNER_TOKEN": ""}, "KVC_SIGNER_TOKEN"), ({"SIGNER_TOKEN": "short"}, "KVC_SIGNER_TOKEN"),
        ({"SIGNER_LOG_TOKEN": ""}, "KVC_SIGNER_LOG_TOKEN"), ({"SIGNER_LOG_TOKEN": "t" * 40}, "must differ"),
        ({"COMMAND_KEY_FILE": ""}, "KVC_COMMAND_KEY_FILE"), ({"LOG_KEY_FILE": ""}, "KVC_LOG_KEY_FILE"),
        ({"SIGNER_STATE": "/nonexistent/s"}, "No such file"),
    ],
)  # fmt: skip
def test_it_does_not_start_without_tokens_keys_and_state(configured, change, word):
    for name, value in change.items():
        setattr(configured, name, value)
    with pytest.raises(CommandError, match=word):
        call_command("signer")


def run(*arguments):
    out = StringIO()
    call_command("signer", *arguments, stdout=out)
    return out.getvalue()


def test_in_production_keys_are_made_by_hand_once(configured, monkeypatch, tmp_path):
    monkeypatch.setenv("KVC_ENV", "prod")
    configured.CONSOLE_URL, configured.LOG_REGION = "https://console.example.org", "eu"
    with pytest.raises(CommandError, match="No such file"):
        call_command("signer")
    said = run("--init", "--epoch", "3")
    assert "origin console.example.org/log/eu/3" in said
    assert run("--init") == said
    assert (tmp_path / "command.key.pub").read_text().strip() in said


def test_a_new_epoch_and_a_lost_state_from_the_command_line(configured, tmp_path):
    run("--init")
    empty = {"size": 0, "root": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
    order = {"v": 1, "origin": "127.0.0.1/log/main/1", "reason": "restore", "approvers": ["ab" * 16, "cd" * 16],
             "approval": "01a22c14-8067-731b-9701-94e98a5d88ad", "kept": empty}  # fmt: skip
    (tmp_path / "order.json").write_text(json.dumps(order))
    assert run("--new-epoch", str(tmp_path / "order.json")).startswith("kvconsole/epoch/v1\nold 127.0.0.1/log/main/1+")
    with pytest.raises(CommandError, match="the order is one of"):
        run("--new-epoch", str(tmp_path / "order.json"))
    assert "origin 127.0.0.1/log/main/2" in run("--init")
    (tmp_path / "note").write_text("nothing")
    with pytest.raises(CommandError, match="no checkpoint"):
        run("--adopt", str(tmp_path / "note"))
    with pytest.raises(CommandError, match="No such file"):
        run("--adopt", str(tmp_path / "missing"))
