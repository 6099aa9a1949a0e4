"""Decides what a body of `/route` may say: one request, as JSON or msgpack, checked before anything is looked up.

Keys travel packed where they can: 32 bytes each, or the first 16 or 8 of them where `key_bytes` says so, since the
index keeps no more than 8. Token ids become bytes here and are in nothing that leaves the process. Called by `hot`.
"""

import array
import math
import sys
from typing import Any

import msgspec
import numpy as np

from kvcore.keys import KEY_BYTES
from routing.codes import Refusal

BLOCKS_MOST, TOKENS_MOST, CANDIDATES_MOST = 65_536, 2**20, 4_096
SLO_MOST_MS = 3_600_000.0
LENGTHS = {"tenant": 63, "model": 200, "adapter": 128, "data_class": 63, "share_group": 130, "label": 200,
           "subject": 200, "session": 200}  # fmt: skip
KEY_SIZES = (8, 16, KEY_BYTES)
JSON, MSGPACK = b"application/json", b"application/msgpack"


class Slo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the request wants to be within."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    model: str
    tenant: str = ""
    adapter: str | None = None
    data_class: str | None = None
    prompt_tokens: int | None = None
    session: str | None = None
    subject: str | None = None
    label: str | None = None
    share_group: str | None = None
    slo: Slo | None = None
    candidates: list[str] | None = None
    key_bytes: int = KEY_BYTES


