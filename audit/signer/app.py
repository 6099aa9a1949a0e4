"""The signer's answers over HTTP: heads of a log that only grows, orders to nodes, bundles of exports.

It has no database login, listens on loopback, and knows two secret tokens. Who writes events can have commands signed,
who keeps the log can have its heads signed, and nobody has both: a web process that was taken over cannot prove an
order in a log of its own. Harmless commands are signed for whoever knows the first token; all others only by `orders`.
"""

import hmac
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from audit.asked import ExportAsked, HeadAsked, SignAllAsked, SignAsked, strict
from audit.intake import Receive, whole
from audit.keyfiles import public_bytes
from audit.signer import orders
from audit.signer.heads import begins, next_head
from audit.signer.setup import Keys, export_name, is_epoch
from audit.signer.state import State, StateFile, StateRefused
from kvcore import messages, notes
from kvcore.messages import Command
from kvcore.notes import COSIGNATURE, ED25519, Checkpoint, VerifierKey

HARMLESS = frozenset({"inventory", "digest", "ping", "verify", "probe", "fences"})
"""Kinds that only list and look. Every other kind destroys: a fence is for ever, so who could raise one at will could
take a namespace from its tenant."""
BODY_BYTES = 256 * 1024
READ_SECONDS = 5.0
LIFE_SECONDS, SKEW_SECONDS = 600.0, 60.0
MOST_KIND = 32

Answer = tuple[int, Any]
Asked = TypeVar("Asked", bound=msgspec.Struct)
Send = Callable[[dict[str, Any]], Awaitable[None]]
_COMMAND_FIELDS = frozenset(Command.__struct_fields__)


class Tokens(NamedTuple):
    """Who may ask: `console` for commands, proofs of the key and exports; `log` for heads."""

    console: str
    log: str


