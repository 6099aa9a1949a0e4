"""Decides where refused log-ins and refused calls wait while PostgreSQL is away, and takes them in afterwards.

One file of JSON lines in `KVC_SPOOL_DIR`, readable by its owner alone, on disk before the caller is answered, and
bounded: what does not fit is counted. Names and addresses in it are sealed under a key of the key store. Taking in
renames the file, so it changes no more, and keeps in PostgreSQL how many of its lines are events: each becomes exactly
one, flagged as late and with the time it happened, wherever the process is killed.
"""

import base64
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.db import connections

from audit.services import LATE, portable, record
from kvconsole.infra import keystore
from kvconsole.infra.access import FLEET_PLANE, Principal, system, tenant_context
from kvconsole.infra.sql import uuid7
from kvcore.keys import subkey

MOST_BYTES = 64 << 20
"""Of the file that grows; some 150,000 lines."""
MOST_LINE = 8 << 10
AT_ONCE = 500
KEY = "spool"
OPEN, LOST = "refused.jsonl", "refused.lost"
_TAKEN = re.compile(r"taken-[0-9a-f-]{36}\.jsonl")
_TURN = "SELECT lines FROM audit_spool WHERE name = %s FOR UPDATE"
_BEGIN = "INSERT INTO audit_spool (name, lines, lost) VALUES (%s, 0, %s) ON CONFLICT (name) DO NOTHING"
_ON = "UPDATE audit_spool SET lines = %s, ended_at = CASE WHEN %s THEN now() END WHERE name = %s"


def put(fields: Mapping[str, Any], *, actor: Principal | None = None, request_id: str = "") -> bool:
    """The event is on disk, with the present time. False: there is no spool, or it cannot be written.

    Args:
        fields: arguments of `record`: event_type, outcome, object_kind, object_id, body, and pii, which is sealed.
        actor: who did it.
        request_id: of the call.
    """
    directory = _directory()
    if directory is None:
        return False
    line_id = uuid7()
    pii = fields.get("pii")
    line = {
        "id": str(line_id),
        "at": portable(datetime.now(UTC)),
        "event": {name: portable(value) for name, value in fields.items() if name != "pii"},
        "actor": _told(actor),
        "request_id": request_id,
        "sealed": _seal(pii, line_id) if pii else "",
    }
    raw = json.dumps(line, separators=(",", ":")).encode() + b"\n"
    try:
        with _locked(directory) as fd:
            size = os.fstat(fd).st_size
            if len(raw) > MOST_LINE or size + len(raw) > MOST_BYTES:
                return _count_lost(directory)
            if size and os.pread(fd, 1, size - 1) != b"\n":  # the last line is torn: it stays alone
                raw = b"\n" + raw
            if os.write(fd, raw) < len(raw):  # the disk is full: a torn line
                return False
            os.fsync(fd)
    except OSError:
        return False
    return True


def take_in() -> int:
    """What waited is in the trail, and its files are gone; answers how many events that were.

    Raises:
        DatabaseError: PostgreSQL is away again; what is not taken in waits on.
    """
    directory = _directory()
    if directory is None:
        return 0
    _set_aside(directory)
    taken = 0
    for path in sorted(p for p in directory.iterdir() if _TAKEN.fullmatch(p.name)):
        try:
            lines, torn = _lines(path)
        except FileNotFoundError:
            continue  # another process took it in meanwhile
        while (some := _take(path.name, lines, torn)) is not None:
            taken += some
        path.unlink(missing_ok=True)
    return taken


def _take(name: str, lines: list[dict[str, Any]], torn: int) -> int | None:
    """The next lines of the file are events, and the table says so: one transaction. None: all of them were."""
    with tenant_context(system("spool")), connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(_BEGIN, (name, torn))
        cursor.execute(_TURN, (name,))
        done = cursor.fetchone()[0]
        if done > len(lines):
            return None
        some = lines[done : done + AT_ONCE]
        for line in some:
            _record(line)
        last = done + len(some) >= len(lines)
        if last:
            body = {"events": len(lines), "lost": torn}
            record(
                event_type="spool.imported", outcome="success", actor=system("spool"), tenant_id=None,
                object_kind="spool", object_id=name, body=body, flags=LATE,
            )  # fmt: skip
        # one more than there are: the file is done, also an empty one
        cursor.execute(_ON, (len(lines) + 1 if last else done + len(some), last, name))
    return len(some)


