"""Decides what an agent writes to its log: one line when it begins, when something changed, and when it ends.

Looks once a second at what is the case and says what is different from what it said before, so that no storm of events
becomes a storm of lines. Names states, codes and numbers; never a key, a token, a namespace or anything of a prompt.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kvcore.blocks import Tier
from nodeagent.config import Config

if TYPE_CHECKING:
    from nodeagent.agent import Agent

LOOK_SECONDS = 1.0
AWAY_SECONDS = 5.0
"""The console is away when it answered nothing for so long; heartbeats go twice a second."""
AGAIN_SECONDS = 10.0
"""Least time between two lines about one thing: what flaps is said as it is then."""
COUNTED_SECONDS = 60.0
"""Least time between two lines about one kind of refusal; they say how many there were."""
_log = logging.getLogger("nodeagent")


def begin_log() -> None:
    """Lines go to standard error, with their time."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level=logging.WARNING)
    _log.setLevel(logging.INFO)


def begun(config: Config) -> str:
    """Who begins to work, for whom, and with what."""
    tiers = ", ".join(f"{n.value} {_size(config.tiers[n].capacity_bytes)}" for n in Tier if n in config.tiers)
    return (
        f"{config.name} begins: node {config.node}, agent {config.version}, profile {config.profile}, listens on "
        f"{config.listen}, console {_place(config.console_url)}, tiers {tiers}"
    )


def ended(config: Config, *, seconds: float, why: str) -> str:
    """Who stopped, and why."""
    return f"{config.name} ends after {seconds:.0f} s: {why}"


class Reporter:
    """What was said, and when."""

    def __init__(self, agent: "Agent", *, say: Callable[[str], None] = _log.info) -> None:
        self._agent, self._say = agent, say
        self._said: dict[str, tuple[str, float]] = {}
        self._counted: dict[str, tuple[int, float]] = {}
        self._began = time.time()

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(time.time())

    def look(self, now: float) -> None:
        """Says what is different."""
        for subject, state in self._states(now).items():
            before, at = self._said.get(subject, ("", -AGAIN_SECONDS))
            if state and state != before and now - at >= AGAIN_SECONDS:
                self._said[subject] = state, now
                self._say(state)
        for what, count in self._counts().items():
            told, at = self._counted.get(what, (0, -COUNTED_SECONDS))
            if count > told and now - at >= COUNTED_SECONDS:
                self._counted[what] = count, now
                self._say(f"{count - told} {what}")

    def _states(self, now: float) -> dict[str, str]:
        """What is the case, by what it is about; "" = nothing to say yet."""
        sender, ring, pool = self._agent.sender, self._agent.ring, self._agent.pool
        quiet = now - (sender.heard_at or self._began)
        leases = len(ring.live())
        states = {
            "console": "the console answers" if sender.heard_at and quiet < AWAY_SECONDS else "",
            "leases": "keys of namespaces are leased" if leases else "",
            "fence": f"fences up to {ring.fence_seq} are applied" if ring.fence_seq else "",
        }
        if quiet >= AWAY_SECONDS:
            states["console"] = "the console does not answer; what is not acknowledged waits in the outbox"
        if not leases and "leases" in self._said:
            states["leases"] = "no keys are leased any more: no request is taken"
        states |= {f"tier {n}": "" if pool.up(n, now) else f"the tier {n.value} is down" for n in pool.order}
        for subject, (state, _) in self._said.items():
            if subject.startswith("tier ") and not states.get(subject) and state.endswith(" down"):
                states[subject] = f"{state.removesuffix(' down')} up again"
        for (source, rank), why in sender.halted.items():
            states[f"halted {source}/{rank}"] = f"the console hears source {source}/{rank} no more: {why}"
        return states

    def _counts(self) -> dict[str, int]:
        """Refusals so far, by kind and code."""
        sender, budget = self._agent.sender, self._agent.pool.budget
        found: Counter[str] = Counter()
        for name, count in sender.counts.copy().items():
            kind, _, code = name.partition("_")
            if kind == "refused" or (kind == "heartbeat" and code not in ("", "away")):
                found[f"messages were refused by the console: {code}"] += count
        for code, count in sender.rejected.copy().items():
            found[f"items were refused by the console: {code}"] += count
        for code, count in self._agent.refused_ever.copy().items():
            found[f"requests were not taken: {code}"] += count
        for (tier, why), count in budget.refused_ever.copy().items():
            found[f"blocks were not taken on {tier}: {why}"] += count
        for tier, count in self._agent.pool.cleared.copy().items():
            found[f"blocks were fenced while this node was away, and are erased: {tier}"] += count
        if unkept := self._agent.ring.unkept:
            found["times fences could not be written to the journal: they hold, and are not acknowledged"] += unkept
        return found


def _place(url: str) -> str:
    """The address without what may be secret in it."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


def _size(count: int) -> str:
    """Bytes as people write them."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"
