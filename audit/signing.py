"""Decides how the console asks for signatures: the only module that speaks to the signer, and to a witness.

Nothing here raises because the other side is away: the answer is then a `NotAnswered`, and says whether asking again
can help.
"""

import base64
import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec
from django.conf import settings

from audit.asked import MOST_COMMANDS, Evidence, ExportAsked, HeadAsked, SignAllAsked, SignAsked
from audit.keyfiles import verify
from kvcore import notes
from kvcore.messages import Command, EnrolmentQuestion, Signed

SECONDS = 2.0
"""How long the signer may take; it is a process nearby, and never waits for anything but its disk."""
WITNESS_SECONDS = 5.0
MOST_ANSWER = 1 << 20
MOST_ASKED = 64 * 1024
"""Bytes of commands in one question to the signer, beside what proves their order."""
Word = TypeVar("Word", bound=msgspec.Struct)
Doubt = Literal["no-witness", "signer-on-this-host", "witness-on-this-host"]
"""Why a proof of the log says less than it could."""


@dataclass(frozen=True)
class NotAnswered:
    """There is no signature. `final`: a repetition of the same cannot change that.

    `size` and `root`: what was signed last, where the refusal says so.
    """

    code: str
    detail: str = ""
    final: bool = False
    size: int | None = None
    root: bytes | None = None


class PublicKeys(msgspec.Struct, frozen=True):
    """The public halves (`log`, `log_time` and `export` as vkeys), the log's name, and what was signed last."""

    command: str
    log: str
    log_time: str
    export: str
    origin: str
    size: int
    root: str
    record: str = ""
    """How this log goes on after another one (`kvcore.epochs`); "" = it is the first."""


class Proof(msgspec.Struct, frozen=True):
    """The command key in hex, and its signature under a node's question."""

    public_key: str
    signature: str


class _Note(msgspec.Struct, frozen=True):
    note: str


class _Answers(msgspec.Struct, frozen=True):
    answers: list[dict[str, Any]]


class _Refusal(msgspec.Struct, frozen=True):
    code: str = ""
    size: int | None = None
    root: str = ""


def public_keys() -> PublicKeys | NotAnswered:
    """All public keys of the signer."""
    token = settings.SIGNER_TOKEN or settings.SIGNER_LOG_TOKEN
    return _asked("GET", "/v1/public-keys", None, token, PublicKeys)


def log_key() -> notes.VerifierKey | None:
    """The key that signs the log's heads, of the signer; None: nobody can be asked now."""
    answer = public_keys()
    with contextlib.suppress(notes.NoteError):
        return notes.vkey_parse(answer.log) if isinstance(answer, PublicKeys) else None
    return None


def command_key() -> bytes | None:
    """The public command key (32 bytes): from the signer, else from the file it leaves; None: neither is there."""
    answer = public_keys()
    text = answer.command if isinstance(answer, PublicKeys) else ""
    try:
        return bytes.fromhex(text or Path(f"{settings.COMMAND_KEY_FILE}.pub").read_text().strip())
    except (OSError, ValueError):
        return None


def checkpoint(
    *, old_size: int, new_size: int, new_root: bytes, proof: Sequence[bytes], first: Evidence | None = None
) -> str | NotAnswered:
    """The signed note of this head. For the sequencer, which alone has the token of it.

    `stale-size`: what was signed last has the size in the answer; with a proof from there it may be signed.
    `log-shrunk` and `log-fork` are final: this is not the log that was signed. `epoch-not-begun`: another one begins,
    and `first`, its first leaf with its proof, has to say so.
    """
    asked = HeadAsked(
        old_size=old_size, new_size=new_size, new_root=new_root.hex(), proof=[one.hex() for one in proof], first=first
    )  # fmt: skip
    answer = _asked("POST", "/v1/checkpoint", asked, settings.SIGNER_LOG_TOKEN, _Note)
    return answer.note if isinstance(answer, _Note) else answer


