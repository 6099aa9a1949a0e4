"""Decides whether a command is genuine and due here, does it once, and proves it with a signed receipt.

The same step gives the same receipt, whatever happened in between: it is journalled before it is done and its receipt
before it is answered. What takes long runs beside (`jobs`): the step answers that it is under way until it has its
receipt. Receipts are chained per node. Called by `server`; verbs are given by `agent`.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kvcore.messages import (
    PROTOCOL,
    Command,
    Receipt,
    Sent,
    Signed,
    SourcePosition,
    fingerprint,
    open_command,
    receipt_hash,
    seal,
)
from nodeagent.gathering import Gatherer
from nodeagent.jobs import Done, Job, Running, Stopped
from nodeagent.journal import Journal, JournalFull

Verb = Callable[[Command], dict[str, Any] | Done]
"""Does the command and answers what its receipt tells. JSON; integers above 2^53 as strings. Must bear repetition."""
LongVerb = Callable[[Command, Job], Done]
"""The same for what takes long."""
PATIENCE_SECONDS = 0.5
"""How long a call waits for a job: what is short is answered at once."""
JOBS_MOST = 16
"""Steps under way at a time; more are asked to come again."""


class Executor:
    """The only way in which this node takes orders."""

    def __init__(
        self,
        *,
        node: str,
        boot: str,
        private_key: bytes,
        console_key: bytes,
        journal: Journal,
        verbs: Mapping[str, Verb],
        positions: Callable[[], list[SourcePosition]],
        clock: Callable[[], float] = time.time,
        long: Mapping[str, LongVerb] | None = None,
        boots: Callable[[], Collection[str]] = tuple,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """An executor of one life of the agent.

        Args:
            boots: lives of other memory that the agent speaks for (a remote store); commands may be for one of them.
        """
        self._boots = boots
        self._node, self._boot, self._journal, self._verbs = node, boot, journal, verbs
        self._key = Ed25519PrivateKey.from_private_bytes(private_key)
        self._public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._console, self._console_print = Ed25519PublicKey.from_public_bytes(console_key), fingerprint(console_key)
        self._positions, self._clock = positions, clock
        self._long, self._patience = long or {}, patience_seconds
        self._jobs: dict[str, Job] = {}
        self._gatherer = Gatherer()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False

    @property
    def running(self) -> list[Running]:
        """Steps that are under way."""
        return [job.running for job in list(self._jobs.values()) if not job.ended.is_set()]

    def execute(self, body: bytes) -> Signed | Running | str:
        """The signed receipt, that the step is under way, or the code of a refusal.

        After a refusal nothing was done and nothing journalled, except what the journal has of the step already.
        """
        try:
            envelope = msgspec.json.decode(body, type=Sent)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "command-malformed"
        if envelope.key != self._console_print:
            return "command-signature"
        named = envelope.body.get("boot")
        boot = named if named in self._boots() else self._boot
        command = open_command(envelope, self._verify, node=self._node, now=self._clock(), boot=boot)
        if isinstance(command, str):
            return command
        try:
            with self._lock:
                known = self._journal.take(command.step, command.kind, self._clock())
                if known is not None:
                    return msgspec.json.decode(known, type=Signed)
                if command.step not in self._jobs:
                    whole = self._gatherer.take(command, envelope.keys)
                    if not isinstance(whole, Command):
                        return Running(command.step, 0, 0, whole) if isinstance(whole, int) else whole
                    command = whole
                if command.kind not in self._long:
                    return self._sign(command, self._do(command))
                job = self._job(command)
        except JournalFull:
            return "journal-full"
        if job is None:
            return "queue-full"
        job.ended.wait(self._patience)
        return self._answer(job)

    def _job(self, command: Command) -> Job | None:
        """The step's job, begun if there is none; None if there are too many, or the agent ends. Under the lock."""
        job = self._jobs.get(command.step)
        if job is not None:
            job.renew(command)
            return job
        if len(self._jobs) >= JOBS_MOST or self._closed:
            return None
        job = self._jobs[command.step] = Job(command, self._clock)
        thread = threading.Thread(target=self._work, args=(job,), name=command.kind, daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()
        return job

    def _work(self, job: Job) -> None:
        """The job's thread: whatever comes of it, `ended` is set, and a step without a receipt can be done again."""
        command = job.command
        try:
            job.result = self._long[command.kind](command, job)
        except Stopped:
            pass
        except JournalFull:
            job.refusal = "journal-full"
        except Exception as e:  # a receipt must come of it, or the step would be tried for ever
            job.result = Done("failed", "agent-error", {"error": type(e).__name__})
        with self._lock:
            if job.result is None:
                del self._jobs[command.step]
            else:
                self._settle(job)
        job.ended.set()

    def _settle(self, job: Job) -> Signed | None:
        """The receipt of a job that is done; None if it cannot be made durable now. Under the lock."""
        assert job.result is not None  # only what is done has a receipt
        try:
            signed = self._sign(job.command, job.result)
        except JournalFull:
            return None
        del self._jobs[job.command.step]
        return signed

    def _answer(self, job: Job) -> Signed | Running | str:
        if not job.ended.is_set():
            return job.running
        step = job.command.step
        try:
            with self._lock:
                known = self._journal.take(step, job.command.kind, self._clock())
                if known is not None:
                    return msgspec.json.decode(known, type=Signed)
                if job.result is not None:  # it is done, and was not written down: it is not done again
                    return self._settle(job) or "journal-full"
        except JournalFull:
            return "journal-full"
        return job.refusal or job.running  # it was stopped: the next call begins it again

    def _do(self, command: Command) -> Done:
        verb = self._verbs.get(command.kind)
        if verb is None:
            return Done("refused", "kind-unknown", {})
        try:
            done = verb(command)
        except JournalFull:
            raise
        except Exception as e:  # a receipt must come of it, or the step would be tried for ever
            return Done("failed", "agent-error", {"error": type(e).__name__})
        return done if isinstance(done, Done) else Done("done", "", done)

    def _sign(self, command: Command, done: Done) -> Signed:
        """The receipt, as the next of the chain, durably. Under the lock."""
        number, prev = self._journal.head()
        receipt = Receipt(
            v=PROTOCOL, step=command.step, kind=command.kind, node=self._node, outcome=done.outcome, at=self._clock(),
            prev=prev, positions=self._positions(), code=done.code, detail=done.detail,
        )  # fmt: skip
        signed = seal("receipt", receipt, self._key.sign, self._public)
        self._journal.finish(command.step, msgspec.json.encode(signed), number + 1, receipt_hash(receipt))
        return signed

    def _verify(self, signature: bytes, message: bytes) -> bool:
        try:
            self._console.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def close(self) -> None:
        """Jobs end; their steps stay open and go on in the next life, when they are ordered again."""
        with self._lock:
            self._closed = True
            jobs, threads = list(self._jobs.values()), self._threads
        for job in jobs:
            job.stop()
        for thread in threads:
            thread.join()
