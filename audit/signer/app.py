"""The signer's answers over HTTP: it signs orders to nodes, and only harmless ones.

It has no database login, listens on loopback, and knows one secret token. A process that was taken over and may reach
it can make nodes list what they hold, and nothing else: destructive kinds are refused here whoever asks.
"""

import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.keyfiles import public_bytes
from kvcore import messages

KINDS = frozenset({"inventory", "digest", "ping"})
BODY_BYTES = 64 * 1024
LIFE_SECONDS, SKEW_SECONDS = 600.0, 60.0

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Signer:
    """The ASGI application."""

    def __init__(self, key: Ed25519PrivateKey, token: str, clock: Callable[[], float] = time.time) -> None:
        self.key, self.token, self.clock = key, token, clock
        self.public = public_bytes(key)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """One answer in JSON; lifespan is not spoken."""
        if scope["type"] != "http":
            return
        status, body = await self.answer(scope, receive)
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode(body)})

    async def answer(self, scope: dict[str, Any], receive: Receive) -> tuple[int, Any]:
        """Status and body: `/healthz`, `/v1/public-key`, `/v1/sign`, `/v1/prove`; anything else is a code."""
        path, method = scope["path"], scope["method"]
        if (method, path) == ("GET", "/healthz"):
            return 200, {"ok": True}
        if not self._is_known(scope):
            return 401, {"code": "not-authenticated"}
        if (method, path) == ("GET", "/v1/public-key"):
            return 200, {"public_key": self.public.hex()}
        work = {"/v1/sign": self.sign, "/v1/prove": self.prove}.get(path) if method == "POST" else None
        if work is None:
            return 404, {"code": "not-found"}
        raw = b""
        while True:
            message = await receive()
            raw += message.get("body", b"")
            if message["type"] == "http.disconnect" or len(raw) > BODY_BYTES:
                return 413, {"code": "body-too-large"}
            if not message.get("more_body"):
                return work(raw)

    def sign(self, raw: bytes) -> tuple[int, Any]:
        """The signed envelope, or why this key does not sign that. Nothing is remembered."""
        try:
            command = msgspec.json.decode(raw, type=messages.Command)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return 400, {"code": "command-malformed"}
        now = self.clock()
        if command.v != messages.PROTOCOL:
            return 400, {"code": "version-unsupported"}
        if command.kind not in KINDS:
            return 403, {"code": "kind-not-allowed"}
        if command.issued_at > now + SKEW_SECONDS or not now < command.expires_at <= now + LIFE_SECONDS:
            return 403, {"code": "command-expired"}
        try:
            return 200, messages.seal("command", command, self.key.sign, self.public)
        except (ValueError, RecursionError):  # an argument has no canonical form
            return 400, {"code": "command-malformed"}

    def prove(self, raw: bytes) -> tuple[int, Any]:
        """The signature under a node's question, by which it knows that the console has this key."""
        try:
            question = msgspec.json.decode(raw, type=messages.EnrolmentQuestion)
            signature = self.key.sign(messages.enrolment_bytes(question))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return 400, {"code": "question-malformed"}
        return 200, {"public_key": self.public.hex(), "signature": signature.hex()}

    def _is_known(self, scope: dict[str, Any]) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return bool(self.token) and hmac.compare_digest(given, b"Bearer " + self.token.encode())
