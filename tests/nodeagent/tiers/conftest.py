"""Every tier, made in the same way."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvconsole.embedded import Valkey
from kvcore.blocks import Tier
from nodeagent.tiers.base import HEADER_BYTES, RunMeta, TierReset, TierStore, seal
from nodeagent.tiers.disk import DiskTier
from nodeagent.tiers.memory import MemoryTier
from nodeagent.tiers.objects import KeyFile
from nodeagent.tiers.valkey import ValkeyTier

BLOCK = 256
SLOT = HEADER_BYTES + BLOCK
CAPACITY = 64 * SLOT
NS = bytes(range(32))
ENC = {(NS, 1): secrets.token_bytes(32)}
VERSIONS = iter(range(1, 2**30))


def enc(ns: bytes, gen: int) -> bytes:
    return ENC[ns, gen]


def run(blocks: int = 4, *, version: int = 0, gen: int = 1, depth: int = 0) -> tuple[RunMeta, bytes]:
    keys = b"".join(secrets.token_bytes(32) for _ in range(blocks))
    meta = RunMeta(NS, gen, 0, depth, None, keys, version or next(VERSIONS), 16, BLOCK)
    return meta, seal(meta, lambda key: key * (BLOCK // 32))


@pytest.fixture(scope="session")
def store(service_base: Path) -> Iterator[Valkey]:
    server = Valkey(service_base / "remote-tier", persist=False, test=True)
    server.start()
    yield server
    server.remove()


def reached(tier: ValkeyTier) -> ValkeyTier:
    """The tier, having taken the server's present life as its own."""
    try:
        tier.probe()
    except TierReset as e:
        tier.adopt(e.boot)
    return tier


@pytest.fixture
def again(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[Tier], TierStore]:
    """Makes a tier over the same medium, as a new process would; `same_keys` is the agent's key file."""
    node = secrets.token_hex(8)
    made: list[TierStore] = []
    files: list[KeyFile] = []

    def make(name: Tier) -> TierStore:
        keys = KeyFile(tmp_path / "objects.keys")
        files.append(keys)
        match name:
            case Tier.SSD:
                tier: TierStore = DiskTier(tmp_path / "ssd", capacity_bytes=CAPACITY, keys=keys, enc_key=enc)
            case Tier.REMOTE:
                url = request.getfixturevalue("store").url
                tier = reached(ValkeyTier(url, node=node, capacity_bytes=CAPACITY, keys=keys, enc_key=enc))
            case _:
                lock = name is Tier.PINNED
                tier = MemoryTier(name, capacity_bytes=CAPACITY, slot_bytes=SLOT, lock_memory=lock)
        made.append(tier)
        return tier

    yield make
    for tier in made:
        tier.close()
    for file in files:
        file.close()


@pytest.fixture(params=list(Tier), ids=str)
def name(request: pytest.FixtureRequest) -> Tier:
    return request.param


@pytest.fixture
def tier(name: Tier, again: Callable[[Tier], TierStore]) -> TierStore:
    return again(name)
