"""The witness's answers over HTTP: `POST /add-checkpoint`, its key, and what it cosigned last of a log."""

import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.intake import Receive, whole
from audit.keyfiles import public_bytes
from audit.witness.rules import Refusal, read, refusal
from audit.witness.store import Store
from kvcore import notes
from kvcore.notes import VerifierKey

BODY_BYTES = 64 * 1024
READ_SECONDS = 5.0
SIZE_TYPE, TEXT_TYPE = "text/x.tlog.size", "text/plain; charset=utf-8"

Answer = tuple[int, str, str]
"""Status, body, content type."""
Send = Callable[[dict[str, Any]], Awaitable[None]]
log = logging.getLogger(__name__)


class Witness:
    """The ASGI application."""

    def __init__(
        self, *, name: str, key: Ed25519PrivateKey, store: Store, logs: Mapping[str, list[VerifierKey]],
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`logs`: origin → keys; of others it knows nothing."""
        self.key, self.store, self.logs, self.clock = key, store, logs, clock
        self.vkey = VerifierKey(name, notes.COSIGNATURE, public_bytes(key))

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """One answer; lifespan is not spoken."""
        if scope["type"] != "http":
            return
        status, body, kind = await self.answer(scope["method"], scope["path"], receive)
        headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})

    async def answer(self, method: str, path: str, receive: Receive) -> Answer:
        """The answer to one request."""
        if (method, path) == ("POST", "/add-checkpoint"):
            raw = await whole(receive, most=BODY_BYTES, seconds=READ_SECONDS)
            return self.add_checkpoint(raw) if raw is not None else (413, "too long, or too slow\n", TEXT_TYPE)
        if method != "GET":
            return 404, "not found\n", TEXT_TYPE
        if path == "/healthz":
            return 200, "ok\n", TEXT_TYPE
        if path == "/vkey":
            return 200, f"{self.vkey.text}\n", TEXT_TYPE
        for origin in self.logs:
            if path == f"/{sha256(origin.encode()).hexdigest()}/checkpoint" and (note := self.store.last(origin)):
                return 200, note, TEXT_TYPE
        return 404, "not found\n", TEXT_TYPE

    def add_checkpoint(self, raw: bytes) -> Answer:
        """The line of the cosignature. What it says is on the disk before it leaves."""
        asked = read(raw, self.logs)
        if isinstance(asked, Refusal):
            return _refused(asked)
        at = int(self.clock())
        try:
            no = self.store.advance(asked.checkpoint, asked.note, at=at, judge=lambda last: refusal(asked, last))
        except sqlite3.Error as e:
            log.error("nothing was cosigned: %s", e)
            return 503, "nothing was written\n", TEXT_TYPE
        if no:
            if no.size is None:
                log.warning("%s: %s", asked.checkpoint.origin, no.text)
            return _refused(no)
        return 200, notes.cosign(asked.note, self.vkey.name, self.vkey.public, at, self.key.sign), TEXT_TYPE


def _refused(no: Refusal) -> Answer:
    return (no.status, f"{no.size}\n", SIZE_TYPE) if no.size is not None else (no.status, f"{no.text}\n", TEXT_TYPE)
