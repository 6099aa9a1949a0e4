"""Decides how a node becomes one of the fleet: the console proves itself first, then the node does.

The enrolment token carries a fingerprint of the console's command key. Before the token is sent, whoever answers must
show that key and sign a question with it that nobody asked before: a wrong console learns nothing. The node's key pair
is made here and never leaves. Called by `__main__`.
"""

import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kvcore.messages import EnrolmentQuestion, enrolment_bytes, fingerprint
from kvcore.wire import UNREADABLE
from nodeagent.agent import DRIVE_FILE, KEY_FILE, TOKEN_FILE, describe_config, new_drive_token
from nodeagent.config import (
    VERSION,
    Config,
    ConfigError,
    Home,
    Ingest,
    TierConfig,
    check,
    read_private,
    require_private,
)
from nodeagent.engines.reference import describe

_T = TypeVar("_T")
_HINTS = {
    "node-name-mismatch": ": the enrolment token was made for a node of another name; give that one as --name. The "
    "token was not used",
}
"""What to do about a refusal, where its code does not say it all."""


class NotJoined(Exception):
    """The node is not enrolled; nothing was written. The message says what to do."""


class _FleetKey(msgspec.Struct, frozen=True):
    public_key: str
    proof: str = ""


class _Enrolled(msgspec.Struct, frozen=True):
    node_token: str
    console_public_key: str
    ingest: list[Ingest]
    shards: int | list[Any] = 1
    node: str = ""
    id: str = ""


def join(
    home: Home,
    *,
    console_url: str,
    token: str,
    draft: dict[str, Any],
    client: httpx.Client,
    ranks: int | None = None,
) -> Config:
    """The config of the enrolled node, written with its secrets to `home`.

    Args:
        home: the agent's directory; must not hold an agent yet.
        console_url: base URL of the console.
        token: enrolment token with the console's fingerprint behind a dot.
        draft: `Config` fields that the console does not decide (name, listen, agent_url, tiers, profile, …).
        client: HTTP client without credentials.
        ranks: data-parallel ranks of the engine; the console refuses what names another one. None = not known.

    Raises:
        NotJoined: refused, unreachable, or the console is not the one the token names.
        ConfigError: the draft cannot be run.
    """
    if home.config_file.exists():
        raise NotJoined(f"{home.config_file} exists: this directory belongs to an agent")
    if ranks is not None and not 1 <= ranks <= 1024:
        raise NotJoined("--ranks: 1 to 1024; nothing was sent")
    home.require_writable()
    for file in (draft.get("tls_cert"), draft.get("tls_key")):
        if file and not Path(file).is_file():
            raise NotJoined(f"{file} is no file: nothing was sent")
    base = require_private(console_url).rstrip("/")
    _, dot, expected = token.partition(".")
    if not dot or not expected:
        raise NotJoined("the enrolment token has no fingerprint of the console's key")
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    question = EnrolmentQuestion(
        console=_host(base), nonce=secrets.token_hex(32), public_key=public.hex(), node=draft["name"]
    )
    console_key = _console_key(client, base, expected, question)
    trial = _config(draft, node="-", console_url=base, key=console_key, ingest=[Ingest(0, base)], shards=1)
    body = {
        "enrolment_token": token, "name": draft["name"], "public_key": public.hex(), "agent_url": trial.agent_url,
        "agent_version": VERSION, "tiers": describe_config(trial), "profile": trial.profile,
        "engine": describe() | ({} if ranks is None else {"dp_size": ranks}),
    }  # fmt: skip
    enrolled = _ask(client.post, f"{base}/api/v1/nodes:enrol", _Enrolled, json=body)
    if enrolled.console_public_key.lower() != console_key:
        raise NotJoined("the console answered with another key than it showed before")
    shards = enrolled.shards if isinstance(enrolled.shards, int) else len(enrolled.shards)
    node = enrolled.node or enrolled.id
    if not node:
        raise NotJoined("the console did not say which node this is")
    config = _config(draft, node=node, console_url=base, key=console_key, ingest=enrolled.ingest, shards=shards)
    seed = private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    home.write(KEY_FILE, seed.hex().encode())
    home.write(TOKEN_FILE, enrolled.node_token.encode())
    home.write(DRIVE_FILE, new_drive_token().encode())
    home.save(config)
    return config


