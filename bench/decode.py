"""Decoding of vLLM's batches on one core: without their token ids, and with a key made of every block's tokens."""

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kvcore.dialects.engine import Stored, token_bytes
from kvcore.dialects.vllm import decode_batch
from kvcore.events import Add, decode_item
from kvcore.keys import chain_keys, directory_keys
from nodeagent.engines.vllm import Source, Vllm
from nodeagent.keys import KeyRing, Lease

BLOCKS, BLOCK_TOKENS = 64, 16


def _payloads(batches: int) -> list[bytes]:
    rnd = random.Random(1)
    out = []
    for _ in range(batches):
        event = {
            "type": "BlockStored",
            "block_hashes": [rnd.getrandbits(64) for _ in range(BLOCKS)],
            "parent_block_hash": None,
            "token_ids": [rnd.randrange(150_000) for _ in range(BLOCKS * BLOCK_TOKENS)],
            "block_size": BLOCK_TOKENS,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [None] * BLOCKS,
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
        out.append(msgspec.msgpack.encode([1.5, [event], 0]))
    return out


def _per_second(blocks: int, work: Callable[[], None], runs: int) -> float:
    """Blocks per CPU-second of this process in the best run: what else the machine does can only take away."""
    taken = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return blocks / min(taken)


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    """The figures, each against its target."""
    payloads = _payloads(200 if quick else 500)
    blocks, runs = len(payloads) * BLOCKS, 3 if quick else 15
    blk = hashlib.sha256(b"bench").digest()

    def events(*, ids: bool = False) -> Iterator[Stored]:
        for payload in payloads:
            for event in decode_batch(payload, ids=ids).events:
                assert isinstance(event, Stored)
                yield event

    def decode() -> None:
        for _ in events():
            pass

    def by_tokens() -> None:
        for event in events(ids=True):
            assert event.tokens is not None
            chain_keys(token_bytes(event.tokens), block_tokens=BLOCK_TOKENS, blk=blk)

    def by_hash() -> None:
        for event in events():
            directory_keys(blk, engine="vllm", algorithm="sha256", hashes=event.hashes)

    ring = KeyRing()
    ring.grant([Lease(ns=blk, gen=1, block_tokens=BLOCK_TOKENS, blk=blk, enc=blk, salt_tag=b"", until=2.0**40)])

    def to_items() -> None:
        engine = Vllm(Source(name="bench", default=blk, bytes_per_token=64), ring)
        for payload in payloads:
            engine.items(decode_batch(payload, ids=True))

    packed = [
        msgspec.msgpack.encode(Add(ns=blk, gen=1, keys=random.Random(i).randbytes(32 * BLOCKS), tier="hbm", tokens=16,
                                   bytes=1024))
        for i in range(len(payloads))
    ]  # fmt: skip

    def items() -> None:
        for raw in packed:
            decode_item(raw)

    for name, work, target in (
        ("decode.vllm.without_tokens", decode, 2_000_000),
        ("decode.vllm.keyed_by_tokens", by_tokens, 500_000),
        ("decode.vllm.keyed_by_hash", by_hash, 500_000),
        ("decode.vllm.to_items", to_items, 250_000),
        ("decode.item.packed", items, 2_000_000),
    ):
        value = _per_second(blocks, work, runs)
        yield {"name": name, "value": round(value), "unit": "blocks/s", "target": target, "ok": value >= target}
