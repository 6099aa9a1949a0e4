"""Which processes a console is made of, how each is started and what it is told: one list for `make up` and the walks.

A process gets the password of the database role it works as and no other; `docker-compose.yml` says the same for
containers, and a test compares the two.
"""

import dataclasses
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from kvconsole.serverprocess import CLONE, free_port, is_free

PYTHON = sys.executable


@dataclasses.dataclass(frozen=True)
class Program:
    """One kind of process.

    Attributes:
        arguments: what follows the Python interpreter; `{port}` is the port it listens on.
        roles: database log-ins it is given; the first is the role of its connection `default`.
        secrets: further settings that only some processes may see.
        ready: path that answers 200 when the process works; empty when it serves nothing.
        optional: a console works without it; `make up` starts none.
    """

    arguments: tuple[str, ...]
    roles: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    ready: str = ""
    optional: bool = False


_QUIET_ROOT = ("-W", "ignore:You're running the worker with superuser")  # development as root is what it is
_CELERY = (*_QUIET_ROOT, "-m", "celery", "--app", "kvconsole", "--quiet")
PROGRAMS: Mapping[str, Program] = {
    "web": Program(
        ("-m", "kvconsole.web", "--port", "{port}"),
        roles=("operator", "tenant", "router", "audit"),
        secrets=("KVC_SECRET_KEY", "KVC_SIGNER_TOKEN", "KVC_KEYSTORE_DIR", "KVC_SHRED_DIR", "KVC_SPOOL_DIR",
                 "KVC_EXPORT_DIR"),
        ready="/healthz",
    ),
    "ingest": Program(
        ("manage.py", "ingest", "--port", "{port}"),
        roles=("ingest",),
        secrets=("KVC_SECRET_KEY",),
        ready="/healthz",
    ),
    "router": Program(
        ("manage.py", "router", "--port", "{port}"),
        roles=("router", "tenant"),
        secrets=("KVC_SECRET_KEY", "KVC_KEYSTORE_DIR", "KVC_SHRED_DIR"),
        ready="/readyz",
    ),
    "signer": Program(
        ("manage.py", "signer", "--port", "{port}"),
        roles=(),
        secrets=("KVC_SECRET_KEY", "KVC_SIGNER_TOKEN", "KVC_SIGNER_LOG_TOKEN", "KVC_COMMAND_KEY_FILE",
                 "KVC_LOG_KEY_FILE", "KVC_EXPORT_KEY_FILE", "KVC_SIGNER_STATE"),
        ready="/healthz",
    ),
    "sequencer": Program(
        ("manage.py", "sequencer"),
        roles=("seq",),
        secrets=("KVC_SECRET_KEY", "KVC_SIGNER_LOG_TOKEN"),
    ),
    "witness": Program(
        ("manage.py", "witness", "--port", "{port}"),
        roles=(),
        secrets=("KVC_SECRET_KEY", "KVC_WITNESS_KEY_FILE", "KVC_WITNESS_STATE"),
        ready="/healthz",
        optional=True,
    ),
    "worker": Program(
        (*_CELERY, "worker", "--pool", "threads", "--concurrency", "4", "--loglevel", "warning", "--without-gossip",
         "--without-mingle"),
        roles=("operator", "tenant", "audit"),
        secrets=("KVC_SECRET_KEY", "KVC_SIGNER_TOKEN", "KVC_KEYSTORE_DIR", "KVC_SHRED_DIR", "KVC_SPOOL_DIR",
                 "KVC_EXPORT_DIR"),
    ),
    "beat": Program(
        (*_CELERY, "beat", "--loglevel", "warning", "--schedule", "{state}/beat"),
        roles=(),
        secrets=("KVC_SECRET_KEY",),
    ),
}  # fmt: skip

LISTENING = ("web", "ingest", "router", "signer", "witness")
"""Those that have a port."""


