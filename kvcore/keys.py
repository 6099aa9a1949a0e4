"""Decides how namespaces, generations, block keys, salts and subkeys are derived.

Called by agents (keys of blocks), the gateway (salts), the console (namespace digests, the key store's subkeys).
All derivations are keyed or digests of public configuration: nothing here can be searched for collisions
without the secret of a namespace generation.
"""

import hashlib
import hmac
import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence

import msgspec

KEY_BYTES = 32
"""Bytes of a block key on the wire and in agents; PostgreSQL keeps the first 16, routing indexes 8."""
CATALOG_KEY_BYTES = 16
ROOT = bytes(KEY_BYTES)
"""Parent of a chain's first block. `parent` on the wire is nil there."""
GENERATION_CLOSED = 2**63 - 1
"""`min_gen` of a namespace whose model epoch is retired: no generation reaches it, nothing of it is ever routable.

The architecture says 2^63; a PostgreSQL bigint ends one below, and no real generation comes near either."""
SUBKEYS = ("blk", "salt", "enc", "pii", "ref")


class NamespaceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that must be equal for two prompts to share a block safely.

    The cache group is not in here: storage and index are keyed (namespace, group).
    """

    model: str
    weights_epoch: int
    weights_digest: str = ""
    adapter_digest: str = ""
    position: str = "rope"
    modality: str = ""
    kv_dtype: str = "bfloat16"
    kv_scales: str = ""
    tokenizer: str = ""
    block_tokens: int = 16
    key_scheme: str = "content"  # content: keys from tokens; engine:<id>: HMAC of one engine's own hashes
    scope_kind: str = "tenant"  # tenant | share_group
    scope: str = ""  # uuid of the tenant or share group
    data_class: str = ""  # the next four only where the tenant's erasure_scope makes them separable
    label: str = ""
    subject: str = ""  # keyed digest of the subject, never the subject
    session: str = ""
    erasure_scope: str = ""  # the tenant's when it was made: what is not kept apart in it stays known; "" = shared


def namespace_digest(spec: NamespaceSpec) -> bytes:
    """32 bytes that name the namespace: SHA-256 over the length-framed fields in declaration order."""
    parts = [f"{getattr(spec, name)}".encode() for name in spec.__struct_fields__]
    return hashlib.sha256(b"kvconsole/namespace/v1" + framed(*parts)).digest()


def framed(*parts: bytes) -> bytes:
    """The parts, each behind its u32 big-endian length, so that no two sequences of parts give the same bytes."""
    return b"".join(len(p).to_bytes(4, "big") + p for p in parts)


def subkey(secret: bytes, label: str) -> bytes:
    """A 32-byte subkey of a namespace generation's secret.

    Args:
        secret: at least 32 random bytes from the key store.
        label: one of `SUBKEYS`.

    Source: HKDF-Expand of RFC 5869 section 2.3 with SHA-256 and one output block; the secret is uniform,
    so the extract step has nothing to do.
    """
    if label not in SUBKEYS:
        raise ValueError(f"unknown subkey label {label!r}")
    return hmac.digest(secret, b"kvconsole/subkey/v1/" + label.encode() + b"\x01", "sha256")


def engine_salt(salt_key: bytes) -> str:
    """The `cache_salt` an engine gets for a namespace generation: 43 URL-safe characters."""
    return urlsafe_b64encode(hmac.digest(salt_key, b"kvconsole/cache-salt/v1", "sha256")).rstrip(b"=").decode()


def salt_tag(salt: str) -> bytes:
    """16 bytes by which an agent knows the namespace of an engine block without holding the salt."""
    return hashlib.sha256(salt.encode()).digest()[:16]


def block_key(parent: bytes, tokens: bytes, blk: bytes) -> bytes:
    """Key of one block: the same prefix has one key in every engine of the namespace generation.

    Args:
        parent: key of the previous block, `ROOT` for the first.
        tokens: the block's token ids, u32 little-endian each, all of them.
        blk: the generation's `blk` subkey.
    """
    return hashlib.blake2b(parent + tokens, key=blk, digest_size=KEY_BYTES).digest()


def chain_keys(tokens: bytes, *, block_tokens: int, blk: bytes, parent: bytes | None = None) -> list[bytes]:
    """Keys of all full blocks of a token sequence, in order.

    Args:
        tokens: u32 little-endian token ids; what is beyond the last full block is ignored.
        block_tokens: tokens in a block.
        blk: the generation's `blk` subkey.
        parent: key before the first block, None at the start of a prompt.
    """
    step, at, out = 4 * block_tokens, parent or ROOT, []
    fresh = hashlib.blake2b(key=blk, digest_size=KEY_BYTES).copy
    for (piece,) in struct.iter_unpack(f"{step}s", memoryview(tokens)[: len(tokens) // step * step]):
        state = fresh()  # a third cheaper than keying anew
        state.update(at + piece)
        at = state.digest()
        out.append(at)
    return out


def directory_key(k_dir: bytes, *, engine: str, algorithm: str, engine_hash: bytes) -> bytes:
    """Key of a block whose tokens are not known: of one engine only, never shared across engines."""
    return directory_keys(k_dir, engine=engine, algorithm=algorithm, hashes=(engine_hash,))[0]


def directory_keys(k_dir: bytes, *, engine: str, algorithm: str, hashes: Iterable[bytes]) -> list[bytes]:
    """`directory_key` of many blocks: HMAC-SHA256(K_dir, framed(engine, algorithm, hash)), its two states made once.

    Source: RFC 2104; a key above one block of the hash is replaced by its digest.
    """
    block = (k_dir if len(k_dir) <= 64 else hashlib.sha256(k_dir).digest()).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(x ^ 0x36 for x in block) + framed(engine.encode(), algorithm.encode())).copy
    outer = hashlib.sha256(bytes(x ^ 0x5C for x in block)).copy
    out = []
    for h in hashes:
        i, o = inner(), outer()
        i.update(len(h).to_bytes(4, "big") + h)
        o.update(i.digest())
        out.append(o.digest())
    return out


def pack(keys: Iterable[bytes]) -> bytes:
    """Keys as one byte string, `KEY_BYTES` each: the form they have on the wire."""
    return b"".join(keys)


def unpack(blob: bytes) -> Sequence[bytes]:
    """The inverse of `pack`."""
    return [blob[i : i + KEY_BYTES] for i in range(0, len(blob), KEY_BYTES)]


def digest_add(total: tuple[int, int, int], key: bytes, sign: int = 1) -> tuple[int, int, int]:
    """A holding's (blocks, lo, hi) after one key came (+1) or went (-1).

    lo and hi are sums mod 2^64 of the key's first two little-endian u64: keys are outputs of a keyed function,
    so plain addition needs no further hash, and XOR would hide a pair that occurs twice.
    """
    mask = 2**64 - 1
    lo, hi = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:16], "little")
    return total[0] + sign, (total[1] + sign * lo) & mask, (total[2] + sign * hi) & mask
