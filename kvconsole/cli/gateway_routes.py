"""Decides where a request goes: asks the router, and where the router is silent goes round, and says so.

Token ids come from the client or from the engine's own tokenizer; they go to the router and are forgotten. The outcome
of each decision is told once, to the router that made it. Called by `kvc gateway`.
"""

import array
import asyncio
import contextlib
import itertools
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import httpx
import msgspec

from kvconsole.cli import gateway_body
from kvconsole.cli.gateway_config import Config
from kvconsole.cli.gateway_keys import Keeper

NAMESPACES, NAMESPACE_SECONDS = 20_000, 600.0
DOWN_SECONDS = 5.0
REPORTS = 256
"""Outcomes on their way at once; one that finds no place is counted and left."""
PACKED = "application/msgpack"
_pack = msgspec.msgpack.Encoder().encode


class Who(msgspec.Struct, frozen=True):
    """What a request says of itself beside its body: whose it is, and what of it must be separable."""

    tenant: str
    session: str = ""
    subject: str = ""
    label: str = ""
    data_class: str = ""
    share_group: str = ""
    ttft_ms: float | None = None
    tpot_ms: float | None = None


class Way(msgspec.Struct, frozen=True):
    """Where a request goes. `decision`: "" = nobody decided, and nothing is said of reuse."""

    node: str
    url: str
    decision: str = ""
    salt: str = ""
    overlap_tokens: int = 0
    why: str = ""
    """Why nobody decided: a code."""


