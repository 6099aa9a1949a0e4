"""Decides how `kvc gateway` is told what it needs: one JSON file, and files with secrets that nobody else can read.

Everything that is wrong is told at once, before anything listens. Called by `kvc gateway`.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import httpx
import msgspec

from kvconsole.cli.client import USAGE, Failure

HERE = ("127.0.0.1", "localhost", "::1")
SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is too much and too slow. Seconds and bytes."""

    body_bytes: int = 8 * 2**20
    read_seconds: float = 20.0
    route_seconds: float = 1.0
    tokenize_seconds: float = 2.0
    connect_seconds: float = 3.0
    first_byte_seconds: float = 600.0
    pause_seconds: float = 120.0
    send_seconds: float = 60.0
    requests: int = 512
    requests_per_tenant: int = 256


class Served(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a name that clients ask for is to the console: a model, and an adapter by its digest."""

    model: str
    adapter: str = ""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file of a gateway.

    Attributes:
        engines: node of the console → where its engine answers.
        token_file: the gateway's own token (role gateway).
        keys_file: API keys of clients, one `sha256-of-the-key tenant` a line; "" = tenants' tokens alone.
        engine_key_file: the key that engines ask for; "" = none.
        served: names that clients ask for which are not the model's own.
        tokenize: ask the engine's POST /tokenize, so that the router gets token ids.
        tenant_tokens: clients may show a token of the console that belongs to a tenant.
        without_lease: `random`: a salt of its own for each request; `refuse`: 503.
    """

    console_url: str
    router_url: str
    engines: dict[str, str]
    token_file: str
    listen: str = "127.0.0.1:8400"
    keys_file: str = ""
    engine_key_file: str = ""
    served: dict[str, Served] = {}
    tokenize: bool = True
    tenant_tokens: bool = True
    without_lease: str = "random"
    renew_seconds: float = 10.0
    limits: Limits = Limits()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


class Secrets(msgspec.Struct, frozen=True):
    """What the files hold. `tenants`: SHA-256 of a client's key, in hex → the tenant's slug."""

    token: str
    engine_key: str
    tenants: dict[str, str]


def load(path: str) -> tuple[Config, Secrets]:
    """What the file says, and what the files it names hold.

    Raises:
        Failure: something is missing or wrong; the text names all of it.
    """
    try:
        config = msgspec.json.decode(Path(path).read_bytes(), type=Config)
    except OSError as e:
        raise Failure(USAGE, f"{path}: {e.strerror}.") from None
    except (msgspec.ValidationError, msgspec.DecodeError) as e:
        raise Failure(USAGE, f"{path}: {e}.") from None
    problems = [*_wrong(config)]
    found: dict[str, str] = {}
    for field in ("token_file", "keys_file", "engine_key_file"):
        name = getattr(config, field)
        try:
            found[field] = _private(name) if name else ""
        except ValueError as e:
            problems.append(f"{field}: {e}")
    tenants, unread = _tenants(found.get("keys_file", ""))
    problems += [f"keys_file: line {number} is no `sha256 tenant`" for number in unread]
    if not problems and not found["token_file"]:
        problems.append("token_file: it is empty")
    if problems:
        raise Failure(USAGE, "\n".join(f"{path}: {problem}." for problem in problems))
    return config, Secrets(found["token_file"], found["engine_key_file"], tenants)


def key_hash(key: str) -> str:
    """What is kept of a client's key."""
    return hashlib.sha256(key.encode()).hexdigest()


def _wrong(config: Config) -> list[str]:
    problems = []
    host, _, port = config.listen.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 65_536):
        problems.append("listen: no host and port")
    for field, url in (("console_url", config.console_url), ("router_url", config.router_url)):
        problems += [f"{field}: {text}" for text in _not_an_address(url, secret=True)]
    for node, url in config.engines.items():
        problems += [f"engines: {node}: {text}" for text in _not_an_address(url, secret=bool(config.engine_key_file))]
    if not config.engines:
        problems.append("engines: there are none")
    if config.without_lease not in ("random", "refuse"):
        problems.append("without_lease: neither random nor refuse")
    if not 0.5 <= config.renew_seconds <= 150:
        problems.append("renew_seconds: not within 0.5 and 150")
    numbers: dict[str, Any] = msgspec.structs.asdict(config.limits)
    problems += [f"limits.{name}: not above 0" for name, number in numbers.items() if not number > 0]
    return problems


def _not_an_address(url: str, *, secret: bool) -> list[str]:
    """What is wrong with an address; where a secret is sent, only https does, or this machine itself."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return ["no address"]
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo or parsed.query:
        return ["no address"]
    if secret and parsed.scheme == "http" and parsed.host not in HERE:
        return ["a secret is sent there, so it must be https, or this machine itself"]
    return []


def _private(path: str) -> str:
    """What a file holds that this user alone can read.

    Raises:
        ValueError: it is not there, or others can read it.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & 0o077:
                raise ValueError(f"{path} can be read by others: chmod 600 it")
            return file.read(4 * 2**20).decode().strip()
    except OSError as e:
        raise ValueError(f"{path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text") from None


def _tenants(text: str) -> tuple[dict[str, str], list[int]]:
    """Hash → tenant, and the numbers of lines that are neither a pair, a remark nor empty."""
    found, unread = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) == 2 and re.fullmatch(r"[0-9a-f]{64}", words[0]) and SLUG.fullmatch(words[1]):
            found[words[0]] = words[1]
        else:
            unread.append(number)
    return found, unread
