"""Decides what a raw look finds: byte strings that were planted, searched in media without asking who keeps them.

`python -m nodeagent probe` reads the media of this node's agent from another process: arenas through their memory
files, the agent's directory file by file, the remote store object by object. The command `probe` lets one node look at
what another has where both reach it. Only counts come out.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kvcore.blocks import TIERS, VOLATILE, Tier
from kvcore.messages import Command
from kvcore.receipts import EraseTarget, ProbedDetail
from nodeagent.config import Config, ConfigError, Home
from nodeagent.jobs import Done, Job
from nodeagent.targets import Malformed, Targets
from nodeagent.tiers.base import TierDown, TierReset, key_of, sound
from nodeagent.tiers.valkey import ValkeyTier, prefix_of, raw_of

READ_BYTES = 4 * 2**20
LOOKS, AGAIN_SECONDS = 5, 0.05
CANARY_BYTES_MIN = 16
"""A shorter one would be found by chance."""
_PROC = Path("/proc")
_NODE = re.compile(r"[A-Za-z0-9-]{1,63}")


class Seen(NamedTuple):
    """What was read of a medium: bytes, and how often a canary was in it. `why`: it could not be read."""

    size_bytes: int
    found: int
    why: str = ""


def count(parts: Iterable[bytes], canaries: Sequence[bytes]) -> Seen:
    """How often canaries occur in what the parts are together, across their borders too."""
    longest = max(map(len, canaries), default=1) - 1
    tail, size, found = b"", 0, 0
    for part in parts:
        size += len(part)
        both = tail + part
        for canary in canaries:
            found += both.count(canary, max(len(tail) - len(canary) + 1, 0))
        tail = both[-longest:] if longest else b""
    return Seen(size, found)


class Arena(NamedTuple):
    """The memory file of an arena, and into what slots it is cut."""

    path: Path
    slot_bytes: int


def arenas(node: str) -> dict[str, Arena]:
    """Tier → the node's arena, as far as processes of this user on this machine have any open."""
    found = {}
    label = re.compile(rf"/memfd:kvc:{re.escape(node)}:([a-z]+):([0-9]+)(?: \(deleted\))?")
    for link in _PROC.glob("[0-9]*/fd/*"):
        try:
            name = label.fullmatch(os.readlink(link))
        except OSError:  # it was closed meanwhile, or is another user's
            continue
        if name is not None:
            found[name[1]] = Arena(link, int(name[2]))
    return found


def chunks(path: Path) -> Iterator[bytes]:
    """The file, in parts."""
    with path.open("rb") as f:
        while part := f.read(READ_BYTES):
            yield part


