"""Decides what an agent knows about itself: the directory D with `agent.json` and the files beside it.

Written once by `join`, read by everything else. Secrets are files of their own, 0600; nothing here is logged.
"""

import ipaddress
import math
import os
import re
import secrets
import stat
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from kvcore.blocks import TIERS, Tier
from kvcore.messages import PROTOCOL
from kvcore.residency import PLACE
from kvcore.wire import UNREADABLE

VERSION = "0.1.0"
CONFIG_FILE = "agent.json"
SECRET_SUFFIXES = frozenset({".key", ".keys", ".token"})
"""Names of files in an agent's directory that hold secrets end so."""
PROFILES: dict[str, tuple[int, int]] = {"ref-1k": (16, 16 * 1024), "ref-64": (16, 1024)}
"""Reference fleets: tokens and bytes of a block."""
JOIN_FIRST = ": run `python -m nodeagent join` first"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB)?", re.IGNORECASE)
_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}


class ConfigError(Exception):
    """The directory cannot be used as it is. Nothing was changed."""


class TierConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One tier: its cap in bytes, marks as shares of it, and how long an unused block may stay (0 = for ever)."""

    capacity_bytes: int
    high: float = 0.9
    low: float = 0.8
    ttl_seconds: float = 0.0


class Ingest(msgspec.Struct, frozen=True):
    """Where frames of a shard go. Several entries of one shard are tried in turn."""

    shard: int
    url: str


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What `agent.json` says."""

    node: str
    name: str
    console_url: str
    listen: str  # host:port
    agent_url: str
    console_public_key: str  # hex, pinned at enrolment
    ingest: list[Ingest]
    tiers: dict[str, TierConfig]
    shards: int = 1
    profile: str = "ref-1k"
    policy: str = "value"  # value | lru
    remote_url: str = ""
    role: str = "mixed"
    prefill_curve: tuple[float, float] = (0.009342, 1.0335e-7)
    """Declared, not measured: prefill milliseconds = a·n + b·n² for n tokens."""
    tls_cert: str = ""
    """Files for HTTPS; without them the agent listens on loopback only."""
    tls_key: str = ""
    prefill_slots: int = 1
    """Prefills that run at a time; the others wait in line."""
    decode_slots: int = 8
    receive_credits: int = 16
    """Requests whose blocks may come from other nodes at a time."""
    fetch_blocks: int = 0
    """Blocks of plans that may be on their way from other nodes at a time, the rest is computed; 0 = no bound."""
    injected_ms: dict[str, float] = {}
    """Milliseconds put into terms of the time to first token, to see that they appear there: for tests."""
    time_scale: float = 1.0
    """Share of the declared time that requests of the P/D road really take; 0 = only what the work itself takes."""
    tpot_ms: float = 0.0
    """Milliseconds per decoded token; 0 = decode is not paced."""
    digest_seconds: float = 10.0
    outbox_bytes: int = 64 * 2**20
    protocol: int = PROTOCOL
    version: str = VERSION

    @property
    def address(self) -> tuple[str, int]:
        """Host and port the agent listens on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def block_tokens(self) -> int:
        """Tokens in a block of this fleet profile."""
        return PROFILES[self.profile][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of a block's content in this fleet profile, header not counted."""
        return PROFILES[self.profile][1]


class Home:
    """The agent's directory: its config, its secrets and its data."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def config_file(self) -> Path:
        """`agent.json`."""
        return self.path / CONFIG_FILE

    @property
    def journal_file(self) -> Path:
        """SQLite: commands, receipts."""
        return self.path / "journal.sqlite3"

    @property
    def ssd_dir(self) -> Path:
        """Objects of the tier `ssd`."""
        return self.path / "ssd"

    @property
    def key_file(self) -> Path:
        """One random value per object of `ssd` and `remote`."""
        return self.path / "objects.keys"

    def load(self) -> Config:
        """The checked config.

        Raises:
            ConfigError: it is missing, malformed, readable by others, or names an address it may not use.
        """
        raw = read_private(self.config_file, JOIN_FIRST)
        for path in self.path.iterdir():
            if path.suffix in SECRET_SUFFIXES and path.is_file():
                require_hidden(path, path.stat().st_mode)
        try:
            config = msgspec.json.decode(raw, type=Config)
        except UNREADABLE as e:
            raise ConfigError(f"{self.config_file}: {e}") from None
        check(config)
        return config

    def save(self, config: Config) -> None:
        """Writes `agent.json`, 0600, whole or not at all."""
        check(config)
        self.write(CONFIG_FILE, msgspec.json.format(msgspec.json.encode(config), indent=2))

    def write(self, name: str, data: bytes) -> None:
        """Writes a private file, 0600, whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self.path / f".{name}.{secrets.token_hex(4)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(self.path / name)

    def require_writable(self) -> None:
        """Passes if files can be written here, without writing any.

        Raises:
            ConfigError: it is no directory, or this user may not write there.
        """
        there = next((p for p in (self.path, *self.path.absolute().parents) if p.exists()), Path("/"))
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise ConfigError(f"{self.path}: {there} is no directory that this user may write to")

    def read_secret(self, name: str) -> bytes:
        """Content of a private file.

        Raises:
            ConfigError: it is missing, or others than its owner may read it.
        """
        return read_private(self.path / name, JOIN_FIRST)


