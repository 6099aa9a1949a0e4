"""Decides what the reference engine does with a request: real keys, real bytes, real hits; only time is declared.

Tokens come from the trace's hash ids, keys from tokens and the leased `blk`, content from the leased `enc` and the
key, so every block that is read can be checked against what it must be. Prefill time is a declared curve, marked
emulated. Called by `server` (requests) and `agent` (tick), both in the pool's one worker thread.
"""

import hmac
from collections import OrderedDict
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from kvcore.events import Use
from kvcore.keys import KEY_BYTES, chain_keys
from kvcore.made_tokens import hash_tokens
from nodeagent.budget import STALE
from nodeagent.config import VERSION
from nodeagent.engines.base import Request, Result
from nodeagent.engines.decode import Decoding
from nodeagent.keys import KeyRing, Lease
from nodeagent.pool import Pool
from nodeagent.runs import RUN_BLOCKS, Copy, Run, Space
from nodeagent.tiers.base import LeaseOver, seal
from nodeagent.watermarks import REUSE_FLOOR, Curve, load_ms, touch

TOKENS_MAX = 2**21
"""Tokens of one request."""
CHAINS_KEPT = 4096
"""Hash blocks whose keys are remembered."""
HELD_SHARE = 0.5
"""Share of the hottest tier that one request may hold while it runs."""
_Chain = tuple[bytes, int, bytes, int, int, int]


def describe() -> dict[str, Any]:
    """What an agent with this engine tells at enrolment."""
    capabilities = {"inventory": True, "digest": True, "allowances": True, "emulated": ["hbm", "time"]}
    return {"kind": "reference", "version": VERSION, "capabilities": capabilities}


class Keystream:
    """Content of blocks of one namespace generation: AES-CTR under a key of `enc`, the block key as first counter."""

    def __init__(self, enc: bytes, block_bytes: int) -> None:
        key = hmac.digest(enc, b"kvconsole/content/v1", "sha256")
        self._cipher = Cipher(AES(key), CTR(bytes(16))).encryptor()
        self._zeros = bytes(block_bytes)

    def content(self, key: bytes) -> bytes:
        """What the block with this key must contain."""
        self._cipher.reset_nonce(key[:16])
        return self._cipher.update(self._zeros)


