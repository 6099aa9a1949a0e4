"""Decides how an export is made so that it survives a kill at any moment: in slices, with what is done kept on disk.

Each slice is a fixed number of records, whoever makes it. Parts are on disk before the job's row says how far they are;
what is behind that is cut off when somebody resumes. The last step is done again from the start if it is cut short.
"""

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import transaction

from audit import jobs, signing
from audit.contents import content_of, whole_number
from audit.epochs import asked_of, log_at
from audit.export import bundle, csvrows, jsonl, ocsf, parquet, parts, records
from audit.export.select import Selection, select
from audit.models import Job
from audit.registry import TYPES
from audit.selectors import EventFilter
from audit.services import record
from audit.tree import node_reader
from kvconsole.infra import sql
from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.leases import Lease
from kvcore.proofs import inclusion

SLICE = 2_000
KEEP_SECONDS = 2.0
"""How often it is put on disk how far it is."""
WORK_SECONDS = 200.0
"""So long one worker works at a time; the next one goes on."""
RETRY_SECONDS = 10.0
_GAP = TYPES["log.gap_found"].number


class Stopped(Exception):
    """Somebody cancelled the job, or another worker has it."""


class Making:
    """One export while it is made."""

    def __init__(self, job: Job, lease: Lease) -> None:
        self.job, self.lease = job, lease
        self.params: dict[str, Any] = job.params
        self.reader = jobs.reader_of(job)
        self.place = jobs.work_directory(job.id)
        self.size: int = self.params["size"]
        self.log = log_at(self.params.get("epoch"))
        self.ask = asked_of(self.log)
        self.format: str = self.params["format"]
        self.until = time.monotonic() + WORK_SECONDS
        self.sealed = sql.connect("audit")

    def run(self) -> str:
        """All that can be done now is done: `done`, `more` (of it later) or the code of what it waits for.

        Raises:
            Stopped: nothing more is to be done.
            Missing, TooLarge: it cannot be made.
        """
        note = bundle.checkpoint_note(self.size, self.log)
        if note is None:
            return "not-signed"
        with self.sealed:
            return self._run(note)

    def _run(self, note: str) -> str:
        selection = self._selection()
        if self.job.position["at"] == "records" and not self._records(selection, note):
            return "more"
        return self._finish(selection, note)

    def _selection(self) -> Selection:
        path = self.place / "selection"
        if "at" not in self.job.position:
            asked = filter_of(self.params["filters"])
            found = select(asked, epoch=self.log.number, size=self.size, reader=self.reader, path=path)
            at = {"at": "records", "first": found.first, "last": found.last, "count": found.count, "next": 0}
            self._keep(position=at | {"file": found.path is not None, "parts": {}, "gaps": []}, total=found.count)
        at = self.job.position
        return Selection(at["first"], at["last"], at["count"], path if at["file"] else None)

    def _keep(self, **fields: Any) -> None:
        if not jobs.job_keep(self.job, self.lease, now=datetime.now(UTC), **fields):
            raise Stopped

    # --- the records -----------------------------------------------------------------------

    def _records(self, selection: Selection, note: str) -> bool:
        """The records and their rendering are in parts; False: time is up, and some are left."""
        at = dict(self.job.position)
        names = ["events.jsonl", *([bundle.RENDERINGS[self.format]] if self.format in ("csv", "ocsf") else [])]
        grown = {name: parts.Part(self._part(name), upto=at["parts"].get(name, 0)) for name in names}
        node, origin, kept = node_reader(self.ask), bundle.origin_of(note), time.monotonic()
        path = None
        if bundle.proof_kind(selection) == "inclusion":
            path = lambda index: inclusion(index, self.size, node)  # noqa: E731
        with contextlib.ExitStack() as stack:
            for part in grown.values():
                stack.callback(part.close)
            while at["next"] < selection.count:
                found = self._read(selection, at["next"], opened=self.params["personal_data"])
                if at["next"] == 0 and self.format == "csv":
                    grown[names[1]].add(csvrows.header())
                grown["events.jsonl"].add(jsonl.lines(found, path=path))
                if self.format == "csv":
                    grown[names[1]].add(csvrows.lines(found))
                elif self.format == "ocsf":
                    grown[names[1]].add(ocsf.lines(found, origin=origin))
                at["gaps"] = [*at["gaps"], *_gaps(found)]
                at["next"] += len(found)
                if time.monotonic() - kept > KEEP_SECONDS or at["next"] == selection.count:
                    kept = time.monotonic()
                    at["parts"] = {name: part.sync() for name, part in grown.items()}
                    self._keep(position=dict(at), done=at["next"])
                    if kept > self.until and at["next"] < selection.count:
                        return False
        self._keep(position=at | {"at": "finish"}, done=at["next"])
        return True

    def _read(self, selection: Selection, start: int, *, opened: bool) -> list[records.Record]:
        return records.read(
            selection.slice(start, SLICE), ask=self.ask, reader=self.reader, opened=opened, sealed=self.sealed
        )  # fmt: skip

    def _part(self, name: str) -> Path:
        return self.place / name.replace("/", "_")

    def _slices(self, selection: Selection) -> Iterator[Sequence[records.Record]]:
        for start in range(0, selection.count, SLICE):
            yield self._read(selection, start, opened=False)
            if start % (20 * SLICE) == 0:
                self._keep()

    # --- the bundle --------------------------------------------------------------------------

    def _finish(self, selection: Selection, note: str) -> str:
        if not self.params["proofs"]:
            return self._unproved(selection)
        if log_at(self.log.number).ended != self.log.ended:
            raise records.Missing(f"the log {self.log.number} ended meanwhile")
        keys = bundle.keys(self.log)
        if isinstance(keys, signing.NotAnswered):
            return keys.code
        origin, before = bundle.origin_of(note), self.params["previous"]
        previous = bundle.Previous(**before) if before else None
        entries = self._grown(selection)
        entries += bundle.proof_files(selection, log=self.log, size=self.size, note=note, previous=previous)
        entries += [parts.stored("keys.txt", keys.text.encode()), *bundle.companions()]
        self._keep()
        filters, gaps = self.params["filters"], self.job.position["gaps"]
        text = bundle.manifest(
            entries, selection, filters=told(filters), gaps=gaps, origin=origin, previous=previous
        )  # fmt: skip
        signed = signing.sign_export(hashlib.sha256(text).digest(), origin=origin)
        if isinstance(signed, signing.NotAnswered):
            return signed.code
        entries += [parts.stored("manifest.json", text), parts.stored("manifest.sig", signed.encode())]
        path = jobs.file_of(self.job.id)
        parts.write_zip(path, entries)
        self._conclude(selection, path, hashlib.sha256(text).hexdigest())
        return "done"

    def _unproved(self, selection: Selection) -> str:
        """Only the rendering that was asked for, in a zip: for reading, signed by nobody."""
        name = bundle.RENDERINGS.get(self.format, "events.jsonl")
        entries = [entry for entry in self._grown(selection) if entry.name == name]
        path = jobs.file_of(self.job.id)
        parts.write_zip(path, entries)
        self._conclude(selection, path, entries[0].sha256)
        return "done"

    def _grown(self, selection: Selection) -> list[parts.Entry]:
        """The large files of the zip, whole."""
        at = self.job.position["parts"]
        rows = selection.count
        part = parts.Part(self._part("events.jsonl"), upto=at.get("events.jsonl", 0))
        found = [part.entry("events.jsonl", rows)]
        if bundle.proof_kind(selection) == "range" and self.params["proofs"]:
            hashes = parts.Part(self._part("hashes.bin"))
            for run in bundle.hashes(selection.first, selection.last, self.log):
                hashes.add(run)
                self._keep()
            found.append(hashes.entry("hashes.bin"))
        name = bundle.RENDERINGS.get(self.format)
        if name is not None and self.format == "parquet":
            found.append(self._parquet(selection, name))
        elif name is not None:
            found.append(parts.Part(self._part(name), upto=at.get(name, 0)).entry(name, rows))
        return found

    def _parquet(self, selection: Selection, name: str) -> parts.Entry:
        raw, part = self.place / "parquet", parts.Part(self._part(name))
        parquet.write(raw, self._slices(selection))
        with raw.open("rb") as file:
            while data := file.read(parts.CHUNK):
                part.add(data)
        raw.unlink()
        return part.entry(name, selection.count)

    def _conclude(self, selection: Selection, path: Path, manifest_sha256: str) -> None:
        now = datetime.now(UTC)
        result = {
            "bytes": path.stat().st_size,
            "first": selection.first,
            "last": selection.last,
            "manifest_sha256": manifest_sha256,
            "proof": bundle.proof_kind(selection),
            "full": bundle.full(selection),
            "records": selection.count,
            "sha256": _sha256(path),
            "size": self.size,
            "epoch": self.log.number,
        }
        actor = jobs.principal_of(self.job)
        with transaction.atomic(using=FLEET_PLANE):
            ended = jobs.job_end(self.job, self.lease, now=now, state="done", result=result, done=selection.count)
            if not ended:
                raise Stopped
            record(
                event_type="export.made",
                outcome="success",
                actor=actor,
                tenant_id=actor.tenant_id,
                object_kind="job",
                object_id=str(self.job.id),
                body={
                    "range": {"first": selection.first, "last": selection.last, "size": self.size},
                    "filters": told(self.params["filters"]),
                    "formats": [self.format],
                    "records": selection.count,
                    "manifest_sha256": manifest_sha256,
                },
            )