class Site:
    """Addresses, secrets and settings that the processes of one console share; ports and secrets stay over restarts."""

    def __init__(self, state: Path, *, database: Mapping[str, str], valkey_url: str, kind: str = "dev") -> None:
        """`database` is what `embedded.Postgres.env` returns; `kind` names the settings module."""
        self.state, self.database, self.valkey_url, self.kind = state, database, valkey_url, kind
        state.mkdir(parents=True, exist_ok=True)
        state.chmod(0o700)
        path = state / "site.json"
        known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        for name in LISTENING:
            if name not in known or not is_free(int(known[name])):
                known[name] = str(free_port())
        for name in ("KVC_SECRET_KEY", "KVC_SIGNER_TOKEN", "KVC_SIGNER_LOG_TOKEN"):
            known.setdefault(name, secrets.token_urlsafe(40))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as f:
            json.dump(known, f)
        (state / "keys").mkdir(mode=0o700, exist_ok=True)
        self.ingest_urls: list[str] = []  # where agents find the writer, if not where it listens
        self.extra: dict[str, str] = {}  # what all are told beside
        self.ports = {name: int(known[name]) for name in LISTENING}
        self._secrets = {
            "KVC_SECRET_KEY": known["KVC_SECRET_KEY"],
            "KVC_SIGNER_TOKEN": known["KVC_SIGNER_TOKEN"],
            "KVC_SIGNER_LOG_TOKEN": known["KVC_SIGNER_LOG_TOKEN"],
            "KVC_COMMAND_KEY_FILE": str(state / "command.key"),
            "KVC_LOG_KEY_FILE": str(state / "log.key"),
            "KVC_EXPORT_KEY_FILE": str(state / "export.key"),
            "KVC_SIGNER_STATE": str(state / "signer.json"),
            "KVC_WITNESS_KEY_FILE": str(state / "witness.key"),
            "KVC_WITNESS_STATE": str(state / "witness.sqlite3"),
            "KVC_KEYSTORE_DIR": str(state / "keys"),
            "KVC_SHRED_DIR": str(state / "epochs"),
            "KVC_SPOOL_DIR": str(state / "spool"),
            "KVC_EXPORT_DIR": str(state / "exports"),
        }

    def url(self, name: str) -> str:
        """Where a process listens."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def command(self, name: str) -> list[str]:
        """How to start a process, from the clone's directory."""
        values = {"port": self.ports.get(name), "state": self.state}
        return [PYTHON, *(x.format(**values) for x in PROGRAMS[name].arguments)]

    def env(self, name: str) -> dict[str, str]:
        """The environment of a process: what all know, and what only this kind may."""
        return self.env_for(roles=PROGRAMS[name].roles, secrets=PROGRAMS[name].secrets)

    def env_for(self, *, roles: tuple[str, ...], secrets: tuple[str, ...] = ("KVC_SECRET_KEY",)) -> dict[str, str]:
        """The environment of a management command that works as the first of these database roles."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("KVC_", "DJANGO_"))}
        shared = {
            "KVC_ENV": self.kind,
            "DJANGO_SETTINGS_MODULE": f"kvconsole.settings.{self.kind}",
            "KVC_CONSOLE_URL": self.url("web"),
            "KVC_INGEST_URLS": ",".join(self.ingest_urls or [self.url("ingest")]),
            "KVC_SIGNER_URL": self.url("signer"),
            "KVC_ROUTER_URL": self.url("router"),
            "KVC_VALKEY_URL": self.valkey_url,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(CLONE),
        }
        passwords = {f"KVC_DB_{role.upper()}_PASSWORD" for role in roles}
        database = {k: v for k, v in self.database.items() if not k.endswith("_PASSWORD") or k in passwords}
        role = {"KVC_DB_ROLE": roles[0]} if roles else {}
        return kept | shared | self.extra | database | role | {name: self._secrets[name] for name in secrets}

    def operator_env(self) -> dict[str, str]:
        """The environment of commands that an operator runs by hand."""
        return self.env_for(roles=("operator", "tenant", "router"), secrets=PROGRAMS["web"].secrets)