def residue(
    arena: Arena, keys: frozenset[bytes] = frozenset(), check: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    """Slots of an arena, and those that hold what is no whole block of anybody, or one of these keys (16 bytes each).

    What is being written looks like that for a moment, so it is looked at again. Every byte of the arena is in a slot:
    it is empty, or covered by the digest of a block whose head names its key.
    """

    def fine(slot: bytes) -> bool:
        return slot.count(0) == len(slot) or (sound(slot) and key_of(slot)[:CANARY_BYTES_MIN] not in keys)

    step = max(READ_BYTES // arena.slot_bytes, 1) * arena.slot_bytes
    with arena.path.open("rb") as file:
        size, odd = os.fstat(file.fileno()).st_size, list[int]()
        slots = size // arena.slot_bytes
        for at in range(0, slots * arena.slot_bytes, step):
            check()
            part = os.pread(file.fileno(), min(step, slots * arena.slot_bytes - at), at)
            odd += [at + n for n in range(0, len(part), arena.slot_bytes) if not fine(part[n : n + arena.slot_bytes])]
        for _ in range(LOOKS):
            if not odd:
                break
            time.sleep(AGAIN_SECONDS)
            check()
            odd = [at for at in odd if not fine(os.pread(file.fileno(), arena.slot_bytes, at))]
    return slots, len(odd)


def files(directory: Path, canaries: Sequence[bytes], *, without: Path | None = None) -> Seen:
    """Canaries in the files below a directory, each file for itself."""
    seen = Seen(0, 0)
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink() and (without is None or without not in path.parents):
            try:
                one = count(chunks(path), canaries)
            except FileNotFoundError:
                continue
            seen = Seen(seen.size_bytes + one.size_bytes, seen.found + one.found)
    return seen


def media(home: Home, config: Config, canaries: Sequence[bytes]) -> dict[str, Seen]:
    """Every medium of the node's agent: its tiers, and the other files of its directory."""
    out: dict[str, Seen] = {}
    mapped = arenas(config.node)
    for name in [t for t in TIERS if t in config.tiers]:
        if Tier(name) in VOLATILE:
            at = mapped.get(name)
            out[name] = _try(lambda at=at: count(chunks(at.path), canaries)) if at else Seen(0, 0, "not-running")  # type: ignore[misc]
        elif name == Tier.SSD:
            out[name] = files(home.ssd_dir, canaries)
        else:
            out[name] = _try(lambda: count(raw_of(config.remote_url, config.node), canaries))
    out["files"] = files(home.path, canaries, without=home.ssd_dir)
    return out


def _try(look: Callable[[], Seen]) -> Seen:
    try:
        return look()
    except (OSError, TierDown) as e:
        return Seen(0, 0, type(e).__name__)


def options(parser: argparse.ArgumentParser) -> None:
    """The options of the command line."""
    parser.add_argument(
        "--canaries", default="-", help="file with one canary a line, in hex; - reads standard input (default)"
    )


def show(home: Home, args: argparse.Namespace) -> int:
    """Prints the counts. 0: none found; 1: some; 3: a medium could not be read, and none was found elsewhere."""
    lines = sys.stdin if args.canaries == "-" else Path(args.canaries).read_text().splitlines()
    try:
        canaries = [bytes.fromhex(line) for line in map(str.strip, lines) if line]
    except ValueError:
        raise ConfigError("canaries: each line is hex") from None
    if not canaries or min(map(len, canaries)) < CANARY_BYTES_MIN:
        raise ConfigError(f"canaries: at least one, of at least {CANARY_BYTES_MIN} bytes")
    config = home.load()
    seen = media(home, config, canaries)
    told = {
        name: {"bytes": x.size_bytes, "found": None if x.why else x.found} | ({"why": x.why} if x.why else {})
        for name, x in seen.items()
    }
    print(json.dumps({"node": config.node, "canaries": len(canaries), "media": told}, indent=2))
    if any(x.found for x in seen.values()):
        return 1
    return 3 if any(x.why for x in seen.values()) else 0


class ProbeArgs(msgspec.Struct, frozen=True, kw_only=True):
    """`Command.args` of probe: which node's tier, what is looked for, and the store's life as the console knows it.

    `canaries` are hex; in memory those of 16 bytes are the beginnings of keys. `boot` keeps a node from answering for
    another store than the one that is meant.
    """

    node: str
    source: str
    tier: str
    targets: list[EraseTarget] = []
    canaries: list[str] = []
    boot: str = ""


class Prober:
    """Looks at what another node has, where this one reaches it."""

    def __init__(self, config: Config, remote: ValkeyTier | None, clock: Callable[[], float]) -> None:
        self._config, self._remote, self._clock = config, remote, clock

    def probe(self, command: Command, job: Job) -> Done:
        """Counts what of the targets and canaries lies in the other node's tier."""
        try:
            args = msgspec.convert(command.args, ProbeArgs)
            targets, canaries = Targets(args.targets), [bytes.fromhex(c) for c in args.canaries]
        except (msgspec.ValidationError, Malformed, ValueError) as e:
            return Done("refused", "args-malformed", {"error": str(e)[:200]})
        asked = len(args.targets) + len(canaries)
        if not asked or any(len(c) < CANARY_BYTES_MIN for c in canaries) or not _NODE.fullmatch(args.node):
            return Done("refused", "args-malformed", {"error": "nothing to look for"})
        seen = hashlib.sha256()
        try:
            found = self._look(args, targets, canaries, seen.update, job)
        except (OSError, TierDown, TierReset):
            found = None
        if found is None:
            return Done("refused", "medium-out-of-reach", {"node": args.node, "tier": args.tier})
        detail = ProbedDetail(
            node=args.node, source=args.source, tier=args.tier, method="scan", asked=asked, found=found,
            evidence=seen.hexdigest(), at_us=int(self._clock() * 1e6),
        )  # fmt: skip
        return Done("done", "", msgspec.to_builtins(detail))

    def _look(
        self, args: ProbeArgs, targets: Targets, canaries: list[bytes], saw: Callable[[bytes], None], job: Job
    ) -> int | None:
        """How much was found, None where this node cannot see the medium, or not all that is asked for."""
        remote, url = self._remote, self._config.remote_url
        if args.tier == Tier.REMOTE:
            if remote is None or not args.boot or args.boot != remote.boot:
                return None
            found = 0
            for x in remote.lying_of(prefix_of(args.node)):
                job.check()
                found += x.meta is not None and targets.meant(x.meta) is not None
                saw(bytes(x.place))
            return found + (count(raw_of(url, args.node), canaries).found if canaries else 0)
        at = arenas(args.node).get(args.tier)
        if at is None or args.targets:  # slots do not name namespaces, but each block is headed by its key
            return None
        keys = frozenset(c for c in canaries if len(c) == CANARY_BYTES_MIN)
        longer = [c for c in canaries if c not in keys]
        one = count(chunks(at.path), longer) if longer else Seen(0, 0)
        slots, odd = residue(at, keys, job.check)
        saw(b"".join(n.to_bytes(8, "big") for n in (one.size_bytes, slots, odd)))
        return one.found + odd