class JsonBody(_Body, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """As JSON: keys as hex, one after the other or in a list."""

    token_ids: list[int] | None = None
    block_keys: list[str] | str | None = None


class PackedBody(_Body, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """As msgpack: keys as bytes, one after the other or in a list; token ids as u32 little-endian bytes or a list."""

    token_ids: bytes | list[int] | None = None
    block_keys: bytes | list[bytes] | None = None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A request that can be decided. `key` names what decides its namespace, in the order of `LENGTHS`.

    `keys`: packed, `key_bytes` of each; `prints`: the first 8 bytes of each. b"" where none were given. `tokens`: u32
    little-endian, None where keys or nothing came.
    """

    key: tuple[str, ...]
    prompt_tokens: int | None
    keys: bytes
    key_bytes: int
    prints: bytes
    blocks: int
    tokens: bytes | None
    slo_ttft_ms: float | None
    slo_tpot_ms: float | None
    session: str
    candidates: tuple[str, ...] | None


_json, _packed = msgspec.json.Decoder(JsonBody), msgspec.msgpack.Decoder(PackedBody)


def wanted(body: bytes, kind: bytes, *, gateway: bool) -> Wanted:
    """The request.

    Args:
        body: as it came.
        kind: its media type.
        gateway: whether the caller may send token ids.

    Raises:
        Refusal: with the code of what is wrong first.
    """
    found = _decoded(body, kind)
    key = tuple(_clean(name, getattr(found, name) or "", LENGTHS[name]) for name in LENGTHS)
    if not key[1]:
        raise Refusal("validation-failed", "Say which model.", pointer="/model")
    if found.key_bytes not in KEY_SIZES:
        raise Refusal("keys-length", f"key_bytes is one of {', '.join(map(str, KEY_SIZES))}.", pointer="/key_bytes")
    if found.token_ids is not None and not gateway:
        raise Refusal("token-ids-refused", pointer="/token_ids")
    if found.token_ids is not None and found.block_keys is not None:
        raise Refusal("validation-failed", "Either token_ids or block_keys.", pointer="/token_ids")
    keys = b"" if found.block_keys is None else _keys(found.block_keys, found.key_bytes)
    blocks = len(keys) // found.key_bytes
    tokens = None if found.token_ids is None else _tokens(found.token_ids)
    ttft, tpot = (found.slo.ttft_ms, found.slo.tpot_ms) if found.slo else (None, None)
    return Wanted(
        key=key,
        prompt_tokens=_prompt(found.prompt_tokens, tokens),
        keys=keys,
        key_bytes=found.key_bytes,
        prints=prints(keys, found.key_bytes),
        blocks=blocks,
        tokens=tokens,
        slo_ttft_ms=_slo(ttft, "/slo/ttft_ms"),
        slo_tpot_ms=_slo(tpot, "/slo/tpot_ms"),
        session=key[7],
        candidates=None if found.candidates is None else _candidates(found.candidates),
    )


def _decoded(body: bytes, kind: bytes) -> Any:
    try:
        if kind == JSON:
            return _json.decode(body)
        if kind == MSGPACK:
            return _packed.decode(body)
    except msgspec.ValidationError as e:
        raise _misfit(str(e)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refusal("bad-request", "The body is not what its Content-Type says.") from None
    except RecursionError:
        raise Refusal("body-too-deep") from None
    raise Refusal("unsupported-media-type", "application/json or application/msgpack")


def _misfit(text: str) -> Refusal:
    """msgspec's words name the place and the types, and never the value."""
    what, _, at = text.partition(" - at `$")
    pointer = "/" + at.rstrip("`").lstrip(".").replace(".", "/").replace("[", "/").replace("]", "") if at else "/"
    if "unknown field" in what:
        return Refusal("unknown-field", "The call has no such field.", pointer=pointer[:100])
    return Refusal("validation-failed", what[:200], pointer=pointer[:100])


def _clean(name: str, text: str, most: int) -> str:
    if len(text) > most:
        raise Refusal("out-of-range", f"At most {most} characters.", pointer=f"/{name}")
    if text and not (text.isprintable() and text == text.strip()):
        raise Refusal("unstorable-text", pointer=f"/{name}")
    return text


def _keys(given: list[str] | str | list[bytes] | bytes, size: int) -> bytes:
    """All keys, packed, `size` bytes each."""
    if isinstance(given, list):
        if len(given) > BLOCKS_MOST:
            raise Refusal("too-many-blocks", f"{len(given)}; at most {BLOCKS_MOST}.", pointer="/block_keys")
        unit = size * 2 if given and isinstance(given[0], str) else size
        if not set(map(len, given)) <= {unit}:
            raise Refusal("keys-length", f"Each key has {size} bytes.", pointer="/block_keys")
        given = "".join(given) if given and isinstance(given[0], str) else b"".join(given)  # type: ignore[arg-type]
    try:
        packed = given if isinstance(given, bytes) else bytes.fromhex(given)
    except ValueError:
        raise Refusal("validation-failed", "Keys are hex.", pointer="/block_keys") from None
    if len(packed) % size or (isinstance(given, str) and len(given) != 2 * len(packed)):
        raise Refusal("keys-length", f"Each key has {size} bytes.", pointer="/block_keys")
    if len(packed) // size > BLOCKS_MOST:
        raise Refusal("too-many-blocks", f"{len(packed) // size}; at most {BLOCKS_MOST}.", pointer="/block_keys")
    return packed


def prints(keys: bytes, size: int) -> bytes:
    """The first 8 bytes of each packed key of so many bytes."""
    if size == 8:
        return keys
    return np.frombuffer(keys, "<u8").reshape(-1, size // 8)[:, 0].tobytes() if keys else b""


def _tokens(given: list[int] | bytes) -> bytes:
    most = f"at most {TOKENS_MOST}"
    if isinstance(given, bytes):
        if len(given) % 4:
            raise Refusal("validation-failed", "Token ids are u32, little-endian.", pointer="/token_ids")
        if len(given) > 4 * TOKENS_MOST:
            raise Refusal("out-of-range", most, pointer="/token_ids")
        return given
    if len(given) > TOKENS_MOST:
        raise Refusal("out-of-range", most, pointer="/token_ids")
    try:
        made = array.array("I", given)
    except (OverflowError, TypeError):
        raise Refusal("token-beyond-vocabulary", pointer="/token_ids") from None
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


def within_vocabulary(tokens: bytes, vocabulary: int | None) -> bool:
    """Whether every token id is one of the model's; a model that does not say how many it has takes any."""
    return vocabulary is None or not tokens or int(np.frombuffer(tokens, "<u4").max()) < vocabulary


def _prompt(said: int | None, tokens: bytes | None) -> int | None:
    count = None if tokens is None else len(tokens) // 4
    if said is not None and not 0 < said <= TOKENS_MOST:
        raise Refusal("out-of-range", f"1 to {TOKENS_MOST}.", pointer="/prompt_tokens")
    if said is not None and count is not None and said != count:
        raise Refusal("prompt-mismatch", f"{count} token ids.", pointer="/prompt_tokens")
    return said if said is not None else count


def _slo(value: float | None, pointer: str) -> float | None:
    if value is not None and not (math.isfinite(value) and 0 < value <= SLO_MOST_MS):
        raise Refusal("slo-invalid", f"More than 0, at most {SLO_MOST_MS:.0f}.", pointer=pointer)
    return value


def _candidates(given: list[str]) -> tuple[str, ...]:
    if len(given) > CANDIDATES_MOST:
        raise Refusal("out-of-range", f"At most {CANDIDATES_MOST}.", pointer="/candidates")
    if not given:
        raise Refusal("no-candidates", "The list of candidates is empty.", pointer="/candidates")
    return tuple(given)
