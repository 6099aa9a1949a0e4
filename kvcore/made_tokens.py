"""Decides which tokens a hash id of a request trace stands for, so that whoever makes keys of a trace makes the same.

A trace names blocks of a prompt by numbers and holds no text; agents make blocks of it and routers are asked with it.
"""

import hashlib
from collections import OrderedDict

from kvcore.keys import KEY_BYTES, chain_keys


def hash_tokens(hash_id: int, count: int, seed: int) -> bytes:
    """`count` token ids (u32 little-endian) that a hash id of a trace stands for; the same everywhere."""
    head, key = hash_id.to_bytes(8, "little", signed=True), seed.to_bytes(8, "little", signed=True)
    blocks = [
        hashlib.blake2b(head + i.to_bytes(4, "little"), key=key, person=b"kvc-tokens").digest()
        for i in range((4 * count + 63) // 64)
    ]
    return b"".join(blocks)[: 4 * count]


class MadeChains:
    """Keys of prompts of a trace under one block key; hash blocks that were seen are not made again."""

    def __init__(self, blk: bytes, *, block_tokens: int, hash_tokens: int, kept: int = 4096) -> None:
        """Chains of one namespace generation.

        Args:
            blk: its block key.
            block_tokens: of a block.
            hash_tokens: behind one hash id.
            kept: hash blocks that are remembered.
        """
        self._blk, self._size, self._per, self._kept = blk, block_tokens, hash_tokens, kept
        self._known: OrderedDict[tuple[bytes, int], bytes] = OrderedDict()

    def keys(self, hash_ids: list[int], tokens: int) -> bytes:
        """Packed keys of the full blocks of a prompt of so many tokens."""
        if self._per % self._size:
            text = b"".join(hash_tokens(i, self._per, 0) for i in hash_ids)[: 4 * tokens]
            return b"".join(chain_keys(text, block_tokens=self._size, blk=self._blk, parent=None))
        parts, parent = list[bytes](), b""
        for hash_id in hash_ids[: -(-tokens // self._per)]:
            part = self._part(parent, hash_id)
            parts.append(part)
            parent = part[-KEY_BYTES:]
        return b"".join(parts)[: tokens // self._size * KEY_BYTES]

    def _part(self, parent: bytes, hash_id: int) -> bytes:
        keys = self._known.get((parent, hash_id))
        if keys is None:
            text = hash_tokens(hash_id, self._per, 0)
            keys = b"".join(chain_keys(text, block_tokens=self._size, blk=self._blk, parent=parent or None))
            self._known[parent, hash_id] = keys
            if len(self._known) > self._kept:
                self._known.popitem(last=False)
        return keys