def sign_command(
    command: Command, order: Evidence | None = None, approval: Evidence | None = None, *, size: int | None = None
) -> Signed | NotAnswered:
    """The command under the command key.

    Args:
        command: of any kind.
        order, approval: for a kind that destroys, the events that order and approve it, proved under the signer's
            latest head.
        size: of the tree under which they are proved. `stale-size` says which one is wanted now.
    """
    asked = SignAsked(command=msgspec.to_builtins(command), order=order, approval=approval, size=size)
    return _asked("POST", "/v1/sign", asked, settings.SIGNER_TOKEN, Signed)


def sign_commands(
    commands: Sequence[Command], order: Evidence | None = None, approval: Evidence | None = None, *,
    size: int | None = None,
) -> Iterator[Signed | NotAnswered]:  # fmt: skip
    """As `sign_command` for each, in their order, with as few questions as they fit in; each is asked when it is read.

    The first one that cannot be answered because of the signer ends the asking: all that are left get its answer.
    """
    away: NotAnswered | None = None
    for some in _questions([msgspec.to_builtins(command) for command in commands]):
        answers = away or _signed(SignAllAsked(commands=some, order=order, approval=approval, size=size))
        if isinstance(answers, NotAnswered):
            away = answers
            yield from [answers] * len(some)
        else:
            yield from answers


def _questions(commands: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    some: list[dict[str, Any]] = []
    length = 0
    for one in commands:
        size = len(msgspec.json.encode(one))
        if some and (length + size > MOST_ASKED or len(some) == MOST_COMMANDS):
            yield some
            some, length = [], 0
        some.append(one)
        length += size
    if some:
        yield some


def _signed(asked: SignAllAsked) -> list[Signed | NotAnswered] | NotAnswered:
    answer = _asked("POST", "/v1/sign-all", asked, settings.SIGNER_TOKEN, _Answers)
    if isinstance(answer, NotAnswered):
        return answer
    if len(answer.answers) != len(asked.commands):
        return NotAnswered("signer-unavailable", "not as many answers as commands")
    return [_one(one) for one in answer.answers]


def _one(answer: dict[str, Any]) -> Signed | NotAnswered:
    try:
        if "code" not in answer:
            return msgspec.convert(answer, Signed)
        refused = msgspec.convert(answer, _Refusal)
    except msgspec.ValidationError:
        return NotAnswered("signer-unavailable", "not a Signed")
    return NotAnswered(_code(refused), final=True)


def prove(question: EnrolmentQuestion) -> Proof | NotAnswered:
    """The answer to a node that wants to know whether the console has its key."""
    return _asked("POST", "/v1/prove", question, settings.SIGNER_TOKEN, Proof)


def sign_export(manifest_sha256: bytes, *, origin: str = "") -> str | NotAnswered:
    """The note by which the export key says that a bundle's manifest has this SHA-256.

    Args:
        manifest_sha256: of the manifest.
        origin: of the log, where it is one that ended; "" = the present one.
    """
    asked = ExportAsked(manifest_sha256=manifest_sha256.hex(), origin=origin)
    answer = _asked("POST", "/v1/export", asked, settings.SIGNER_TOKEN, _Note)
    return answer.note if isinstance(answer, _Note) else answer


def export_signed(note: str, sha256: bytes) -> bool:
    """Whether the note is the export key's over this SHA-256. False too where the signer's keys are not known now."""
    keys = public_keys()
    if isinstance(keys, NotAnswered):
        return False
    try:
        text = notes.note_open(note, [notes.vkey_parse(keys.export)], verify)
    except (notes.NoteError, ValueError):
        return False
    return str(getattr(text, "text", text)) == f"kvconsole/bundle/v1\n{keys.origin}\n{sha256.hex()}\n"


def evidence(*, leaf: bytes, index: int, proof: Sequence[bytes], body: bytes) -> Evidence:
    """An event and what proves that it is in the log, as the signer takes it."""
    return Evidence(leaf=leaf.hex(), index=index, proof=[one.hex() for one in proof], body=body.decode())


def cosign(*, old_size: int, proof: Sequence[bytes], note: str) -> str | NotAnswered:
    """The witness's line under a checkpoint, to be put at its end; checked with the key in KVC_WITNESS_VKEY.

    Args:
        old_size: what the witness saw last, as far as is known.
        proof: that the log grew from there.
        note: the signed checkpoint.

    `stale-size`: the witness saw another size last, which is in the answer. `no-witness`: none is set up.
    """
    if not settings.WITNESS_URL or not settings.WITNESS_VKEY:
        return NotAnswered("no-witness", final=True)
    body = "\n".join([f"old {old_size}", *(_b64(one) for one in proof), "", note])
    try:
        key = notes.vkey_parse(settings.WITNESS_VKEY)
        with _client(settings.WITNESS_URL, WITNESS_SECONDS) as client:
            answer = client.post(settings.WITNESS_URL.rstrip("/") + "/add-checkpoint", content=body.encode())
        text = answer.content[:MOST_ANSWER].decode()
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeDecodeError, notes.NoteError) as e:
        return NotAnswered("witness-unavailable", type(e).__name__)
    if answer.status_code == 409 and text.strip().isdecimal() and text.isascii():
        return NotAnswered("stale-size", size=int(text.strip()[:19]))
    if answer.status_code != 200:
        codes = {400: "head-malformed", 403: "log-key-unknown", 404: "log-unknown", 409: "log-fork", 422: "log-fork"}
        code = codes.get(answer.status_code, "witness-unavailable")
        return NotAnswered(code, f"HTTP {answer.status_code}", final=answer.status_code in codes)
    try:
        notes.note_open(note + text, [key], verify)
    except notes.NoteError as e:
        return NotAnswered("witness-signature", e.code, final=True)
    return text