def _record(line: Mapping[str, Any]) -> None:
    actor = _actor(line["actor"])
    record(
        **line["event"],
        actor=actor,
        tenant_id=actor.tenant_id if actor else None,
        pii=_opened(line["sealed"], UUID(line["id"])),
        request_id=line["request_id"],
        flags=LATE,
        happened_at=datetime.fromisoformat(line["at"]),
    )


# --- files --------------------------------------------------------------------------------


def _directory() -> Path | None:
    if not settings.SPOOL_DIR:
        return None
    path = Path(settings.SPOOL_DIR)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path if not path.stat().st_mode & 0o077 else None
    except OSError:
        return None


@contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """The file that grows, for one writer at a time; of this name still when it is ours."""
    while True:
        fd = os.open(directory / OPEN, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _same(fd, directory / OPEN):
                yield fd
                return
        finally:
            os.close(fd)


def _same(fd: int, path: Path) -> bool:
    try:
        return os.fstat(fd).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _set_aside(directory: Path) -> None:
    """What has grown is a file that changes no more; what was lost meanwhile stands in its last line."""
    with _locked(directory) as fd:
        lost = directory / LOST
        if not os.fstat(fd).st_size and not lost.exists():
            return
        if lost.exists():
            os.write(fd, b"\n" + json.dumps({"lost": lost.stat().st_size}).encode() + b"\n")
            os.fsync(fd)
            lost.unlink()
        os.rename(directory / OPEN, directory / f"taken-{uuid7()}.jsonl")


def _count_lost(directory: Path) -> bool:
    """One more did not fit: a byte of a file that holds nothing else."""
    fd = os.open(directory / LOST, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    with open(fd, "ab") as file:
        file.write(b".")
    return True


def _lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """(whole lines, how many were lost: torn, or not taken because there was no place)."""
    found: list[dict[str, Any]] = []
    lost = 0
    for raw in path.read_bytes().split(b"\n"):
        if not raw:
            continue
        try:
            line = json.loads(raw)
        except ValueError:
            lost += 1
            continue
        if "lost" in line:
            lost += int(line["lost"])
        else:
            found.append(line)
    return found, lost


# --- what is sealed -------------------------------------------------------------------------


def _seal(pii: Mapping[str, Any], line_id: UUID) -> str:
    """Nobody reads it on this disk; without a key store it is left out."""
    try:
        key = subkey(keystore.keystore().ensure(KEY), "pii")
    except (keystore.KeyStoreUnavailable, keystore.KeyMissing):
        return ""
    nonce = os.urandom(12)
    sealed = nonce + AESGCM(key).encrypt(nonce, json.dumps(portable(pii)).encode(), line_id.bytes)
    return base64.b64encode(sealed).decode()


def _opened(sealed: str, line_id: UUID) -> dict[str, Any] | None:
    if not sealed:
        return None
    blob = base64.b64decode(sealed)
    try:
        key = subkey(keystore.keystore().secret(KEY), "pii")
        found: dict[str, Any] = json.loads(AESGCM(key).decrypt(blob[:12], blob[12:], line_id.bytes))
    except (InvalidTag, keystore.KeyMissing):
        return None
    return found


def _told(actor: Principal | None) -> dict[str, Any] | None:
    """Who it was, by ids."""
    if actor is None:
        return None
    tenant = str(actor.tenant_id) if actor.tenant_id else ""
    return {"kind": actor.kind, "id": actor.id, "holder": actor.holder, "user_id": actor.user_id,
            "roles": sorted(actor.roles), "tenant_id": tenant}  # fmt: skip


def _actor(told: Mapping[str, Any] | None) -> Principal | None:
    if told is None:
        return None
    tenant = UUID(told["tenant_id"]) if told["tenant_id"] else None
    return Principal(kind=told["kind"], id=told["id"], holder=told["holder"], user_id=told["user_id"],
                     roles=frozenset(told["roles"]), tenant_id=tenant)  # fmt: skip
