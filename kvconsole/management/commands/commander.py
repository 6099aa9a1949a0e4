"""The process that holds the command key: signs orders to nodes, and only harmless ones.

It has no database login, listens on loopback, and knows one secret token. A process that was taken over and may reach
it can make nodes list what they hold, and nothing else: destructive kinds are refused here whoever asks.
"""

import contextlib
import hmac
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from kvconsole.infra import arguments
from kvconsole.infra.heads import Heads
from kvcore import messages

KINDS = frozenset({"inventory", "digest", "ping"})
BODY_BYTES = 64 * 1024
LIFE_SECONDS, SKEW_SECONDS = 600.0, 60.0

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def command_key(path: Path, *, make: bool = False) -> Ed25519PrivateKey:
    """The key of the file; beside it `<path>.pub` has the public half in hex.

    Args:
        path: 32 raw bytes, mode 0600.
        make: a key that is not there is made.

    Raises:
        CommandError: the file is missing, damaged or open to others.
    """
    try:
        if make and not path.exists():
            _make_key(path)
        raw, mode = path.read_bytes(), path.stat().st_mode
    except OSError as e:
        raise CommandError(f"the command key: {e.strerror}: {path}") from e
    if mode & 0o077:
        raise CommandError(f"the command key can be read by others: {path} must have mode 0600")
    if len(raw) != 32:
        raise CommandError(f"the command key is damaged: {path}")
    key = Ed25519PrivateKey.from_private_bytes(raw)
    public = path.with_name(f"{path.name}.pub")
    if not public.exists() or public.read_text().strip() != _public(key).hex():
        public.write_text(_public(key).hex() + "\n")
    return key


def _make_key(path: Path) -> None:
    fresh = Ed25519PrivateKey.generate()
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(fresh.private_bytes_raw())
        file.flush()
        os.fsync(fd)
    with contextlib.suppress(FileExistsError):  # the first one wins
        os.link(part, path)
    part.unlink()


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


class Commander:
    """The ASGI application."""

    def __init__(self, key: Ed25519PrivateKey, token: str, clock: Callable[[], float] = time.time) -> None:
        self.key, self.token, self.clock = key, token, clock
        self.public = _public(key)

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


class Command(BaseCommand):
    """Serves on loopback until it is told to end."""

    help = "Hold the command key and sign harmless orders to nodes."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        parser.add_argument("--port", type=arguments.port, default=8002)
        parser.add_argument("--init", action="store_true", help="make the key if the file is not there")

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs until SIGTERM or SIGINT.

        Raises:
            CommandError: no key, or no token that callers must know.
        """
        if len(settings.COMMANDER_TOKEN) < 32:
            raise CommandError("KVC_COMMANDER_TOKEN must have at least 32 characters")
        if not settings.COMMAND_KEY_FILE:
            raise CommandError("KVC_COMMAND_KEY_FILE is not set")
        make = options["init"] or os.environ.get("KVC_ENV", "dev") != "prod"
        key = command_key(Path(settings.COMMAND_KEY_FILE), make=make)
        app = Commander(key, settings.COMMANDER_TOKEN)
        uvicorn.run(
            app, host="127.0.0.1", port=options["port"], http=Heads, log_level="warning", access_log=False,
            lifespan="off",
        )  # fmt: skip
