"""Decides how the parts of the P/D road are put together for one agent. Called by `agent`."""

from collections.abc import Callable
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from nodeagent.config import Config
from nodeagent.engines.reference import ReferenceEngine
from nodeagent.media import Media
from nodeagent.meters import Meters
from nodeagent.serving.computing import Computer
from nodeagent.serving.fetching import CUT_SECONDS, Fetcher
from nodeagent.serving.gifts import Gifts
from nodeagent.serving.marks import Faults
from nodeagent.serving.receiving import Receiver
from nodeagent.serving.remote import FetchLimit, Remote
from nodeagent.serving.road import Road
from nodeagent.transfer_pace import Credits
from nodeagent.turns import Turns
from nodeagent.watermarks import Curve


class Serving:
    """The road, its clients, and what they hold."""

    def __init__(
        self, config: Config, media: Media, engine: ReferenceEngine, meters: Meters, *, prefills: Turns,
        decodes: Turns, worker: Callable[..., Any], private_key: bytes,
    ) -> None:  # fmt: skip
        key = Ed25519PrivateKey.from_private_bytes(private_key)
        pool, curve = media.pool, Curve(*config.prefill_curve)
        limits = httpx.Limits(max_keepalive_connections=16, keepalive_expiry=10)
        self._client = httpx.Client(timeout=CUT_SECONDS, trust_env=False, follow_redirects=False, limits=limits)
        self._calls = httpx.AsyncClient(timeout=CUT_SECONDS, trust_env=False, follow_redirects=False)
        receiver = Receiver(pool)
        fetcher = Fetcher(receiver, meters, Credits(), node=config.node, key=key, client=self._client)
        self.gifts = Gifts(pool, node=config.node, key=key)
        self.road = Road(
            Computer(pool, engine, meters, worker, curve=curve, scale=config.time_scale), self.gifts, receiver,
            Remote(fetcher, self._calls), media.relief, node=config.node, prefills=prefills, decodes=decodes,
            credits=Turns(config.receive_credits), limit=FetchLimit(config.fetch_blocks), meters=meters,
            faults=Faults(config.injected_ms), tpot_ms=config.tpot_ms, scale=config.time_scale,
        )  # fmt: skip
        engine.decoding.on_wrote = self.road.sessions.wrote

    async def close(self) -> None:
        """Nothing is fetched or called any more."""
        await self.road.close()
        await self._calls.aclose()
        self._client.close()
