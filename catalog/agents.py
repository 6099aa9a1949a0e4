"""Decides how the console speaks to a node: the only module that knows the transport.

A command goes to the `signer` process to be signed, then to the node's agent. The agent's address must lie in
KVC_AGENT_NETWORKS; it is resolved once and the connection goes to the address that was checked. What comes back counts
only if the key the node gave at enrolment signed it.
"""

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx
import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.conf import settings

from audit.asked import Evidence
from audit.signing import NotAnswered, sign_command, sign_commands
from catalog.models import Node
from kvcore.messages import Command, Receipt, Sent, Signed, fingerprint, receipt_hash, signed_bytes

SECONDS = 5.0
KIB = 1024
ANSWER_BYTES = {"ping": 64 * KIB, "digest": 1024 * KIB, "inventory": 8192 * KIB, "probe": 256 * KIB,
                "fences": 2048 * KIB}  # fmt: skip
COMMANDS_PATH = "/v1/commands"


@dataclass(frozen=True)
class Answered:
    """The node's own signed word about a command."""

    envelope: Signed
    receipt: Receipt
    hash: str


class UnderWay(msgspec.Struct, frozen=True):
    """The node is at it: how many bytes are done, and of how many. The same command asks again.

    `wants`: it has not begun, as the target at this place of its order has not come.
    """

    done_bytes: int = 0
    total_bytes: int = 0
    wants: int | None = None


class Proofs(NamedTuple):
    """What lets the signer sign a command that destroys: order and approval as evidence under the head of this size."""

    order: Evidence
    approval: Evidence | None
    size: int


@dataclass(frozen=True)
class Target:
    """An address that was checked: where to connect, and what to call it there."""

    url: str
    host: str
    authority: str


