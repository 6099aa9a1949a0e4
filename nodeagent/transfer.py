"""Decides how two agents prove to each other who they are, and what travels between them when blocks move.

The destination asks, the source answers: two keys that live as long as one connection (X25519, HKDF), signed by the
identities that the console named to both in signed commands, then AES-256-GCM on every message, on loopback too. A
session is cheap: whoever was cut off opens another. Used by `transfer_source` and `transfer_target`.
"""

import hashlib
import secrets
from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kvcore.wire import UNREADABLE
from nodeagent.tiers.base import RunMeta

PATH = "/v1/transfers"
HELLO, WELCOME, ASK, ANSWER = b"kvconsole/transfer-hello/v1\n", b"kvconsole/transfer-welcome/v1\n", b"ask", b"answer"
CUT_SECONDS = 10.0
"""How long one exchange may take before it counts as cut."""
_MESSAGE_MAX = 2**32
_T = TypeVar("_T")


class Cut(Exception):
    """The exchange came to nothing: nobody answered, or the answer ended early. It can be begun again."""


class Denied(Exception):
    """The other side will not, whoever asks again. `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Hello(msgspec.Struct, frozen=True):
    """The destination: which offer it is for, who it is, whom it means, and its half of the key."""

    offer: str
    node: str
    to: str
    share: bytes
    nonce: bytes


class Welcome(msgspec.Struct, frozen=True):
    """The source: its half of the key, for this hello and no other."""

    session: bytes
    node: str
    share: bytes
    hello: bytes


class SignedBlob(msgspec.Struct, frozen=True):
    """Bytes of a hello or welcome, and whose they are."""

    body: bytes
    signature: bytes


class SealedBlob(msgspec.Struct, frozen=True):
    """One message of a session. Numbers only grow."""

    session: bytes
    number: int
    body: bytes


class Ask(msgspec.Struct, frozen=True):
    """`list`: the manifest from run `after` on. `fetch`: these runs, at most `credit` bytes of them."""

    verb: str
    after: int = 0
    versions: list[int] = []
    credit: int = 0


class Page(msgspec.Struct, frozen=True):
    """A page of the manifest: `total` runs of `total_bytes` in all.

    `ages`: of each run, how many seconds ago it was made, wherever that was: it grows no younger by being moved.
    """

    runs: list[RunMeta]
    total: int
    total_bytes: int
    ages: list[float] = []


class Parcel(msgspec.Struct, frozen=True):
    """Runs as they lie at the source (sealed blocks, each with its digest), and those it cannot give, with the code."""

    runs: list[tuple[int, bytes]]
    refused: list[tuple[int, str]]


class Session:
    """The keys of one connection, as one side has them."""

    def __init__(self, session: bytes, mine: bytes, theirs: bytes) -> None:
        self.id, self._mine, self._theirs = session, AESGCM(mine), AESGCM(theirs)
        self.sent = self.heard = 0

    def seal(self, value: Any) -> bytes:
        """The next message to the other side."""
        self.sent += 1
        body = self._mine.encrypt(_nonce(self.sent), msgspec.msgpack.encode(value), self.id)
        return msgspec.msgpack.encode(SealedBlob(self.id, self.sent, body))

    def open(self, blob: SealedBlob) -> bytes:
        """What the other side said, if it is later than all it said before.

        Raises:
            Denied: transfer-session: it is not of this session, was changed, or was said before.
        """
        if blob.session != self.id or not self.heard < blob.number < _MESSAGE_MAX:
            raise Denied("transfer-session")
        try:
            body = self._theirs.decrypt(_nonce(blob.number), blob.body, self.id)
        except InvalidTag:
            raise Denied("transfer-session") from None
        self.heard = blob.number
        return body


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def _keys(share: X25519PrivateKey, other: bytes, transcript: bytes) -> tuple[bytes, bytes]:
    """(key of what the destination says, key of what the source says)."""
    try:
        secret = share.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise Denied("transfer-session") from None
    made = HKDF(SHA256(), 64, hashlib.sha256(transcript).digest(), b"kvconsole/transfer/v1").derive(secret)
    return made[:32], made[32:]


def _share() -> tuple[X25519PrivateKey, bytes]:
    made = X25519PrivateKey.generate()
    return made, made.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def signed(key: Ed25519PrivateKey, domain: bytes, value: msgspec.Struct) -> tuple[bytes, SignedBlob]:
    """(its bytes, the value signed)."""
    body = msgspec.msgpack.encode(value)
    return body, SignedBlob(body, key.sign(domain + body))


def proved(blob: SignedBlob, domain: bytes, key: bytes, kind: type[_T]) -> _T:
    """The value, if the holder of the key signed it.

    Raises:
        Denied: transfer-signature.
    """
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(blob.signature, domain + blob.body)
        return msgspec.msgpack.decode(blob.body, type=kind)
    except (InvalidSignature, ValueError, *UNREADABLE):
        raise Denied("transfer-signature") from None


def welcome(key: Ed25519PrivateKey, node: str, hello: Hello, raw: bytes) -> tuple[Session, SignedBlob]:
    """The source's session for a hello that was proved, and what it answers."""
    share, public = _share()
    said = Welcome(secrets.token_bytes(16), node, public, hashlib.sha256(raw).digest())
    body, blob = signed(key, WELCOME, said)
    theirs, mine = _keys(share, hello.share, raw + body)
    return Session(said.session, mine, theirs), blob


