"""Decides what "verify now" does: all of the log is hashed again, and the first index where something differs is named.

The same walk as the scrubber's (`audit.rehash`), as fast as may be, at the wish of somebody who then gets the verdict.
It survives a kill: how far it is, and the tree up to there, are in the job's row. A tenant's people are told of the
tenant's own events, and whether the log as a whole is as it was sealed; not what else differs, nor where.
"""

import contextlib
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from django.db import transaction

from audit import jobs, rehash, signing
from audit.epochs import Log, logs, path_of
from audit.gaps import Tally, tally_begun
from audit.keyfiles import verify
from audit.models import Job
from audit.services import record
from audit.tree import CheckpointRow, asked, checkpoint_latest
from kvconsole.infra import sql
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.leases import Lease
from kvconsole.infra.sql import PLATFORM
from kvcore import notes
from kvcore.proofs import Frontier

KEEP_SECONDS = 2.0
WORK_SECONDS = 200.0
NAMED = 100
"""So many divergences are told singly; the rest is counted."""
UNSETTLED = 5_000
"""Numbers of producers that are missing so near the end may be on their way."""


_OF_TENANT = """
SELECT l.idx FROM audit_leaf l LEFT JOIN audit_event e ON e.id = l.event
 WHERE l.idx = ANY(%(places)s)
   AND (e.tenant_id = %(tenant)s
        OR substring(l.data FROM 41 FOR 16) =
          (SELECT tenant_ref FROM audit_event WHERE tenant_id = %(tenant)s ORDER BY time_us DESC LIMIT 1))"""


class Stopped(Exception):
    """Somebody cancelled the job, or another worker has it."""


class Verification:
    """One verification of the whole log, and of those that ended before it."""

    def __init__(self, job: Job, lease: Lease) -> None:
        self.job, self.lease = job, lease
        at: dict[str, Any] = job.position
        frontier = Frontier.unpack(bytes.fromhex(at.get("frontier", "")), at.get("next", 0))
        self.walk = rehash.Walk(frontier, Tally(at.get("tally")))
        self.number: int = at.get("log", 1)
        self.ended = ""
        self.tenant = None if job.tenant_id == PLATFORM else job.tenant_id
        self.whole: int = at.get("whole", 0)
        self.found: list[list[Any]] = at.get("found", [])
        self.count: int = at.get("count", 0)
        self.seconds: float = at.get("seconds", 0.0)

    def run(self) -> str:
        """`done`, or `more`: the rest is for the next worker. Logs that ended come first.

        Raises:
            Stopped: nothing more is to be done.
        """
        begun = time.monotonic()
        for log in logs()[self.number - 1 :]:
            self.number, self.ended = log.number, log.origin if log.ended else ""
            self.walk.key = notes.vkey_parse(log.key) if log.key else signing.log_key()
            part = self._through(log, begun)
            if part is None:
                return "more"
            if not log.ended:
                self.seconds += time.monotonic() - begun
                self._conclude(part)
                break
            self.walk = rehash.Walk(Frontier(), tally_begun(asked(FLEET_PLANE)))
        return "done"

    def _through(self, log: Log, begun: float) -> rehash.Part | None:
        """The last part of this log; None: time is up before it."""
        kept = time.monotonic()
        options = f"-c statement_timeout=60s -c max_parallel_workers_per_gather=0 -c search_path={path_of(log)}"
        dsn = sql.dsn("operator", options=options)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            while True:
                part = rehash.read(connection, self.walk.frontier.size)
                found = rehash.check(self.walk, part, dsn)
                self.whole += len(found)
                for one in found if self.tenant is None else _own(connection, found, self.tenant):
                    self._tell(*one)
                now = time.monotonic()
                if part.end >= part.size:
                    return part
                if now - kept > KEEP_SECONDS:
                    kept = now
                    self._keep(part, self.seconds + now - begun)
                    if now - begun > WORK_SECONDS:
                        return None

    def _tell(self, kind: str, index: int, detail: str) -> None:
        self.count += 1
        if len(self.found) < NAMED:
            self.found.append([kind, index, f"{self.ended}: {detail}" if self.ended else detail])

    def _keep(self, part: rehash.Part, seconds: float) -> None:
        position = {
            "log": self.number,
            "next": self.walk.frontier.size,
            "frontier": self.walk.frontier.pack().hex(),
            "tally": json.loads(self.walk.tally.pack()),
            "found": self.found,
            "count": self.count,
            "whole": self.whole,
            "seconds": seconds,
        }
        size = {"done": part.end, "total": part.size}
        if not jobs.job_keep(self.job, self.lease, now=datetime.now(UTC), position=position, **size):
            raise Stopped

    def _conclude(self, part: rehash.Part) -> None:
        holes = [hole for hole in self.walk.tally.holes() if hole.at < part.size - UNSETTLED]
        of_all = [("gap", h.at, f"producer {h.producer}: {h.first} to {h.last} are missing") for h in holes]
        if why := _signature(checkpoint_latest(), self.walk.key):
            of_all.append(("signature", part.signed, why))
        self.whole += len(of_all)
        for one in of_all if self.tenant is None else ():
            self._tell(*one)
        first = min((index for _, index, _ in self.found), default=None)
        verdict = f"diverges at {first}" if self.count else "as sealed"
        result = {
            "size": part.size,
            "root": part.root.hex(),
            "verdict": verdict,
            "log": "diverges" if self.whole else "as sealed",
            "first_divergent": first,
            "divergences": self.count,
            "found": [{"kind": kind, "index": index, "detail": detail} for kind, index, detail in self.found],
            "seconds": round(self.seconds, 3),
        }
        actor, now = jobs.principal_of(self.job), datetime.now(UTC)
        with transaction.atomic(using=FLEET_PLANE):
            size: dict[str, Any] = {"done": part.size, "total": part.size}
            if not jobs.job_end(self.job, self.lease, now=now, state="done", result=result, **size):
                raise Stopped
            record(
                event_type="log.verified",
                outcome="failure" if self.whole else "success",
                actor=actor,
                tenant_id=actor.tenant_id,
                object_kind="job",
                object_id=str(self.job.id),
                body={"size": part.size, "root": part.root, "first_divergent": first, "verdict": verdict},
            )


def _own(c: psycopg.Connection[Any], found: Sequence[rehash.Divergence], tenant: UUID) -> list[rehash.Divergence]:
    """Of what differs, what a leaf of the tenant differs in: of its event, or under its name."""
    places = [one.at for one in found if one.kind in ("leaf", "event", "body")]
    mine = {row[0] for row in c.execute(_OF_TENANT, {"places": places, "tenant": tenant})} if places else set()
    return [one for one in found if one.kind in ("leaf", "event", "body") and one.at in mine]


def _signature(newest: CheckpointRow | None, key: notes.VerifierKey | None) -> str:
    """Why the newest checkpoint is not one of our signer, "" = it is, or nobody can be asked now."""
    if newest is None or key is None:
        return ""
    with contextlib.suppress(notes.NoteError):
        text = notes.note_open(newest.note, [key], verify).text
        said = notes.checkpoint_parse(text)
        if (said.size, said.root) == (newest.size, newest.root):
            return ""
    return "the newest checkpoint is not signed by the log's key, or says another size or root"