def read_private(path: Path, hint: str = "") -> bytes:
    """Content of a file that nobody but its owner may read or write.

    Raises:
        ConfigError: it is missing, or others may read or write it; nothing of it was used.
    """
    try:
        with path.open("rb") as f:
            require_hidden(path, os.fstat(f.fileno()).st_mode)
            return f.read()
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing{hint}") from None
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror}") from None


def require_hidden(path: Path, mode: int) -> None:
    """Passes if a file of this mode is its owner's alone.

    Raises:
        ConfigError: it is not.
    """
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(
            f"{path} has mode {stat.S_IMODE(mode):04o}: others than its owner may read or change it, so it is not "
            "used. Make it private (chmod 0600) and replace what was in it if somebody may have seen it"
        )


def check(config: Config) -> None:
    """Passes if the config can be run.

    Raises:
        ConfigError: naming the first field that is wrong.
    """
    if len(config.name) > 63 or not re.fullmatch(PLACE, config.name):
        raise ConfigError(f"name: {config.name[:63]!r} is not 1 to 63 letters, digits, dots, hyphens and underscores")
    host, _, port = config.listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise ConfigError(f"listen: {config.listen!r} is not host:port")
    if bool(config.tls_cert) != bool(config.tls_key):
        raise ConfigError("tls_cert and tls_key: one is of no use without the other")
    if not is_loopback(host.strip("[]")) and not (config.tls_cert and config.tls_key):
        raise ConfigError(f"listen: {host} is not loopback, so tls_cert and tls_key are needed")
    for name, tier in config.tiers.items():
        if name not in TIERS:
            raise ConfigError(f"tiers: {name!r} is not a tier")
        if tier.capacity_bytes < 1 or not 0 < tier.low <= tier.high <= 1 or not 0 <= tier.ttl_seconds < math.inf:
            raise ConfigError(f"tiers.{name}: capacity, marks or ttl are out of range")
    if Tier.HBM not in config.tiers:
        raise ConfigError("tiers: hbm is missing; blocks are produced there")
    if config.profile not in PROFILES:
        raise ConfigError(f"profile: {config.profile!r} is not one of {', '.join(PROFILES)}")
    if not 0 <= config.tpot_ms < math.inf:
        raise ConfigError("tpot_ms: milliseconds, 0 or more")
    if not all(1 <= n <= 1024 for n in (config.prefill_slots, config.decode_slots, config.receive_credits)):
        raise ConfigError("prefill_slots, decode_slots, receive_credits: 1 to 1024")
    if not 0 <= config.time_scale < math.inf or not all(0 <= x < math.inf for x in config.prefill_curve):
        raise ConfigError("time_scale and prefill_curve: 0 or more")
    if config.policy not in ("value", "lru"):
        raise ConfigError("policy: value or lru")
    if Tier.REMOTE in config.tiers and not config.remote_url:
        raise ConfigError("remote_url: the tier remote needs the URL of its store")
    if config.shards < 1 or {i.shard for i in config.ingest} != set(range(config.shards)):
        raise ConfigError("ingest: every shard needs at least one URL")
    for url in (config.console_url, *(i.url for i in config.ingest)):
        require_private(url)


def require_private(url: str) -> str:
    """The URL, if what is sent there cannot be read on the way.

    Raises:
        ConfigError: it is not HTTPS and not loopback.
    """
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return url
    raise ConfigError(f"{parts.scheme}://{parts.hostname}: plain HTTP is spoken on loopback only")


def is_loopback(host: str) -> bool:
    """Whether a host name is this machine by any name that needs no resolver."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_size(text: str) -> int:
    """Bytes of '64MiB', '16 KiB', '1048576'.

    Raises:
        ConfigError: it is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is not a size like 64MiB")
    return int(float(match[1]) * _UNITS[(match[2] or "B").lower()])


def parse_tier(text: str) -> tuple[str, TierConfig]:
    """A tier of the command line: `hbm=64MiB` or `hbm=64MiB,0.95,0.85` or `dram=1GiB,0.9,0.8,3600`.

    Raises:
        ConfigError: it has another form.
    """
    name, _, rest = text.partition("=")
    size, *numbers = rest.split(",")
    if name not in TIERS or len(numbers) not in (0, 2, 3):
        raise ConfigError(f"{text!r} is not a tier like hbm=64MiB,0.9,0.8,3600")
    try:
        high, low, *ttl = [float(x) for x in numbers] or [0.9, 0.8]
    except ValueError:
        raise ConfigError(f"{text!r}: marks and ttl are numbers") from None
    return name, TierConfig(capacity_bytes=parse_size(size), high=high, low=low, ttl_seconds=ttl[0] if ttl else 0.0)
