"""`make up`: the whole console with a reference fleet under one supervisor, from nothing but the wheels.

Order: servers, database, seed, console, agents, replay. The address is printed when the first page is really served.
State is in `.dev`, readable by nobody else; one supervisor at a time holds its lock.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from kvconsole import reaper
from kvconsole.embedded import Postgres, Valkey
from kvconsole.programs import PROGRAMS, PYTHON, Site
from kvconsole.serverprocess import CLONE, ServerFailed, clone_home, free_port
from kvconsole.supervisor import Child, Console, Supervisor

DATABASE = "kvconsole"
READY_SECONDS = 120.0
FLEET = {
    "fra-p1": "region=eu-fra,zone=fra-a,rack=r1,role=prefill",
    "fra-p2": "region=eu-fra,zone=fra-b,rack=r2,role=prefill",
    "fra-d1": "region=eu-fra,zone=fra-a,rack=r3,role=decode",
    "ams-m1": "region=eu-ams,zone=ams-a,rack=r1,role=mixed",
}
TENANTS = "acme-code,borealis-bank,cobalt-support,delta-clinic"
"""Those that `seed_demo` makes."""
TIERS = ("hbm=32MiB", "pinned=16MiB", "dram=64MiB", "ssd=256MiB", "remote=96MiB")
"""Small enough that marks are reached within minutes and four nodes fit beside everything else."""


class NotStarted(RuntimeError):
    """A step of the start failed; the message says which and why."""


class Stopped(Exception):
    """Somebody asked to stop while a step of the start was running."""


class Dev:
    """One development console over one state directory."""

    def __init__(self, state: Path, console: Console) -> None:
        self.state, self.console = state, console
        self.logs = state / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.supervisor = Supervisor(console)
        self.postgres = Postgres(state / "postgres", log=self.logs / "postgres.log")
        self.valkey = Valkey(state / "valkey", log=self.logs / "valkey.log")
        self.remote = Valkey(state / "remote", persist=False, log=self.logs / "remote.log")
        self.site: Site | None = None
        self.known: dict[str, str] = _read_json(state / "known.json")

    # --- steps ---

    def start_servers(self) -> None:
        """PostgreSQL and both Valkeys answer."""
        servers = {"postgres": self.postgres, "valkey": self.valkey, "remote": self.remote}
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(lambda server: server.start(), servers.values()))
        self.supervisor.servers.update(servers)
        self.site = Site(self.state, database=self.postgres.env(DATABASE), valkey_url=self.valkey.url)
        lines = [f"export {k}={shlex.quote(v)}" for k, v in self.site.operator_env().items() if k.startswith("KVC_")]
        write_private(self.state / "env", "\n".join(lines) + "\n")

    def prepare_database(self) -> None:
        """The schema is that of this checkout, and the demonstration's tenants, models and people exist."""
        assert self.site is not None
        if not self.postgres.has_database(DATABASE):
            self.postgres.create_database(DATABASE)
        now = _digest_of_migrations()
        if self.known.get("migrations") != now:
            self.console.say("up", "migrating the database")
            self._manage("migrate", "--verbosity", "0", env=self.site.env_for(roles=("migrate",)))
            self._remember(migrations=now, seeded="")
        if not self.known.get("seeded") or not (self.state / "logins").exists():
            self._manage("seed_demo", "--logins", str(self.state / "logins"), env=self.site.operator_env())
            self._remember(seeded="yes")

    def start_pages(self) -> None:
        """The log-in page is served. Nothing else starts meanwhile, so that it is there as soon as may be."""
        self._start_programs("web")
        self._wait_for(f"{self.url}/login")

    def start_rest(self) -> None:
        """The writer, the router, the signer and the workers run and answer."""
        assert self.site is not None
        self._start_programs(*(name for name, one in PROGRAMS.items() if name != "web" and not one.optional))
        for name in ("signer", "ingest", "router"):
            self._wait_for(f"{self.site.url(name)}/healthz")

    def start_fleet(self) -> None:
        """Four agents are enrolled and run."""
        assert self.site is not None
        missing = [name for name in FLEET if not (self.state / "agents" / name / "agent.json").exists()]
        if missing:
            self._enrol(missing)
        run = [PYTHON, "-m", "nodeagent", "run", "--dir"]
        directory = self.state / "agents"
        self.supervisor.add(*(self._child(name, [*run, str(directory / name)], _plain_env()) for name in FLEET))

    def start_replay(self) -> None:
        """A made trace drives the fleet, again and again."""
        assert self.site is not None
        trace = self.state / "trace.jsonl"
        if not trace.exists():
            self._manage("make_trace", str(trace), "--tenants", TENANTS, env=self.site.operator_env())
        command = [PYTHON, "manage.py", "replay", str(trace), "--loop", "--tenant", TENANTS.split(",")[0]]
        self.supervisor.add(self._child("replay", command, self.site.operator_env()))

    # --- inside ---

    @property
    def url(self) -> str:
        """Where people find it."""
        assert self.site is not None
        return self.site.url("web")

    @property
    def router_url(self) -> str:
        """Where gateways ask."""
        assert self.site is not None
        return self.site.url("router")

    def _start_programs(self, *names: str) -> None:
        assert self.site is not None
        self.supervisor.add(*(self._child(name, self.site.command(name), self.site.env(name)) for name in names))

    def _child(self, name: str, command: list[str], env: dict[str, str]) -> Child:
        return Child(name, command, env, console=self.console, logs=self.logs)

    def _enrol(self, names: list[str]) -> None:
        assert self.site is not None
        listen = {name: f"127.0.0.1:{free_port()}" for name in names}
        places = [f"{name}=http://{listen[name]},{FLEET[name]}" for name in names]
        made = json.loads(self._manage("node_create", "--json", *places, env=self.site.operator_env()))
        for name in names:
            directory = self.state / "agents" / name
            command = [
                PYTHON, "-m", "nodeagent", "join", "--console", self.site.url("web"), "--token", "-",
                "--dir", str(directory), "--name", name, "--listen", listen[name], "--profile", "ref-1k",
                "--remote", "-", *(x for tier in TIERS for x in ("--tier", tier)),
            ]  # fmt: skip
            # Neither token nor password have a place in a process list.
            said = f"{made[name]['enrolment_token']}\n{self.remote.url}\n"
            self._call(command, env=_plain_env(), said=said)

    def _manage(self, *arguments: str, env: dict[str, str]) -> str:
        return self._call([PYTHON, "manage.py", *arguments], env=env)

    def _call(self, command: list[str], *, env: dict[str, str], said: str = "") -> str:
        """Output of a command that ends with us; `said` is its standard input."""
        process = subprocess.Popen(
            command, cwd=CLONE, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        reaper.shared().watch(process.pid)
        threading.Thread(target=self._end_early, args=(process,), daemon=True).start()
        output, complaint = process.communicate(said)
        reaper.shared().forget(process.pid)
        if self.supervisor.stopping.is_set():
            raise Stopped
        if process.returncode:
            raise NotStarted(
                f"{' '.join(command[1:3])} ended with {process.returncode}:\n{(complaint or output)[-3000:]}"
            )
        return output

    def _end_early(self, process: subprocess.Popen[str]) -> None:
        while process.poll() is None:
            if self.supervisor.stopping.wait(0.2):
                process.terminate()
                return

    def _wait_for(self, url: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        self.supervisor.run(lambda: _answers(url) or time.monotonic() > deadline, period=0.1)
        if self.supervisor.stopping.is_set():
            raise Stopped
        if time.monotonic() > deadline:
            raise NotStarted(f"{url} was not served within {READY_SECONDS:.0f} s; see {self.logs}")

    def _remember(self, **facts: str) -> None:
        self.known |= facts
        (self.state / "known.json").write_text(json.dumps(self.known))


def _plain_env() -> dict[str, str]:
    """An agent's environment: nothing of the console's."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("KVC_", "DJANGO_"))} | {"PYTHONUNBUFFERED": "1"}


def write_private(path: Path, text: str) -> None:
    """The file holds `text` and only its owner can read it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as f:
        f.write(text)


def _read_json(path: Path) -> dict[str, str]:
    try:
        known: dict[str, str] = json.loads(path.read_text())
        return known
    except (OSError, ValueError):
        return {}


def _digest_of_migrations() -> str:
    files = sorted([*CLONE.glob("*/migrations/*.py"), *CLONE.glob("*/sql/*.sql")])
    return hashlib.blake2b(b"".join(f.read_bytes() for f in files), digest_size=16).hexdigest()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def only_one(state: Path) -> Iterator[TextIO]:
    """Holds the directory. Raises `NotStarted` with the running one's address when somebody else does."""
    state.mkdir(parents=True, exist_ok=True)
    state.chmod(0o700)
    with (state / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            raise NotStarted(f"already running from this directory: {lock.read().strip() or 'starting'}") from None
        lock.truncate(0)
        yield lock
        lock.truncate(0)


def environment(state: Path) -> str:
    """The environment of the console that runs from this directory, as a shell reads it.

    Raises:
        NotStarted: none runs there, or it is still starting its servers; nothing was made.
    """
    try:
        with (state / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            return (state / "env").read_text()
        except FileNotFoundError:
            raise NotStarted(f"the console of {state} is starting: ask again in a moment") from None
    except OSError:  # there is no such directory
        pass
    raise NotStarted(f"no console runs from {state}: start one with `make up`")


def reset(state: Path) -> None:
    """Everything that `make up` keeps is gone: databases, keys, agents, log-ins."""
    for server in (Postgres(state / "postgres"), Valkey(state / "valkey"), Valkey(state / "remote")):
        server.remove()
    for path in state.iterdir():
        if path.name != "lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def remove_unused(home: Path) -> None:
    """Binaries and leftovers that root keeps for this clone are gone, unless a server of it runs: then all stays.

    A test session, or a console over another state directory, uses the same copies of the wheels.
    """
    for lock in home.glob("*/lock"):
        with lock.open("a") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
    shutil.rmtree(home, ignore_errors=True)


def serve(state: Path, lock: TextIO, *, replay: bool) -> None:
    """Starts everything, says where it is, and keeps it running until told to stop."""
    began = time.monotonic()
    console = Console()
    dev = Dev(state, console)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: dev.supervisor.stopping.set())
    steps = [dev.start_servers, dev.prepare_database, dev.start_pages]
    later = [dev.start_rest, dev.start_fleet, *([dev.start_replay] if replay else [])]
    try:
        for step in steps:
            step()
        if not dev.supervisor.stopping.is_set():
            lock.write(dev.url + "\n")
            lock.flush()
            seconds = time.monotonic() - began
            console.say("up", f"KV Console is at {dev.url} ({seconds:.1f} s); log-ins: {state / 'logins'}")
            console.say("up", f"gateways ask for decisions at {dev.router_url}")
        for step in later:
            if not dev.supervisor.stopping.is_set():
                step()
        dev.supervisor.run()
    except Stopped:
        pass
    finally:
        console.say("up", "stopping")
        dev.supervisor.stop()
        reaper.close_shared()


def main(arguments: list[str] | None = None) -> int:
    """The command line of `python -m kvconsole.devserver`."""
    parser = argparse.ArgumentParser(prog="kvconsole.devserver", description=__doc__.splitlines()[0])
    parser.add_argument("--state", type=Path, default=CLONE / ".dev")
    parser.add_argument("--env", action="store_true", help="print the environment of the running console for a shell")
    parser.add_argument("--clean", action="store_true", help="delete what was kept, and end")
    parser.add_argument("--reset", action="store_true", help="start clean: everything kept so far is deleted")
    parser.add_argument("--no-replay", action="store_true", help="do not drive the fleet with a made trace")
    options = parser.parse_args(arguments)
    try:
        if options.env:
            print(environment(options.state))
            return 0
        with only_one(options.state) as lock:
            if options.reset or options.clean:
                reset(options.state)
            if options.clean:
                remove_unused(clone_home())
                return 0
            serve(options.state, lock, replay=not options.no_replay)
    except (NotStarted, ServerFailed) as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