Post = Callable[[bytes], bytes]
"""Sends one body to the source and brings its answer. Raises Cut or Denied."""


class Line:
    """The destination's side of one connection to a source."""

    def __init__(self, post: Post, *, key: Ed25519PrivateKey, node: str, offer: str, to: str, to_key: bytes) -> None:
        """An open session.

        Raises:
            Cut, Denied.
        """
        share, public = _share()
        raw, blob = signed(key, HELLO, Hello(offer, node, to, public, secrets.token_bytes(16)))
        answer = _decoded(post(msgspec.msgpack.encode(blob)), SignedBlob)
        said = proved(answer, WELCOME, to_key, Welcome)
        if said.node != to or said.hello != hashlib.sha256(raw).digest():
            raise Denied("transfer-signature")
        mine, theirs = _keys(share, said.share, raw + answer.body)
        self._session, self._post = Session(said.session, mine, theirs), post

    def page(self, after: int) -> Page:
        """The manifest from there on."""
        return self._ask(Ask("list", after=after), Page)

    def fetch(self, versions: list[int], credit: int) -> Parcel:
        """These runs, as far as the credit goes."""
        return self._ask(Ask("fetch", versions=versions, credit=credit), Parcel)

    def _ask(self, ask: Ask, kind: type[_T]) -> _T:
        answer = _decoded(self._post(self._session.seal(ask)), SealedBlob)
        return _decoded(self._session.open(answer), kind)


def _decoded(raw: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except UNREADABLE:
        raise Cut("the answer ended early") from None


def poster(client: httpx.Client, url: str) -> Post:
    """Sends to a source over HTTP."""

    def post(body: bytes) -> bytes:
        headers = {"Content-Type": "application/msgpack"}
        try:
            answer = client.post(url.rstrip("/") + PATH, content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            raise Cut(type(e).__name__) from None
        if answer.status_code == 200:
            return answer.content
        code = _code(answer)
        if code and answer.status_code < 500:
            raise Denied(code)
        raise Cut(f"HTTP {answer.status_code}")

    return post


def _code(answer: httpx.Response) -> str:
    try:
        code = msgspec.json.decode(answer.content).get("code", "")
    except (*UNREADABLE, AttributeError):
        return ""
    return code if isinstance(code, str) and len(code) <= 63 else ""


def transfer_client() -> httpx.Client:
    """A client that follows nothing and asks no proxy."""
    return httpx.Client(timeout=httpx.Timeout(CUT_SECONDS, connect=2.0), trust_env=False, follow_redirects=False)