class Signer:
    """The ASGI application. One request after the other: what is signed depends on what was signed before."""

    def __init__(
        self, keys: Keys, state: State, held: StateFile, tokens: Tokens, clock: Callable[[], float] = time.time
    ) -> None:
        """`state` is what `held` says; `held` is locked by this process."""
        self.keys, self.state, self.held, self.tokens, self.clock = keys, state, held, tokens, clock
        self.command_public = public_bytes(keys.command)
        self.export_key = VerifierKey(export_name(state.origin), ED25519, public_bytes(keys.export))

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """One answer in JSON; lifespan is not spoken."""
        if scope["type"] != "http":
            return
        status, body = await self.answer(scope, receive)
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode(body)})

    async def answer(self, scope: dict[str, Any], receive: Receive) -> Answer:
        """Status and body; what is no answer is a code."""
        asked = (scope["method"], scope["path"])
        if asked == ("GET", "/healthz"):
            return 200, {"ok": True}
        caller = self._caller(scope)
        if not caller:
            return 401, {"code": "not-authenticated"}
        if asked == ("GET", "/v1/public-keys"):
            return 200, self.public_keys()
        work: dict[tuple[str, str], tuple[str, Callable[[bytes], Answer]]] = {
            ("POST", "/v1/checkpoint"): ("log", self.checkpoint),
            ("POST", "/v1/sign"): ("console", self.sign),
            ("POST", "/v1/sign-all"): ("console", self.sign_all),
            ("POST", "/v1/prove"): ("console", self.prove),
            ("POST", "/v1/export"): ("console", self.export),
        }
        if asked not in work:
            return 404, {"code": "not-found"}
        wanted, do = work[asked]
        if caller != wanted:
            return 403, {"code": "token-of-another-use"}
        raw = await whole(receive, most=BODY_BYTES, seconds=READ_SECONDS)
        return do(raw) if raw is not None else (413, {"code": "body-too-large"})

    def public_keys(self) -> dict[str, Any]:
        """All public halves, and where the log stands. `log_time` is the key of the line that says when that was,
        `record` how this log goes on after another one."""
        origin, key, head, record = self.state
        return {
            "command": self.command_public.hex(),
            "log": VerifierKey(origin, ED25519, key).text,
            "log_time": VerifierKey(origin, COSIGNATURE, key).text,
            "export": self.export_key.text,
            "origin": origin,
            "size": head.size,
            "root": head.root.hex(),
            "record": record,
        }

    def checkpoint(self, raw: bytes) -> Answer:
        """The signed head: on the disk before it leaves, so that nothing else is ever signed in its place."""
        asked = _read(raw, HeadAsked)
        if asked is None:
            return 400, {"code": "head-malformed"}
        if self.state.record and not self.state.head.size and not begins(self.state.record, asked):
            return 409, {"code": "epoch-not-begun", "size": 0, "root": self.state.head.root.hex()}
        head = next_head(self.state.head, asked)
        if isinstance(head, str):
            return 409, {"code": head, "size": self.state.head.size, "root": self.state.head.root.hex()}
        if head != self.state.head:
            state = self.state._replace(head=head)
            try:
                self.held.save(state, before=self.state)
            except (StateRefused, OSError):
                return 503, {"code": "state-not-written"}
            self.state = state
        return 200, {"note": self._note()}

    def _note(self) -> str:
        """The last head, signed, with a line that says that the log stood so at this time."""
        (origin, public, head, _), key = self.state, self.keys.log
        text = notes.checkpoint_text(Checkpoint(origin, head.size, head.root))
        note = notes.note_sign(text, origin, ED25519, public, key.sign)
        return note + notes.cosign(note, origin, public, int(self.clock()), key.sign)

    def sign(self, raw: bytes) -> Answer:
        """The signed envelope, or why this key does not sign that. Nothing is remembered."""
        asked = self._signing(raw)
        return self._signed(asked.command, _Proving(self, asked)) if asked else (400, {"code": "command-malformed"})

    def sign_all(self, raw: bytes) -> Answer:
        """Of each command what `sign` would answer; what proves their order is looked at once.

        Proofs under another head than the last prove nothing of any of them: then nothing is signed.
        """
        asked = _read(raw, SignAllAsked)
        if asked is None:
            return 400, {"code": "command-malformed"}
        proving = _Proving(self, asked)
        if proving.stale:
            return proving.stale
        return 200, {"answers": [self._signed(command, proving)[1] for command in asked.commands]}

    def _signed(self, given: dict[str, Any], proving: "_Proving") -> Answer:
        try:
            command = msgspec.convert(given, Command)
        except msgspec.ValidationError:
            command = None
        if command is None or not _COMMAND_FIELDS.issuperset(given):
            return 400, {"code": "command-malformed"}
        if command.v != messages.PROTOCOL:
            return 400, {"code": "version-unsupported"}
        if command.issued_at > proving.now + SKEW_SECONDS or not (
            proving.now < command.expires_at <= proving.now + LIFE_SECONDS
        ):
            return 403, {"code": "command-expired"}
        if command.kind not in HARMLESS and (refused := proving.refused(command)):
            return refused
        try:
            return 200, messages.seal("command", command, self.keys.command.sign, self.command_public)
        except (ValueError, RecursionError):  # an argument has no canonical form
            return 400, {"code": "command-malformed"}

    def _signing(self, raw: bytes) -> SignAsked | None:
        """A command with its evidence; a command alone is one without."""
        try:
            found = strict(raw)
            if isinstance(found, dict) and "command" not in found:
                found = {"command": found}
            return msgspec.convert(found, SignAsked)
        except (ValueError, msgspec.ValidationError, RecursionError):
            return None

    def prove(self, raw: bytes) -> Answer:
        """The signature under a node's question, by which it knows that the console has this key."""
        question = _read(raw, messages.EnrolmentQuestion)
        if question is None:
            return 400, {"code": "question-malformed"}
        try:
            signature = self.keys.command.sign(messages.enrolment_bytes(question))
        except ValueError:  # a character that has no canonical form
            return 400, {"code": "question-malformed"}
        return 200, {"public_key": self.command_public.hex(), "signature": signature.hex()}

    def export(self, raw: bytes) -> Answer:
        """The signed note that a bundle of this console, of this log or one before it, has this manifest."""
        asked = _read(raw, ExportAsked)
        if asked is None:
            return 400, {"code": "export-malformed"}
        origin = asked.origin or self.state.origin
        if not is_epoch(origin, self.state.origin):
            return 403, {"code": "log-of-another-name"}
        _, kind, public = self.export_key
        text = f"kvconsole/bundle/v1\n{origin}\n{asked.manifest_sha256}\n"
        return 200, {"note": notes.note_sign(text, export_name(origin), kind, public, self.keys.export.sign)}

    def _caller(self, scope: dict[str, Any]) -> str:
        """Which token was given; "" for none of them."""
        given, found = dict(scope["headers"]).get(b"authorization", b""), ""
        for use, token in self.tokens._asdict().items():
            if token and hmac.compare_digest(given, b"Bearer " + token.encode()):
                found = use
        return found


class _Proving:
    """What came with one command or several, looked at once, when the first of them needs it."""

    def __init__(self, signer: Signer, asked: SignAsked | SignAllAsked) -> None:
        self.now, self._head, self._asked = signer.clock(), signer.state.head, asked
        self._found: orders.Ordered | str | None = None

    @property
    def stale(self) -> Answer | None:
        """The refusal of proofs that are of another tree than was signed last."""
        if self._asked.order is None or self._asked.size in (None, self._head.size):
            return None
        return 409, {"code": "stale-size", "size": self._head.size, "root": self._head.root.hex()}

    def refused(self, command: Command) -> Answer | None:
        """Why this destructive command is not signed; None: the log proves that it was ordered and approved."""
        kind, order = command.kind, self._asked.order
        if len(kind) > MOST_KIND or not (kind.isascii() and kind.islower() and kind.replace("-", "").isalpha()):
            return 403, {"code": "kind-not-allowed"}
        if order is None:
            return 403, {"code": "order-missing"}
        if self.stale:
            return self.stale
        if self._found is None:
            self._found = orders.ordered(order, self._asked.approval, head=self._head, now=self.now)
        code = self._found if isinstance(self._found, str) else orders.beyond(self._found, command)
        return (403, {"code": code}) if code else None


def _read(raw: bytes, kind: type[Asked]) -> Asked | None:
    try:
        return msgspec.convert(strict(raw), kind)
    except (ValueError, msgspec.ValidationError, RecursionError):
        return None