class ReferenceEngine:
    """Takes requests of traces and keeps their KV blocks in the pool."""

    def __init__(
        self, pool: Pool, ring: KeyRing, *, block_tokens: int, block_bytes: int, curve: Curve, tpot_ms: float
    ) -> None:
        self.ring = ring
        self._pool, self._curve = pool, curve
        self._block_tokens, self._block_bytes = block_tokens, block_bytes
        self._held_bytes = 0
        self._streams: dict[tuple[bytes, int], tuple[bytes, Keystream]] = {}
        self._chains: OrderedDict[_Chain, bytes] = OrderedDict()
        self.decoding = Decoding(self, tpot_ms=tpot_ms)
        self.requests = self.hit_tokens = self.prompt_tokens = 0

    def describe(self) -> dict[str, Any]:
        """Kind, version and capabilities."""
        return describe()

    @property
    def running(self) -> int:
        """Requests that are still decoding."""
        return len(self.decoding)

    def handle(self, requests: list[Request], now: float) -> list[Result]:
        """Carries the requests out; one that cannot be says why and costs its neighbours nothing."""
        results = []
        for request in requests:
            with self._pool.lock:
                results.append(self._one(request, now))
                self._pool.teller.flush()
        return results

    def tick(self, now: float) -> None:
        """Goes on decoding."""
        with self._pool.lock:
            self.decoding.advance(now)
            self._pool.teller.flush()

    def forget(self) -> None:
        """Nothing of fenced generations goes on: requests end, and what was derived from their keys is forgotten."""
        pool, ring = self._pool, self.ring
        with pool.lock:
            for space, blocks in self.decoding.abort(lambda space: ring.fenced(space.ns, space.gen)):
                pool.budget.refuse(space.ns, pool.order[0], STALE, blocks)
            self._streams = {k: v for k, v in self._streams.items() if not ring.fenced(*k)}
            for chain in [c for c in self._chains if ring.fenced(c[0], c[1])]:
                del self._chains[chain]

    def drop(self, ns: bytes, gen_upto: int) -> None:
        """Forgets what was derived from keys of the namespace's generations below."""
        with self._pool.lock:
            self._streams = {k: v for k, v in self._streams.items() if k[0] != ns or k[1] >= gen_upto}

    def open(self, request: Request) -> tuple[Lease, Space, bytes] | Result:
        """The lease, the space and the packed keys of the prompt's full blocks; else why it cannot be carried out."""
        try:
            lease = self.ring.lease(request.ns, request.gen)
        except LeaseOver:
            return Result(request=request.request, code=self._not_here(request) or "lease-over")
        if lease.block_tokens != self._block_tokens:
            return Result(request=request.request, code="block-size-mismatch")
        if not _good(request):
            return Result(request=request.request, code="request-malformed")
        return lease, self.space(lease), self._chain(request, lease)

    def _one(self, request: Request, now: float) -> Result:
        opened = self.open(request)
        if isinstance(opened, Result):
            return opened
        lease, space, chain = opened
        held: list[Copy] = []
        hits, tiers = self._read(chain, held, now)
        self._pool.admission.learn(space, chain, hits, RUN_BLOCKS)
        self.produce(space, lease, chain[hits * KEY_BYTES :], held, now, parent=_before(chain, hits), depth=hits)
        result = self.account(request, space, chain, hits, tiers)
        self.decoding.begin(request, lease, space, chain, held, now)
        return result

    def _not_here(self, request: Request) -> str:
        """Why the namespace may not be on this node at all, "" if that is not known; its blocks count as refused."""
        why = self._pool.budget.shut(request.ns)
        if why and _good(request):
            self._pool.budget.refuse(request.ns, self._pool.order[0], why, request.input_length // self._block_tokens)
        return why

    def account(self, request: Request, space: Space, chain: bytes, hits: int, tiers: dict[str, int]) -> Result:
        """Tells the use and sums up what it saved."""
        size = space.block_tokens
        load = sum(load_ms(t, n * space.block_bytes // size) for t in self._pool.order for n in (tiers.get(t, 0),))
        hit = hits * size
        saved = max(self._curve.ms(hit) - load, 0.0)
        ttft = load + self._curve.ms(request.input_length) - self._curve.ms(hit)
        self.requests += 1
        self.hit_tokens += hit
        self.prompt_tokens += request.input_length
        self._pool.outboxes[self._pool.order[0]].put(
            Use(
                ns=space.ns, gen=space.gen, head=_before(chain, hits),
                hit_tokens=hit, tiers=tiers, prompt_tokens=request.input_length, saved_ms=saved, measured=False,
                request=request.request[:64],
            )
        )  # fmt: skip
        return Result(
            request=request.request, hit_tokens=hit, prompt_tokens=request.input_length, tiers=tiers, ttft_ms=ttft,
            saved_ms=saved,
        )  # fmt: skip

    def space(self, lease: Lease) -> Space:
        """The space of a lease in this engine's one cache group."""
        return self._pool.space(lease.ns, lease.gen, 0, block_tokens=lease.block_tokens, block_bytes=self._block_bytes)

    def _chain(self, request: Request, lease: Lease) -> bytes:
        """Packed keys of the prompt's full blocks; what is beyond `input_length` is cut off."""
        left, size = request.input_length // lease.block_tokens * lease.block_tokens, request.hash_tokens
        parts: list[bytes] = []
        parent, carry = b"", b""
        for hash_id in request.hash_ids:
            if left <= 0:
                break
            take = min(size, left)
            left -= take
            if take == size and not carry and size % lease.block_tokens == 0:
                keys = self._known(lease, parent, hash_id, size, request.model_seed)
            else:
                tokens = carry + hash_tokens(hash_id, take, request.model_seed)
                keys = b"".join(
                    chain_keys(tokens, block_tokens=lease.block_tokens, blk=lease.blk, parent=parent or None)
                )
                carry = tokens[len(keys) // KEY_BYTES * lease.block_tokens * 4 :]
            parts.append(keys)
            parent = keys[-KEY_BYTES:] or parent
        return b"".join(parts)

    def _known(self, lease: Lease, parent: bytes, hash_id: int, size: int, seed: int) -> bytes:
        """Keys of a whole hash block behind `parent`, remembered for prompts that share it."""
        at = lease.ns, lease.gen, parent, hash_id, size, seed
        if (keys := self._chains.get(at)) is None:
            tokens = hash_tokens(hash_id, size, seed)
            keys = b"".join(chain_keys(tokens, block_tokens=lease.block_tokens, blk=lease.blk, parent=parent or None))
            self._chains[at] = keys
            if len(self._chains) > CHAINS_KEPT:
                self._chains.popitem(last=False)
        else:
            self._chains.move_to_end(at)
        return keys

    def _read(self, chain: bytes, held: list[Copy], now: float) -> tuple[int, dict[str, int]]:
        """Longest prefix of the chain that is here and passes its checks: (blocks, tokens by tier)."""
        pool, at, blocks = self._pool, 0, len(chain) // KEY_BYTES
        tiers: dict[str, int] = {}
        used: list[Run] = []
        while at < blocks:
            run = pool.index.get(chain[at * KEY_BYTES : (at + 1) * KEY_BYTES])
            if run is None:
                break
            agree = run.agrees(chain, at)
            tier = pool.use(run, now)
            if tier is None:
                break
            self.hold(run, held)
            tiers[tier.value] = tiers.get(tier.value, 0) + agree * run.space.block_tokens
            at += agree
            used.append(run)
        saved = self._curve.ms(at * self._block_tokens)
        for run in used:
            touch(run, now, saved - self._curve.ms(run.depth * self._block_tokens))
        return at, tiers

    def hold(self, run: Run, held: list[Copy]) -> None:
        """Keeps the run from being evicted while the request runs, as far as requests may hold the tier."""
        limit = HELD_SHARE * self._pool.tiers[self._pool.order[0]].capacity_bytes
        if self._held_bytes + run.meta.size_bytes <= limit and (copy := self._pool.hold(run)) is not None:
            held.append(copy)
            self._held_bytes += run.meta.size_bytes
            copy.held_bytes = run.meta.size_bytes

    def release(self, held: list[Copy]) -> None:
        """Lets go of the copies."""
        for copy in held:
            copy.release()
            self._held_bytes -= copy.held_bytes
        held.clear()

    def tokens(self, hash_id: int, count: int, seed: int) -> bytes:
        """See `hash_tokens`."""
        return hash_tokens(hash_id, count, seed)

    def produce(
        self, space: Space, lease: Lease, chain: bytes, held: list[Copy], now: float,
        *, parent: bytes | None, depth: int,
    ) -> None:  # fmt: skip
        """Computes the blocks of a chain that lies `depth` blocks deep, behind `parent`, and commits them.

        Blocks that are somewhere on this node already are not stored twice; those that do not fit are not kept.
        """
        pool, content = self._pool, self.keystream(lease).content
        at, blocks = 0, len(chain) // KEY_BYTES
        whole = self._curve.ms((depth + blocks) * self._block_tokens)
        while at < blocks:
            known = pool.index.get(chain[at * KEY_BYTES : (at + 1) * KEY_BYTES])
            if known is not None:
                at += known.agrees(chain, at, depth)
                continue
            end = self.end(chain, at, depth)
            keys, before = chain[at * KEY_BYTES : end * KEY_BYTES], _before(chain, at) or parent
            meta = pool.meta(space, depth=depth + at, parent=before, keys=keys)
            run = Run(space, meta, now=now)
            run.heat = max(space.share, REUSE_FLOOR) * (whole - self._curve.ms((depth + at) * self._block_tokens))
            if not pool.commit([(run, seal(meta, content))], now):
                return
            self.hold(run, held)
            at = end

    def end(self, chain: bytes, at: int, depth: int) -> int:
        """Where a new run that starts at block `at` ends: at the next multiple of a run, or before a known block."""
        end = min(((at + depth) // RUN_BLOCKS + 1) * RUN_BLOCKS - depth, len(chain) // KEY_BYTES)
        index = self._pool.index
        for i in range(at + 1, end):
            if chain[i * KEY_BYTES : (i + 1) * KEY_BYTES] in index:
                return i
        return end

    def keystream(self, lease: Lease) -> Keystream:
        """Content of the lease's blocks; the key is forgotten with the lease."""
        enc, stream = self._streams.get((lease.ns, lease.gen), (b"", None))
        if stream is None or enc != lease.enc:
            stream = Keystream(lease.enc, self._block_bytes)
            live = {(x.ns, x.gen) for x in self.ring.live()}
            self._streams = {k: v for k, v in self._streams.items() if k in live}
            self._streams[lease.ns, lease.gen] = lease.enc, stream
        return stream


def _good(request: Request) -> bool:
    """Whether it can be carried out; one that cannot would stop its neighbours, or tell nonsense of this node."""
    tokens, ids = request.input_length, request.hash_ids
    whole = min(tokens, request.output_length) >= 0 and 0 < tokens + request.output_length <= TOKENS_MAX
    covered = request.hash_tokens > 0 and len(ids) * request.hash_tokens >= tokens
    numbers = (request.model_seed, min(ids, default=0), max(ids, default=0))
    named = bool(request.request) and request.request[:64].isprintable()
    return whole and covered and named and all(-(2**63) <= n < 2**63 for n in numbers)


def _before(chain: bytes, at: int) -> bytes | None:
    """Key of the block before block `at`, None before the first."""
    return chain[(at - 1) * KEY_BYTES : at * KEY_BYTES] if at else None
