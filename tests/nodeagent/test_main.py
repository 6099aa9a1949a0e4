"""The agent as a process: started, killed at any moment, started again."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import httpx
import msgspec
import pytest

from kvcore.erasure import object_ref, objects_root
from nodeagent.__main__ import main
from nodeagent.config import Home
from tests.nodeagent.conftest import eventually
from tests.nodeagent.farside import held
from tests.nodeagent.test_agent import crowd, drive, obeyed, order, receipt_of

CLONE = Path(__file__).resolve().parents[2]


class Process:
    """`python -m nodeagent run` with the calls of a driver."""

    def __init__(self, home, *options, stdin=subprocess.DEVNULL):
        self.home, self.log = home, home.path / "log"
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nodeagent", "run", "--dir", str(home.path), *options],
                cwd=CLONE, stdin=stdin, stdout=out, stderr=out,
            )  # fmt: skip
        self.http = httpx.Client(base_url=f"http://{home.load().listen}", trust_env=False, timeout=10)
        eventually(self.up, 30)

    def up(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.http.get("/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    def inventory(self):
        token = self.home.read_secret("drive.token").decode()
        return self.http.get("/v1/inventory", headers={"authorization": f"Bearer {token}"}).json()

    def status(self):
        return self.http.get("/v1/status").json()

    def end(self, number=signal.SIGKILL):
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(15)


@pytest.fixture
def start():
    processes = []

    def make(home, *options, **more):
        processes.append(Process(home, *options, **more))
        return processes[-1]

    yield make
    for p in processes:
        p.end()


@pytest.mark.walk
def test_killed_at_any_moment_the_console_ends_with_what_is_held(far, joined, start):
    ns, home = far.namespace(), joined()
    for life in range(3):
        agent = start(home)
        began = time.monotonic()
        while time.monotonic() - began < 0.6 + 0.3 * life:
            drive(agent, far, ns, 4, seed=int(time.monotonic() * 1000) % 90 + 2, shared=1, own=4, output=40)
        agent.end(signal.SIGKILL)
    agent = start(home)
    eventually(lambda: agent.status()["idle"], 20)
    assert far.believed("reference") == held(agent.inventory(), "reference")
    assert {x[0] for x in far.believed("reference")} == {"ssd"}
    assert drive(agent, far, ns, 2).status_code == 200
    assert agent.end(signal.SIGTERM) == 0
    text = agent.log.read_text()
    assert text.count("n1 begins: node ") == 4
    assert text.count("n1 ends after ") == 1
    assert text.rstrip().endswith("s: it was told to")
    assert len(text.splitlines()) < 30
    assert ns.hex() not in text
    assert "kvc_node" not in text


@pytest.mark.walk
@pytest.mark.parametrize("fencing", [True, False], ids=["cleared on return", "found again"])
def test_killed_in_the_middle_of_an_erase_it_ends_with_the_same_receipt(far, joined, start, fencing):
    ns, home, step = far.namespace(), joined(), str(uuid.uuid4())
    agent = start(home)
    crowd(agent, far, ns)
    keys = {x[3] for x in held(agent.inventory(), "reference") if x[0] == "ssd"}
    slow = {"rate_bytes_per_s": len(keys) * 1104 // 20, "fencing": fencing}
    assert order(agent, far, "erase", "ssd", ns, step=step, **slow).status_code == 202
    eventually(lambda: len({x for x in held(agent.inventory(), "reference") if x[0] == "ssd"}) < len(keys))
    agent.end(signal.SIGKILL)
    again = start(home)
    eventually(lambda: again.status()["idle"])
    assert again.status()["open_steps"] == 1
    assert (again.status()["cleared_blocks"] != {}) is fencing
    answer = obeyed(again, far, "erase", "ssd", ns, step=step)
    detail = receipt_of(answer).detail
    assert detail["objects_root"] == objects_root(object_ref("0" * 64, key) for key in keys)
    assert detail["blocks"] == len(keys)
    assert not list(home.ssd_dir.iterdir())
    assert again.status()["open_steps"] == 0
    assert order(again, far, "erase", "ssd", ns, step=step).content == answer.content


@pytest.mark.walk
def test_supervised_it_ends_when_the_pipe_closes(joined, start):
    read, write = os.pipe()
    agent = start(joined(), "--supervised", stdin=read)
    os.close(read)
    assert agent.process.poll() is None
    os.close(write)
    assert agent.process.wait(15) == 0


@pytest.mark.walk
def test_status_and_inventory_print_what_the_running_agent_says(far, joined, start, capsys):
    home = joined()
    assert main(["status", "--dir", str(home.path)]) == 1
    assert "no agent answers" in capsys.readouterr().err
    agent = start(home)
    drive(agent, far, far.namespace(), 1)
    assert main(["status", "--dir", str(home.path)]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["tiers"]["hbm"]["emulated"] is True
    assert main(["inventory", "--dir", str(home.path)]) == 0
    assert json.loads(capsys.readouterr().out)["lists"][0]["tier"] == "hbm"
    for command in ("status", "inventory"):  # who reads it has enough at once
        line = [sys.executable, "-m", "nodeagent", command, "--dir", str(home.path)]
        with subprocess.Popen(line, cwd=CLONE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cut:
            cut.stdout.close()
            assert cut.stderr.read() == b""
    token = home.read_secret("drive.token").decode()
    packed = agent.http.get(
        "/v1/inventory", headers={"authorization": f"Bearer {token}", "accept": "application/msgpack"}
    )
    assert msgspec.msgpack.decode(packed.content)["node"] == far.node


def test_join_from_the_command_line(far, tmp_path, capsys, monkeypatch):
    directory = tmp_path / "a"
    line = [
        "join",
        "--console",
        far.url,
        "--dir",
        str(directory),
        "--name",
        "n9",
        "--profile",
        "ref-64",
        "--tier",
        "hbm=1MiB",
    ]
    assert main([*line, "--token", far.enrolment_token, "--ranks", "2"]) == 0
    assert far.enrolled["engine"]["dp_size"] == 2
    assert "n9 is enrolled" in capsys.readouterr().out
    assert main([*line, "--token", far.enrolment_token]) == 1
    assert "belongs to an agent" in capsys.readouterr().err
    line[4] = str(tmp_path / "twice")
    assert main([*line, "--token", far.enrolment_token, "--tier", "hbm=2MiB"]) == 1
    assert "given twice" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("no-token\n"))
    line[4] = str(tmp_path / "b")
    assert main([*line, "--token", "-"]) == 1
    assert main(["run", "--dir", str(tmp_path / "none")]) == 1
    with pytest.raises(SystemExit):
        main(["dance"])


def join_line(far, directory, *more):
    line = ["join", "--console", far.url, "--dir", str(directory), "--name", "n9", "--profile", "ref-64"]
    return [*line, "--tier", "hbm=1MiB", "--tier", "remote=1MiB", *more]


@pytest.mark.parametrize("url", ["redis://:s3cret@127.0.0.1:1/0", "redis://127.0.0.1:1/0?password=s3cret"])
def test_a_password_on_the_command_line_is_refused_before_anything_is_sent(far, tmp_path, capsys, url):
    line = join_line(far, tmp_path / "a", "--token", far.enrolment_token)
    assert main([*line, "--remote", url]) == 1
    said = capsys.readouterr().err
    assert "nothing was sent and nothing was written" in said
    assert "--remote-file" in said
    assert "s3cret" not in said
    assert not far.counts
    assert not (tmp_path / "a").exists()


def test_the_remote_url_comes_from_standard_input_or_a_private_file(far, tmp_path, capsys, monkeypatch):
    url = "redis://:s3cret@127.0.0.1:1/0"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{far.enrolment_token}\n{url}\n"))
    assert main(join_line(far, tmp_path / "a", "--token", "-", "--remote", "-")) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{url}\n"))
    assert main(join_line(far, tmp_path / "b", "--token", far.enrolment_token, "--remote", "-")) == 0
    file = tmp_path / "url"
    file.write_text(url + "\n")
    file.chmod(0o600)
    by_file = ("--token", far.enrolment_token, "--remote-file", str(file))
    assert main(join_line(far, tmp_path / "c", *by_file)) == 0
    plain = ("--token", far.enrolment_token, "--remote", "redis://127.0.0.1:1/0")
    assert main(join_line(far, tmp_path / "d", *plain)) == 0
    assert [Home(tmp_path / d).load().remote_url for d in "abcd"] == [url, url, url, "redis://127.0.0.1:1/0"]
    file.chmod(0o644)
    assert main(join_line(far, tmp_path / "e", *by_file)) == 1
    assert "mode 0644" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(join_line(far, tmp_path / "e", "--token", far.enrolment_token, "--remote", "-")) == 1
    assert "no URL" in capsys.readouterr().err
    assert main(join_line(far, tmp_path / "e", "--token", far.enrolment_token, "--remote", "redis://[")) == 1
    assert not (tmp_path / "e").exists()


def test_listen_has_its_own_command_line(capsys):
    with pytest.raises(SystemExit):
        main(["listen", "--help"])
    assert "usage" in capsys.readouterr().out