def doubts() -> list[Doubt]:
    """What a page must say beside every claim of the log, as this process is set up; empty: nothing."""
    found: list[Doubt] = []
    if not settings.WITNESS_URL:
        found.append("no-witness")
    elif is_here(settings.WITNESS_URL):
        found.append("witness-on-this-host")
    if is_here(settings.SIGNER_URL):
        found.append("signer-on-this-host")
    return found


def is_here(url: str) -> bool:
    """Whether the address leads to this machine: loopback, or one of its own addresses. Known for a minute."""
    return _is_here(url, int(time.monotonic() // 60))


@lru_cache(maxsize=16)
def _is_here(url: str, minute: int) -> bool:
    try:
        found = socket.getaddrinfo(urlsplit(url).hostname or "", None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError, ValueError):
        return False
    return any(_is_own(family, address[0]) for family, _, _, _, address in found)


def _is_own(family: int, address: object) -> bool:
    """Only an address of this machine can be bound; nothing is sent."""
    text = str(address)
    try:
        if ipaddress.ip_address(text.partition("%")[0]).is_loopback:
            return True
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((text, 0))
    except (OSError, ValueError):
        return False
    return True


def _asked(method: str, path: str, body: msgspec.Struct | None, token: str, kind: type[Word]) -> Word | NotAnswered:
    if not token:
        return NotAnswered("signer-unavailable", "this process has no token for that")
    content = msgspec.json.encode(body) if body is not None else None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with _client(settings.SIGNER_URL, SECONDS) as client:
            answer = client.request(method, settings.SIGNER_URL + path, content=content, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        return NotAnswered("signer-unavailable", type(e).__name__)
    if answer.status_code != 200:
        return _refused(answer)
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NotAnswered("signer-unavailable", f"not a {kind.__name__}")


def _code(found: _Refusal) -> str:
    good = found.code and len(found.code) <= 63 and found.code.isascii() and found.code.replace("-", "").isalnum()
    return found.code if good else "signer-refused"


def _refused(answer: httpx.Response) -> NotAnswered:
    """What the signer says of a refusal, as far as it looks like one."""
    try:
        found = msgspec.json.decode(answer.content[:4096], type=_Refusal)
        root = bytes.fromhex(found.root) or None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        found, root = _Refusal(), None
    code = _code(found)
    final = answer.status_code in (400, 403) or code in ("log-shrunk", "log-fork")
    return NotAnswered(code, final=final, size=found.size, root=root)


def _client(url: str, seconds: float) -> httpx.Client:
    """For one request. Certificates are read only where there is one to check."""
    checked = url.startswith("https:") or _plain()
    return httpx.Client(timeout=seconds, follow_redirects=False, trust_env=False, verify=checked)


@lru_cache(maxsize=1)
def _plain() -> ssl.SSLContext:
    """For calls without TLS: an HTTP client wants one in any case, and would make its own each time."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
