"""Decides what a request trace is: reading the public JSONL form, and making agent-style traces.

Free of Django and of I/O beyond the file it is given, so that a simulator can import it. Made traces repeat to the
byte. Called by `replay` and `make_trace`.
Source of the form: the Mooncake FAST'25 trace release (`timestamp` in ms, `hash_ids` of 512-token blocks).
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

HASH_TOKENS = 512
"""Tokens behind one hash id."""


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a trace. `at_ms` counts from the start; the ids cover the input, the last one perhaps in part."""

    at_ms: float = msgspec.field(name="timestamp")
    input_length: int
    output_length: int
    hash_ids: list[int]
    tenant: str | None = None
    label: str | None = None
    session: str | None = None


class TraceError(ValueError):
    """A line is not a request of the trace form; nothing of the trace was replayed."""


def trace_read(path: Path, *, limit: int | None = None) -> list[TraceRequest]:
    """The first `limit` requests of a trace file in order of time.

    Raises:
        TraceError: names the line and what is wrong with it.
        OSError: the file cannot be read.
    """
    decoder = msgspec.json.Decoder(TraceRequest)
    out: list[TraceRequest] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if limit is not None and len(out) >= limit:
                break
            if not line.strip():
                continue
            try:
                request = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as e:
                raise TraceError(f"{path.name} line {number}: {e}; nothing was replayed") from None
            out.append(_checked(request, path.name, number))
    return sorted(out, key=lambda r: r.at_ms)


def _checked(request: TraceRequest, name: str, number: int) -> TraceRequest:
    wrong = None
    if request.at_ms < 0 or request.input_length < 1 or request.output_length < 0:
        wrong = "a time or length is negative, or the input is empty"
    elif any(not 0 <= h < 2**63 for h in request.hash_ids):
        wrong = "a hash id is not between 0 and 2^63"
    elif len(request.hash_ids) * HASH_TOKENS < request.input_length:
        wrong = f"{len(request.hash_ids)} hash ids of {HASH_TOKENS} tokens cannot cover {request.input_length} tokens"
    if wrong:
        raise TraceError(f"{name} line {number}: {wrong}; nothing was replayed")
    return request


def rendezvous(key: bytes, names: Sequence[str]) -> list[str]:
    """The names in this key's order of preference; one that leaves moves only its own keys (highest random weight)."""
    return sorted(names, key=lambda n: hashlib.blake2b(n.encode(), key=key[:64], digest_size=8).digest(), reverse=True)


def placement_key(request: TraceRequest) -> bytes:
    """What decides the node until a router does: the session, else where its prompt leaves the prefix all share."""
    base = request.session or "/".join(map(str, request.hash_ids[:2]))
    return hashlib.blake2b(f"{request.tenant}|{base}".encode(), digest_size=16).digest()


MOST: dict[str, int] = {
    "seconds": 30 * 86_400, "requests_per_second": 10_000, "repositories": 10_000, "repository_ids": 10_000,
    "schema_ids": 10_000,
}  # fmt: skip
"""What a made trace may have: more is a mistake, or fills memory."""


class TraceShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a made trace looks like. Lengths in hash ids of 512 tokens, times in seconds.

    Raises:
        ValueError: no trace has such a shape.
    """

    seed: int = 1
    seconds: int = 600
    tenants: tuple[str, ...] = ("acme-code", "borealis-bank", "cobalt-support")
    requests_per_second: float = 2.0
    schema_ids: int = 2  # tool schemas and system prompt, the same for all sessions of a tenant
    repositories: int = 3  # per tenant
    repository_ids: int = 12  # the snapshot that the sessions of one repository share
    turns: tuple[int, int] = (3, 12)
    turn_ids: tuple[int, int] = (1, 3)
    output_tokens: tuple[int, int] = (48, 320)
    tool_wait: float = 4.0  # mean of the waits between turns
    think_wait: float = 20.0  # every fifth turn waits for a person instead

    def __post_init__(self) -> None:
        """Refuses what would give no trace, or one without end."""
        for name, most in MOST.items():
            if not 0 < getattr(self, name) <= most:
                raise ValueError(f"{name}: above 0, to {most}, not {getattr(self, name)}")
        if not self.tenants or not all(self.tenants) or self.tool_wait <= 0 or self.think_wait <= 0:
            raise ValueError("a trace needs names of tenants, and waits above 0")
        for low, high in (self.turns, self.turn_ids, self.output_tokens):
            if not 0 < low <= high:
                raise ValueError("a range begins above 0 and does not end before it begins")


def trace_make(shape: TraceShape) -> list[TraceRequest]:
    """Agent sessions: each grows turn by turn over a tenant's tool schema and a repository's snapshot.

    The same shape gives the same requests on every machine.
    """
    rnd = random.Random(shape.seed)
    fresh = iter(range(1, 2**62))

    def take(n: int) -> list[int]:
        return [next(fresh) for _ in range(n)]

    schema = {t: take(shape.schema_ids) for t in shape.tenants}
    repos = {t: [take(shape.repository_ids) for _ in range(shape.repositories)] for t in shape.tenants}
    per_session = (shape.turns[0] + shape.turns[1]) / 2
    clock, count = 0.0, 0
    out: list[TraceRequest] = []
    while clock < shape.seconds:
        clock += rnd.expovariate(shape.requests_per_second / per_session)
        tenant, count = rnd.choice(shape.tenants), count + 1
        repo = rnd.choices(range(shape.repositories), [1 / (i + 1) for i in range(shape.repositories)])[0]
        ids = schema[tenant] + repos[tenant][repo]
        out += _session(rnd, shape, clock, ids, take, tenant, f"repo-{repo + 1}", f"s{shape.seed}-{count}")
    return sorted((r for r in out if r.at_ms < shape.seconds * 1000), key=lambda r: (r.at_ms, r.session or ""))


def _session(
    rnd: random.Random,
    shape: TraceShape,
    at: float,
    ids: list[int],
    take: Callable[[int], list[int]],
    tenant: str,
    label: str,
    session: str,
) -> Iterator[TraceRequest]:
    for turn in range(rnd.randint(*shape.turns)):
        ids = ids + take(rnd.randint(*shape.turn_ids))
        yield TraceRequest(
            at_ms=round(at * 1000),
            input_length=len(ids) * HASH_TOKENS - rnd.randrange(HASH_TOKENS),
            output_length=rnd.randint(*shape.output_tokens),
            hash_ids=ids,
            tenant=tenant,
            label=label,
            session=session,
        )
        at += rnd.expovariate(1 / (shape.think_wait if turn % 5 == 4 else shape.tool_wait))


def trace_write(requests: Iterable[TraceRequest], path: Path) -> int:
    """Write the requests as JSON lines; answers how many. An existing file is replaced whole or not at all."""
    part, count = path.with_name(path.name + ".part"), 0
    try:
        with part.open("w", encoding="utf-8") as out:
            for request in requests:
                count += 1
                row = {k: v for k, v in msgspec.to_builtins(request).items() if v is not None}
                out.write(json.dumps(row, separators=(",", ":")) + "\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return count
