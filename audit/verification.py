"""Decides what "verify now" does: all of the log is hashed again, and the first index where something differs is named.

The same walk as the scrubber's (`audit.rehash`), as fast as may be, at the wish of somebody who then gets the verdict.
It survives a kill: how far it is, and the tree up to there, are in the job's row.
"""

import contextlib
import json
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.db import transaction

from audit import jobs, rehash, signing
from audit.gaps import Tally
from audit.keyfiles import verify
from audit.models import Job
from audit.services import record
from audit.tree import CheckpointRow, checkpoint_latest
from kvconsole.infra import sql
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.leases import Lease
from kvcore import notes
from kvcore.proofs import Frontier

KEEP_SECONDS = 2.0
WORK_SECONDS = 200.0
NAMED = 100
"""So many divergences are told singly; the rest is counted."""
UNSETTLED = 5_000
"""Numbers of producers that are missing so near the end may be on their way."""


class Stopped(Exception):
    """Somebody cancelled the job, or another worker has it."""


class Verification:
    """One verification of the whole log."""

    def __init__(self, job: Job, lease: Lease) -> None:
        self.job, self.lease = job, lease
        at: dict[str, Any] = job.position
        frontier = Frontier.unpack(bytes.fromhex(at.get("frontier", "")), at.get("next", 0))
        self.walk = rehash.Walk(frontier, Tally(at.get("tally")), key=signing.log_key())
        self.found: list[list[Any]] = at.get("found", [])
        self.count: int = at.get("count", 0)
        self.seconds: float = at.get("seconds", 0.0)

    def run(self) -> str:
        """`done`, or `more`: the rest is for the next worker.

        Raises:
            Stopped: nothing more is to be done.
        """
        begun = kept = time.monotonic()
        dsn = sql.dsn("operator", options="-c statement_timeout=60s -c max_parallel_workers_per_gather=0")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            while True:
                part = rehash.read(connection, self.walk.frontier.size)
                for one in rehash.check(self.walk, part, dsn):
                    self._tell(*one)
                now = time.monotonic()
                if part.end >= part.size:
                    self.seconds += now - begun
                    self._conclude(part)
                    return "done"
                if now - kept > KEEP_SECONDS:
                    kept = now
                    self._keep(part, self.seconds + now - begun)
                    if now - begun > WORK_SECONDS:
                        return "more"

    def _tell(self, kind: str, index: int, detail: str) -> None:
        self.count += 1
        if len(self.found) < NAMED:
            self.found.append([kind, index, detail])

    def _keep(self, part: rehash.Part, seconds: float) -> None:
        position = {
            "next": self.walk.frontier.size,
            "frontier": self.walk.frontier.pack().hex(),
            "tally": json.loads(self.walk.tally.pack()),
            "found": self.found,
            "count": self.count,
            "seconds": seconds,
        }
        size = {"done": part.end, "total": part.size}
        if not jobs.job_keep(self.job, self.lease, now=datetime.now(UTC), position=position, **size):
            raise Stopped

    def _conclude(self, part: rehash.Part) -> None:
        for hole in self.walk.tally.holes():
            if hole[3] < part.size - UNSETTLED:
                self._tell("gap", hole[3], f"producer {hole.producer}: {hole.first} to {hole.last} are missing")
        if why := _signature(checkpoint_latest(), self.walk.key):
            self._tell("signature", part.signed, why)
        first = min((index for _, index, _ in self.found), default=None)
        verdict = f"diverges at {first}" if self.count else "as sealed"
        result = {
            "size": part.size,
            "root": part.root.hex(),
            "verdict": verdict,
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
                outcome="failure" if self.count else "success",
                actor=actor,
                tenant_id=actor.tenant_id,
                object_kind="job",
                object_id=str(self.job.id),
                body={"size": part.size, "root": part.root, "first_divergent": first, "verdict": verdict},
            )


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