def check_address(agent_url: str) -> Target | NotAnswered:
    """Where `agent_url` leads, or why nothing will ever be sent there.

    Plain HTTP is for loopback alone. A name is resolved here and nowhere else: what it resolves to later is no matter.
    """
    if not agent_url.isascii() or not agent_url.isprintable():  # a resolver and a header would read it differently
        return NotAnswered("agent-url-refused", "not an address", final=True)
    try:
        parts = urlsplit(agent_url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        return NotAnswered("agent-url-refused", "not an address", final=True)
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        return NotAnswered("agent-url-refused", "http or https, a host, no user", final=True)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return NotAnswered("agent-url-refused", "an address without a path", final=True)
    port = port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return NotAnswered("agent-unresolved", host)
    except UnicodeError:  # a label that is empty or too long
        return NotAnswered("agent-url-refused", "not an address", final=True)
    address = ipaddress.ip_address(str(found[0][4][0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if not any(address in ipaddress.ip_network(network) for network in settings.AGENT_NETWORKS):
        return NotAnswered("agent-url-refused", "outside KVC_AGENT_NETWORKS", final=True)
    if parts.scheme == "http" and not address.is_loopback:
        return NotAnswered("agent-url-refused", "plain HTTP off loopback", final=True)
    literal = f"[{address}]" if address.version == 6 else str(address)
    return Target(f"{parts.scheme}://{literal}:{port}", host, parts.netloc)


def call(node: Node, command: Command) -> Answered | NotAnswered:
    """The node's receipt for the command, signed by the node, or why there is none.

    The node may have done it although nothing came back: sending the same step again gets the same receipt.
    """
    found = order(node, command)
    return NotAnswered("step-running") if isinstance(found, UnderWay) else found


def order(
    node: Node, command: Command, proofs: Proofs | None = None, keys: Mapping[str, bytes] | None = None
) -> Answered | UnderWay | NotAnswered:
    """As `call`; for a command that destroys, with what proves that it was ordered. It may take long.

    `keys`: those that its targets name by their hashes; they go beside what is signed. `stale-size`: the signer wants
    the proofs under the head in the answer. Asks no database.
    """
    if node.public_key is None:
        return NotAnswered("node-not-enrolled", final=True)
    if isinstance(refused := check_address(node.agent_url), NotAnswered):  # nothing is signed for nobody
        return refused
    return send(node, command, next(signed([command], proofs)), keys)


def signed(commands: Sequence[Command], proofs: Proofs | None = None) -> Iterator[Signed | NotAnswered]:
    """The commands as they are sent, in their order, signed together. Asks no database."""
    given = (proofs.order, proofs.approval) if proofs else (None, None)
    if len(commands) == 1:
        return iter([sign_command(commands[0], *given, size=proofs.size if proofs else None)])
    return sign_commands(commands, *given, size=proofs.size if proofs else None)


def send(
    node: Node, command: Command, envelope: Signed | NotAnswered, keys: Mapping[str, bytes] | None = None
) -> Answered | UnderWay | NotAnswered:
    """As `order`, of a command that was signed; what was not is not sent. Asks no database."""
    if isinstance(envelope, NotAnswered):
        return envelope
    target = check_address(node.agent_url)
    if isinstance(target, NotAnswered):
        return target
    body, signature, key = envelope.body, envelope.signature, envelope.key
    sent = Sent(body=body, signature=signature, key=key, keys=dict(keys)) if keys else envelope
    answer = _post(target, msgspec.json.encode(sent), ANSWER_BYTES.get(command.kind, 64 * KIB))
    return _read_receipt(node, command, answer) if isinstance(answer, bytes) else answer


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Made once: to read the machine's certificates costs more than a call."""
    return ssl.create_default_context()


@lru_cache(maxsize=1)
def _plain() -> ssl.SSLContext:
    """For calls without TLS: an HTTP client wants one in any case, and would make its own each time."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _post(target: Target, body: bytes, most: int) -> bytes | UnderWay | NotAnswered:
    """The body of a 200, read to `most` bytes and for `SECONDS` in all."""
    deadline = time.monotonic() + SECONDS
    headers = {"Host": target.authority, "Content-Type": "application/json"}
    extensions = {"sni_hostname": target.host}
    checked = _tls() if target.url.startswith("https:") else _plain()
    try:
        with (
            httpx.Client(timeout=SECONDS, follow_redirects=False, trust_env=False, verify=checked) as client,
            client.stream(
                "POST", target.url + COMMANDS_PATH, content=body, headers=headers, extensions=extensions
            ) as answer,
        ):
            content = b""
            for part in answer.iter_raw():
                content += part
                if len(content) > most:
                    return NotAnswered("agent-answer-too-large")
                if time.monotonic() > deadline:
                    return NotAnswered("agent-too-slow")
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        return NotAnswered("agent-unreachable", type(e).__name__)
    if answer.status_code == 202:
        return _under_way(content)
    if answer.status_code != 200:
        return NotAnswered(_code(content) or "agent-refused", f"HTTP {answer.status_code}")
    return content


def _under_way(content: bytes) -> UnderWay:
    try:
        return msgspec.json.decode(content, type=UnderWay)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UnderWay()


def _read_receipt(node: Node, command: Command, answer: bytes) -> Answered | NotAnswered:
    try:
        envelope = msgspec.json.decode(answer, type=Signed)
        receipt = msgspec.convert(envelope.body, Receipt)
        signature = bytes.fromhex(envelope.signature)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError, RecursionError):
        return NotAnswered("receipt-malformed")
    key = bytes(node.public_key or b"")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed_bytes("receipt", envelope.body))
    except (InvalidSignature, ValueError, RecursionError):
        return NotAnswered("receipt-signature")
    if envelope.key != fingerprint(key):
        return NotAnswered("receipt-signature", "names another key")
    if (receipt.step, receipt.kind, receipt.node) != (command.step, command.kind, str(node.id)):
        return NotAnswered("receipt-not-for-this-command")
    return Answered(envelope, receipt, receipt_hash(receipt))


def _code(content: bytes) -> str:
    """The code of a refusal, where the answer names one that looks like one."""
    try:
        code = msgspec.json.decode(content[: 4 * KIB]).get("code", "")
    except (msgspec.DecodeError, AttributeError, UnicodeDecodeError, RecursionError):
        return ""
    return code if isinstance(code, str) and len(code) <= 63 and code.replace("-", "").isalnum() else ""
