"""`kvc gateway run` as a process of its own."""

import json
import os
import subprocess
import sys
import time

import httpx

from kvconsole import reaper
from kvconsole.cli.gateway_config import key_hash
from kvconsole.serverprocess import CLONE, free_port

KEYS = {"sk-acme": "acme", "sk-globex": "globex"}


class Process:
    """A gateway; `url` says where. `log` is all it has printed."""

    def __init__(self, home, *, console, router, engines, token, keys=KEYS, **more):
        home.mkdir(parents=True, exist_ok=True)
        port = free_port()
        files = {"token": token, "keys": "".join(f"{key_hash(k)} {t}\n" for k, t in keys.items())}
        for name, text in files.items():
            (home / name).write_text(text)
            (home / name).chmod(0o600)
        said = {"console_url": console, "router_url": router, "engines": engines, "listen": f"127.0.0.1:{port}",
                "token_file": str(home / "token"), "keys_file": str(home / "keys"), **more}  # fmt: skip
        (home / "gateway.json").write_text(json.dumps(said))
        self.url, self._log = f"http://127.0.0.1:{port}", home / "log"
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(CLONE)}
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kvconsole.cli.main", "gateway", "run", "--config", str(home / "gateway.json")],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=CLONE, env=env, start_new_session=True,
            )  # fmt: skip
        reaper.shared().watch(self.process.pid)
        self.client = httpx.Client(
            base_url=self.url, timeout=20, limits=httpx.Limits(max_keepalive_connections=0), trust_env=False
        )
        deadline = time.monotonic() + 30
        while not self.answers():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def answers(self):
        try:
            return self.client.get("/health").status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def log(self):
        return self._log.read_text(errors="replace")

    def health(self):
        return self.client.get("/health").json()

    def counts(self):
        return self.health()["counts"]

    def until(self, what, seconds=10):
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, (self.health(), self.log)
            time.sleep(0.02)

    def ask(self, path="/v1/completions", *, key="sk-acme", headers=None, **body):
        said = {"model": "tiny", "max_tokens": 3} | ({} if "messages" in body else {"prompt": list(range(64))}) | body
        return self.client.post(path, json=said, headers={"Authorization": f"Bearer {key}", **(headers or {})})

    def close(self):
        self.client.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        reaper.shared().forget(self.process.pid)
