"""Real processes for walks: started, killed and stopped for sure. Used through the fixture `console`."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kvconsole import reaper
from kvconsole.embedded import Valkey
from kvconsole.programs import PROGRAMS, Site
from kvconsole.serverprocess import CLONE, command_of, free_port

START_SECONDS = 30.0
TIERS = ("hbm=1MiB", "pinned=1MiB", "dram=4MiB", "ssd=16MiB", "remote=16MiB")


class Ended(AssertionError):
    """A process that should run has ended; the message holds the end of its log."""


class Console:
    """The processes of one console over one database."""

    def __init__(self, state: Path, *, database: Mapping[str, str], broker: Valkey) -> None:
        self.state, self.database, self.broker = state, database, broker
        self.site = Site(state, database=database, valkey_url=broker.url, kind="test")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.agents: dict[str, Path] = {}

    @property
    def env(self) -> dict[str, str]:
        """The environment of a management command run by an operator."""
        return self.site.operator_env()

    @property
    def url(self) -> str:
        """Address of the web process."""
        return self.site.url("web")

    @property
    def ingest_url(self) -> str:
        """Address of the writer."""
        return self.site.url("ingest")

    # --- processes ---

    def start(self, *names: str) -> None:
        """The named processes (web, ingest, signer, worker, beat, or an agent's name) run and answer."""
        for name in names:
            if name in self.agents:
                self._spawn(name, [sys.executable, "-m", "nodeagent", "run", "--dir", str(self.agents[name])], _plain())
            else:
                self._spawn(name, self.site.command(name), self.site.env(name))
        for name in names:
            if name in self.agents:
                self._wait_agent(name)
            elif PROGRAMS[name].ready:
                self.wait(f"{self.site.url(name)}{PROGRAMS[name].ready}", name)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """The process got this signal and has ended."""
        process = self.processes.pop(name)
        os.killpg(process.pid, number)
        process.wait(30)
        reaper.shared().forget(process.pid)

    def stop(self) -> None:
        """Nothing of this console runs."""
        for name in reversed(list(self.processes)):
            process = self.processes[name]
            if process.poll() is None:
                process.terminate()
        for name in reversed(list(self.processes)):
            process = self.processes.pop(name)
            try:
                process.wait(8)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            reaper.shared().forget(process.pid)

    def log(self, name: str) -> str:
        """What the process has printed so far."""
        path = self.state / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _spawn(self, name: str, command: list[str], env: Mapping[str, str]) -> None:
        with (self.state / f"{name}.log").open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=CLONE, env=env, start_new_session=True
            )
        reaper.shared().watch(process.pid)
        self.processes[name] = process

    def wait(self, url: str, name: str, seconds: float = START_SECONDS) -> None:
        """`url` answers 200. Raises `Ended` when the process ends first or takes too long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.processes[name].poll() is not None:
                raise Ended(f"{name} ended with {self.processes[name].returncode}:\n{self.log(name)[-3000:]}")
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise Ended(f"{name} did not answer {url} in {seconds} s:\n{self.log(name)[-3000:]}")

    # --- commands and nodes ---

    def manage(self, *arguments: str, timeout: float = 60) -> str:
        """Output of a management command run by an operator."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], capture_output=True, text=True, cwd=CLONE, env=self.env,
            timeout=timeout,
        )  # fmt: skip
        assert done.returncode == 0, f"manage.py {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def background(self, name: str, *arguments: str) -> None:
        """A management command of an operator runs under this name until it ends, or `kill` or `stop`."""
        self._spawn(name, [sys.executable, "manage.py", *arguments], self.env)

    def seed(self) -> dict[str, str]:
        """Demo tenants, models, namespaces and users exist; user name → password."""
        if "logins" not in self.__dict__:
            path = self.state / "logins"
            self.manage("seed_demo", "--logins", str(path))
            self.__dict__["logins"] = read_logins(path)
        return self.__dict__["logins"]

    def node(self, name: str, *options: str, profile: str = "ref-64", tiers: tuple[str, ...] = TIERS) -> Path:
        """A node is created, its agent enrolled and running; returns the agent's directory. Needs web and signer.

        Its tier `remote` is in the Valkey of this console.
        """
        self.nodes(name, options=options, profile=profile, tiers=tiers)
        return self.agents[name]

    def nodes(
        self, *names: str, options: tuple[str, ...] = (), profile: str = "ref-64", tiers: tuple[str, ...] = TIERS
    ) -> None:
        """As `node`, for several at once."""
        listen = {name: f"127.0.0.1:{free_port()}" for name in names}
        answer = self.manage("node_create", "--json", *[f"{name}=http://{at}" for name, at in listen.items()])
        made = json.loads(answer)
        with ThreadPoolExecutor(2) as pool:
            joined = [pool.submit(self._join, name, listen[name], made[name]["enrolment_token"],
                                  ["--profile", profile, *options, *(x for t in tiers for x in ("--tier", t))])
                      for name in names]  # fmt: skip
            for one in joined:
                one.result()
        self.start(*names)
        for name in names if "ingest" in self.processes else ():
            self._wait_allowances(name)

    def _join(self, name: str, listen: str, token: str, options: list[str]) -> None:
        directory = self.state / f"agent-{name}"
        command = ["-m", "nodeagent", "join", "--console", self.url, "--token", "-", "--dir", str(directory)]
        command += ["--name", name, "--listen", listen, "--remote", "-", *options]
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, cwd=CLONE, env=_plain(),
            input=f"{token}\n{self.broker.url}\n",
        )  # fmt: skip
        assert done.returncode == 0, f"join {name}:\n{done.stdout}{done.stderr}"
        self.agents[name] = directory

    def _wait_agent(self, name: str) -> None:
        self.wait(self._status_url(name), name)

    def _wait_allowances(self, name: str) -> None:
        """The node knows what tenants may hold there; before that it takes no block of a limited tenant."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with urllib.request.urlopen(self._status_url(name), timeout=5) as answer:
                if json.load(answer)["allowances"]:
                    return
            time.sleep(0.05)
        raise Ended(f"{name} was told no allowances in {START_SECONDS} s:\n{self.log(name)[-3000:]}")

    def _status_url(self, name: str) -> str:
        listen = json.loads((self.agents[name] / "agent.json").read_text())["listen"]
        return f"http://{listen}/v1/status"

    def login(self, page, username: str = "operator") -> None:
        """The browser page is logged in as a demo user and shows the first page."""
        log_in(page, self.url, username, self.seed()[username])


def log_in(page, url: str, username: str, password: str) -> None:
    """The browser page is logged in and shows the first page of the console at `url`."""
    page.goto(f"{url}/login")
    page.fill("input[name=username]", username)
    page.fill("input[name=password]", password)
    page.click("form button[type=submit]")
    page.wait_for_url(lambda now: "/login" not in now)


def running_under(*marks: str) -> list[str]:
    """Command lines of processes that run in one of these places or name it in arguments or environment."""
    pids = [int(p) for p in os.listdir("/proc") if p.isdigit()] if Path("/proc/self").exists() else []
    found = []
    for pid in pids:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
            where = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        command = command_of(pid)
        if pid != os.getpid() and any(m in command or m in where or f"={m}/" in environ for m in marks):
            found.append(command[:120])
    return found


def read_logins(path: Path) -> dict[str, str]:
    """The file that `seed_demo` writes: one `name password …` a line, `#` for remarks."""
    rows = [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


def _plain() -> dict[str, str]:
    """An agent's environment: nothing of the console's."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("KVC_", "DJANGO_"))} | {"PYTHONUNBUFFERED": "1"}
