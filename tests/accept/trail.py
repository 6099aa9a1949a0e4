"""What the accept tests of the log stand on: a console whose log is signed, and a machine that knows nothing of it."""

import hashlib
import json
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.accept.tenancy import Caller, People
from tests.conftest import Database
from tests.running import Console

PROCESSES = ("signer", "sequencer", "web", "worker")
SECONDS = 60.0


class Trail:
    """A running console, its people, and what an auditor takes out of it over REST."""

    def __init__(self, console: Console) -> None:
        self.console, self.people = console, People(console)

    @property
    def auditor(self) -> Caller:
        """A person, who proved themselves lately."""
        return self.people.browser("auditor")

    def signed(self) -> dict[str, Any]:
        """The newest checkpoint with its keys, once all that was recorded before is under it."""
        deadline = time.monotonic() + SECONDS
        while True:
            state = self.auditor.get("/audit/state")
            if not state["pending"] and state["signed_size"] >= state["size"] > 0:
                found: dict[str, Any] = self.auditor.get("/audit/checkpoint")
                return found
            assert time.monotonic() < deadline, (state, self.console.log("sequencer")[-2000:])
            time.sleep(0.1)

    def job(self, path: str, body: Any) -> dict[str, Any]:
        """An export or verification that was asked for, when it is over."""
        self.signed()
        job = self.auditor.post(path, body, **{"Idempotency-Key": str(uuid.uuid4())})
        deadline = time.monotonic() + SECONDS
        while job["state"] in ("queued", "running"):
            assert time.monotonic() < deadline, (job, self.console.log("worker")[-2000:])
            time.sleep(0.1)
            job = self.auditor.get(f"/audit/jobs/{job['id']}")
        assert job["state"] == "done", job
        return dict(job)

    def export(self, **asked: Any) -> bytes:
        """The bundle, as it was downloaded."""
        job = self.job("/audit/exports", asked)
        answer = self.auditor("GET", f"/audit/jobs/{job['id']}/download")
        assert (answer.status_code, hashlib.sha256(answer.content).hexdigest()) == (200, job["result"]["sha256"])
        return answer.content

    def events(self, **asked: str) -> list[dict[str, Any]]:
        """The newest events that are meant, newest first."""
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        found: list[dict[str, Any]] = self.auditor.get(f"/audit/events?limit=200&{query}")["items"]
        return found


@contextmanager
def a_trail(console: Console) -> Iterator[Trail]:
    """The log of this console is being sealed and signed while the block lasts."""
    console.start(*PROCESSES)
    yield Trail(console)


def dump(console: Console, path: Path) -> None:
    """A copy of the console's database, as an operator makes one."""
    server = console.database.postgres
    command = [server._bin("pg_dump"), "--format=custom", f"--file={path}", console.database.dsn("superuser")]
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def restored(console: Console, copy: Path, state: Path) -> Iterator[Console]:
    """A console with the same key store over a database into which a dump was put back; nothing of it runs yet."""
    server, name = console.database.postgres, f"kvc_{uuid.uuid4().hex[:12]}"
    server.create_database(name)
    try:
        dsn = server.superuser_dsn(name)
        command = [server._bin("pg_restore"), "--exit-on-error", f"--dbname={dsn}", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        made = Console(state, database=Database(server, name), broker=console.broker)
        for where in ("KVC_KEYSTORE_DIR", "KVC_SHRED_DIR"):
            made.site._secrets[where] = console.site._secrets[where]
        made.__dict__["logins"] = console.seed()
        try:
            yield made
        finally:
            made.stop()
    finally:
        server.drop_database(name)


def holding(dsn: str, word: str) -> list[str]:
    """Tables in which a word stands, in plain or in hex."""
    tables = (
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        " ORDER BY 1"
    )
    forms = [f"%{word}%", f"%{word.encode().hex()}%"]
    with psycopg.connect(dsn) as c:
        names = [name for (name,) in c.execute(tables).fetchall()]
        query = "SELECT EXISTS (SELECT FROM {} t WHERE t::text ILIKE ANY (%s))"
        return [name for name in names if c.execute(query.format(name), (forms,)).fetchone()[0]]


class Said(NamedTuple):
    """What the verifier answered, in text and in JSON."""

    exit: int
    text: str
    report: dict[str, Any]


class Apart:
    """A machine without the project: one directory, a Python with its standard library, and no environment."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory

    def put(self, name: str, data: bytes | str) -> str:
        """The file is there."""
        (self.directory / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    def take_out(self, bundle: str, *names: str) -> None:
        """These files of a bundle are there, as any program for zips takes them out."""
        with zipfile.ZipFile(self.directory / bundle) as found:
            for name in names:
                (self.directory / name).write_bytes(found.read(name))

    def python(self, *arguments: str) -> tuple[int, str]:
        """Exit code and what was printed, errors too."""
        done = subprocess.run(
            [sys.executable, "-I", "-S", *arguments], cwd=self.directory, env={}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=300,
        )  # fmt: skip
        return done.returncode, done.stdout.decode()

    def verify(self, *arguments: str) -> Said:
        """What `verify.py` of the bundle says; both forms of its answer say the same."""
        code, text = self.python("verify.py", *arguments)
        again, raw = self.python("verify.py", *arguments, "--json")
        report = json.loads(raw)
        assert (again, report["exit"], text.splitlines()[-1]) == (code, code, report["verdict"].upper()), (text, raw)
        return Said(code, text, report)
