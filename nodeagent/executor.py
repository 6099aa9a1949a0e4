"""Decides whether a command is genuine and due here, does it once, and proves it with a signed receipt.

The same step gives the same receipt, whatever happened in between: it is journalled before it is done and its receipt
before it is answered. Receipts are chained per node. Called by `server`; verbs are given by `agent`.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kvcore.messages import (
    PROTOCOL,
    Command,
    Receipt,
    Signed,
    SourcePosition,
    fingerprint,
    open_command,
    receipt_hash,
    seal,
)
from nodeagent.journal import Journal

Verb = Callable[[Command], dict[str, Any]]
"""Does the command and answers what its receipt tells. JSON; integers above 2^53 as strings. Must bear repetition."""


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
    ) -> None:
        self._node, self._boot, self._journal, self._verbs = node, boot, journal, verbs
        self._key = Ed25519PrivateKey.from_private_bytes(private_key)
        self._public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._console, self._console_print = Ed25519PublicKey.from_public_bytes(console_key), fingerprint(console_key)
        self._positions, self._clock = positions, clock
        self._lock = threading.Lock()

    def execute(self, body: bytes) -> Signed | str:
        """The signed receipt, or the code of a refusal (nothing was done and nothing journalled then)."""
        try:
            envelope = msgspec.json.decode(body, type=Signed)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "command-malformed"
        if envelope.key != self._console_print:
            return "command-signature"
        command = open_command(envelope, self._verify, node=self._node, now=self._clock(), boot=self._boot)
        if isinstance(command, str):
            return command
        with self._lock:
            known = self._journal.take(command.step, command.kind, self._clock())
            if known is not None:
                return msgspec.json.decode(known, type=Signed)
            return self._do(command)

    def _do(self, command: Command) -> Signed:
        outcome, code, detail = "done", "", dict[str, Any]()
        verb = self._verbs.get(command.kind)
        if verb is None:
            outcome, code = "refused", "kind-unknown"
        else:
            try:
                detail = verb(command)
            except Exception as e:  # a receipt must come of it, or the step would be tried for ever
                outcome, code, detail = "failed", "agent-error", {"error": type(e).__name__}
        number, prev = self._journal.head()
        receipt = Receipt(
            v=PROTOCOL, step=command.step, kind=command.kind, node=self._node, outcome=outcome, at=self._clock(),
            prev=prev, positions=self._positions(), code=code, detail=detail,
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