def _console_key(client: httpx.Client, base: str, expected: str, question: EnrolmentQuestion) -> str:
    """The console's public key in hex, if it is the one the token names and whoever answers has its private half."""
    answer = _ask(client.get, f"{base}/api/v1/fleet-key", _FleetKey, params=msgspec.to_builtins(question))
    shown = answer.public_key.lower()
    try:
        key = bytes.fromhex(shown)
        found = fingerprint(key)
    except ValueError:
        raise NotJoined("the console showed something that is no key") from None
    if found != expected:
        raise NotJoined("this is not the console the token was made by (its key differs); the token was not sent")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(answer.proof), enrolment_bytes(question))
    except (InvalidSignature, ValueError):
        raise NotJoined(
            "whoever answers shows the console's key and did not prove to have it; the token was not sent"
        ) from None
    return shown


def _host(base: str) -> str:
    """The host that is dialled, as a Host header has it, without the port."""
    host = urlsplit(base).hostname or ""
    return f"[{host}]" if ":" in host else host


def _config(
    draft: dict[str, Any], *, node: str, console_url: str, key: str, ingest: list[Ingest], shards: int
) -> Config:
    config = Config(**draft, node=node, console_url=console_url, console_public_key=key, ingest=ingest, shards=shards)
    check(config)
    return config


def _ask(call: Any, url: str, kind: type[_T], **options: Any) -> _T:
    try:
        answer = call(url, **options)
    except httpx.HTTPError as e:
        raise NotJoined(f"{url}: {type(e).__name__}") from None
    if answer.status_code >= 400:
        code = _problem(answer)
        raise NotJoined(f"{url}: {answer.status_code} {code}{_HINTS.get(code, '')}")
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except UNREADABLE as e:
        raise NotJoined(f"{url}: {e}") from None


def _problem(answer: httpx.Response) -> str:
    try:
        problem = msgspec.json.decode(answer.content, type=dict[str, Any])
    except UNREADABLE:
        return ""
    return str(problem.get("code") or problem.get("detail") or "")[:200]


def listen_address(text: str) -> str:
    """`host:port` with a real port: 0 is replaced by one that is free now.

    Raises:
        ConfigError: it has another form.
    """
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ConfigError(f"{text!r} is not host:port")
    if int(port):
        return text
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        try:
            s.bind((host.strip("[]"), 0))
        except (OSError, UnicodeError) as e:
            raise ConfigError(f"{text!r}: {getattr(e, 'strerror', None) or 'no address of this machine'}") from None
        return f"{host}:{s.getsockname()[1]}"


def remote_url(given: str, file: str, line: Callable[[], str]) -> str:
    """The URL of the store behind the tier `remote`; "" = there is none.

    Every user of a machine can read the command lines of all processes, so a password has no place there.

    Args:
        given: what stands on the command line; `-` = the next line of standard input.
        file: a private file whose first line is the URL; "" = none.
        line: reads a line of standard input.

    Raises:
        NotJoined: there is a password on the command line, or no URL where one was announced.
        ConfigError: others may read the file, or it is not there.
    """
    if not file and given != "-":
        if _has_password(given):
            raise NotJoined(
                "--remote has a password, which every user of this machine can read in the process list: nothing was "
                "sent and nothing was written. Give the URL as `--remote -` on standard input or in `--remote-file`, "
                "and change the password"
            )
        return given
    found = read_private(Path(file)).decode(errors="replace").partition("\n")[0].strip() if file else line().strip()
    if not found:
        raise NotJoined(f"no URL of the remote store in {file or 'standard input'}: nothing was sent")
    return found


def _has_password(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError as e:
        raise ConfigError(f"--remote: {e}") from None
    return parts.password is not None or "password" in parse_qs(parts.query, keep_blank_values=True)


def draft_of(
    *, name: str, listen: str, agent_url: str, profile: str, tiers: dict[str, TierConfig], remote_url: str, **more: Any
) -> dict[str, Any]:
    """The fields of a config that the command line decides; a remote tier without a store is left out."""
    address, scheme = listen_address(listen), "https" if more.get("tls_cert") else "http"
    if not remote_url:
        tiers = {n: t for n, t in tiers.items() if n != "remote"}
    return {
        "name": name, "listen": address, "agent_url": agent_url or f"{scheme}://{address}", "profile": profile,
        "tiers": tiers, "remote_url": remote_url, **more,
    }  # fmt: skip