def filter_of(said: Mapping[str, Any]) -> EventFilter:
    """The filter that a job's parameters describe."""
    since, until = (datetime.fromisoformat(said[key]) if said.get(key) else None for key in ("from", "to"))
    words = ("actor", "action", "object", "tenant", "outcome", "request_id")
    return EventFilter(**{word: said.get(word, "") for word in words}, since=since, until=until)


def told(said: Mapping[str, Any]) -> dict[str, Any]:
    """The filter as events and bundles tell it: of a person there is only that one was named."""
    found = {key: value for key, value in said.items() if value and key not in ("actor", "request_id", "object")}
    if said.get("object"):
        found["object"] = str(said["object"]).partition(":")[0]
    return found | {key: "named" for key in ("actor", "request_id") if said.get(key)}


def seconds_left(job: Job, now: datetime) -> float:
    """How long an export that waits for the signer still tries."""
    return (job.created_at + timedelta(days=1) - now).total_seconds()


def _gaps(found: Sequence[records.Record]) -> list[dict[str, Any]]:
    """What records tell of numbers that are missing."""

    gaps = []
    for one in found:
        if one.event_type == _GAP and one.body:
            data = content_of(one.body).data
            first, after, producer = (whole_number(data, name) for name in ("expected", "found", "producer"))
            if first is None or producer is None:
                continue
            last = first if after is None else after - 1
            if 0 <= first <= last < 1 << 53 and 0 <= producer < 1 << 53:
                gaps.append({"first": first, "index": one.index, "last": last, "producer": producer})
    return gaps


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