class Held(Exception):
    """The router says: not now."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class _Place(msgspec.Struct, frozen=True):
    node: str


class _Decision(msgspec.Struct, frozen=True):
    decision_id: UUID
    prefill: _Place | None = None
    decode: _Place | None = None
    cache_salt: str | None = None
    overlap_tokens: int = 0


class _Problem(msgspec.Struct, frozen=True):
    code: str = ""


class _Tokens(msgspec.Struct, frozen=True):
    tokens: list[int]


class _Namespace(msgspec.Struct, frozen=True):
    digest: str


class Routes:
    """The router, as one gateway."""

    def __init__(self, config: Config, client: httpx.AsyncClient, keeper: Keeper, token: str, engine_key: str) -> None:
        self.counts: Counter[str] = Counter()
        self._config, self._client, self._keeper = config, client, keeper
        self._auth = {"Authorization": f"Bearer {token}"}
        self._engine_auth = {"Authorization": f"Bearer {engine_key}"} if engine_key else {}
        self._turn = itertools.count()
        self._resolved: OrderedDict[tuple[str, ...], tuple[float, str]] = OrderedDict()
        self._down: dict[str, float] = {}
        self._reports: set[asyncio.Task[None]] = set()

    def next_engine(self, but: Collection[str] = ()) -> Way:
        """The next engine in turn, other than these and those that were not reached lately, where there are others."""
        nodes, turn, down = sorted(self._config.engines), next(self._turn), self.down()
        nodes = [nodes[(turn + i) % len(nodes)] for i in range(len(nodes))]
        node = min(nodes, key=lambda n: (n in but, n in down))  # of equal ones the first
        return Way(node, self._config.engines[node])

    def unreached(self, node: str) -> None:
        """The engine was not reached: for some seconds others come first, and the router is not asked for it."""
        self._down[node] = time.monotonic() + DOWN_SECONDS

    def down(self) -> set[str]:
        """Engines that were not reached lately."""
        now = time.monotonic()
        return {node for node, until in self._down.items() if until > now}

    async def way(self, body: Mapping[str, Any], who: Who, size: int) -> Way:
        """Where the request goes.

        Args:
            body: of the client, cleaned.
            who: whose request.
            size: bytes of the body, for an estimate of its tokens.

        Raises:
            Held: the router refuses for now.
        """
        asked = await self._question(body, who, size)
        try:
            answer = await self._client.post(
                f"{self._config.router_url.rstrip('/')}/api/v1/route", content=_pack(asked),
                headers={**self._auth, "Content-Type": PACKED, "Accept": PACKED},
                timeout=self._config.limits.route_seconds,
            )  # fmt: skip
        except httpx.HTTPError:
            return self._unrouted("router-unreachable")
        if answer.status_code == 429:
            self.counts["held"] += 1
            after = answer.headers.get("Retry-After", "1")
            raise Held(int(after) if after.isdigit() and len(after) < 5 else 1)
        if answer.status_code != 200:
            return self._unrouted(_code(answer))
        try:
            made = msgspec.msgpack.decode(answer.content, type=_Decision)
        except (msgspec.MsgspecError, ValueError):
            return self._unrouted("router-unreadable")
        return self._decided(made)

    def _decided(self, made: _Decision) -> Way:
        """The chosen worker; one whose engine is not known here leaves the decision without effect."""
        chosen = made.prefill or made.decode
        url = self._config.engines.get(chosen.node) if chosen else None
        if chosen is None or url is None:
            return self._unrouted("worker-unknown")
        self.counts["routed"] += 1
        return Way(chosen.node, url, str(made.decision_id), made.cache_salt or "", made.overlap_tokens)

    def _unrouted(self, why: str) -> Way:
        self.counts["unrouted"] += 1
        return msgspec.structs.replace(self.next_engine(), why=why)

    async def _question(self, body: Mapping[str, Any], who: Who, size: int) -> dict[str, Any]:
        served = self._config.served.get(body["model"])
        model, adapter = (served.model, served.adapter) if served else (body["model"], "")
        tokens, _ = await asyncio.gather(self._tokens(body), self._namespace(who, model, adapter))
        slo = {"ttft_ms": who.ttft_ms, "tpot_ms": who.tpot_ms}
        asked = {
            "tenant": who.tenant, "model": model, "adapter": adapter, "session": who.session, "subject": who.subject,
            "label": who.label, "data_class": who.data_class, "share_group": who.share_group,
            "slo": {name: ms for name, ms in slo.items() if ms is not None},
        }  # fmt: skip
        asked = {name: value for name, value in asked.items() if value}
        asked["candidates"] = sorted(self._config.engines.keys() - self.down()) or sorted(self._config.engines)
        if tokens:
            return {**asked, "token_ids": _words(tokens), "prompt_tokens": len(tokens)}
        return {**asked, "prompt_tokens": gateway_body.estimated(body, size)}

    async def _tokens(self, body: Mapping[str, Any]) -> list[int] | None:
        """Token ids of the prompt, None = nobody said."""
        given = gateway_body.given_tokens(body)
        question = gateway_body.tokenizable(body) if self._config.tokenize and given is None else None
        if question is None:
            return given
        try:
            answer = await self._client.post(
                f"{self.next_engine().url.rstrip('/')}/tokenize", content=msgspec.json.encode(question),
                headers={**self._engine_auth, "Content-Type": "application/json"},
                timeout=self._config.limits.tokenize_seconds,
            )  # fmt: skip
            answer.raise_for_status()
            return gateway_body.given_tokens({"prompt": msgspec.json.decode(answer.content, type=_Tokens).tokens})
        except (httpx.HTTPError, msgspec.MsgspecError, ValueError):
            self.counts["untokenized"] += 1
            return None

    async def _namespace(self, who: Who, model: str, adapter: str) -> None:
        """The namespace of the request is there and leased, if the console says so in time.

        A router only reads: what nobody has asked for before is made by the console, once.
        """
        parts = (who.tenant, model, adapter, who.data_class, who.label, who.subject, who.session, who.share_group)
        names = ("tenant", "model", "adapter", "data_class", "label", "subject", "session", "share_group")
        until, digest = self._resolved.get(parts, (0.0, ""))
        with contextlib.suppress(httpx.HTTPError, msgspec.MsgspecError, ValueError):
            if until < time.monotonic():
                answer = await self._client.post(
                    f"{self._config.console_url.rstrip('/')}/api/v1/namespaces:resolve", headers=self._auth,
                    json={n: v for n, v in zip(names, parts, strict=True) if v},
                    timeout=self._config.limits.route_seconds,
                )  # fmt: skip
                answer.raise_for_status()
                digest = msgspec.json.decode(answer.content, type=_Namespace).digest
                self._resolved[parts] = (time.monotonic() + NAMESPACE_SECONDS, digest)
                while len(self._resolved) > NAMESPACES:
                    self._resolved.popitem(last=False)
        if digest:
            self._keeper.ring.want(digest)
            if not self._keeper.ring.has(digest):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._keeper.renew(), self._config.limits.route_seconds)

    def report(self, way: Way, outcome: Mapping[str, Any]) -> None:
        """The outcome is on its way, once. What nobody decided, or nobody measured, has none."""
        if not way.decision:
            return
        if not outcome:
            self.counts["unmeasured"] += 1
            return
        if len(self._reports) >= REPORTS:
            self.counts["reports_dropped"] += 1
            return
        task = asyncio.create_task(self._report(way.decision, dict(outcome)))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _report(self, decision: str, outcome: dict[str, Any]) -> None:
        url = f"{self._config.router_url.rstrip('/')}/api/v1/decisions/{decision}/outcome"
        try:
            answer = await self._client.post(url, json=outcome, headers=self._auth, timeout=5.0)
            self.counts["reported" if answer.status_code < 300 else "reports_refused"] += 1
        except httpx.HTTPError:
            self.counts["reports_lost"] += 1

    async def settle(self) -> None:
        """What was on its way has arrived, or been given up."""
        if self._reports:
            await asyncio.wait(self._reports, timeout=5.0)


def _words(tokens: list[int]) -> bytes:
    """The token ids as u32, little-endian."""
    words = array.array("I", tokens)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def _code(answer: httpx.Response) -> str:
    """The code of a refusal, as far as it is one word."""
    try:
        code = msgspec.json.decode(answer.content, type=_Problem).code
    except (msgspec.MsgspecError, ValueError):
        code = ""
    return code if code.replace("-", "").isalnum() and code.isascii() and len(code) < 64 else "router-refused"
