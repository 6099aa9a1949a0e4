"""Decides which verb of a move is done how on this node: move, offer, take, release; and answers other agents.

Called by `executor` through `agent`, by `server` for other agents, by `erasing` for what is under way.
"""

import time
from collections.abc import Callable

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kvcore.blocks import TIERS, Tier
from kvcore.messages import Command
from kvcore.moves import MOVE, OFFER, RELEASE, TAKE, MoveArgs, Party
from nodeagent.jobs import Done, Job
from nodeagent.keys import KeyRing
from nodeagent.media import Media
from nodeagent.runs import Only
from nodeagent.serving.gifts import Gifts
from nodeagent.targets import Malformed, Targets
from nodeagent.tiers.base import RunMeta
from nodeagent.transfer import Line, Page, Parcel, poster, transfer_client
from nodeagent.transfer_local import Moving
from nodeagent.transfer_pace import Credits, Pace
from nodeagent.transfer_source import Offers
from nodeagent.transfer_staging import Source, Staging
from nodeagent.transfer_target import Taking

OPEN_SECONDS = 0.05
_Verb = Callable[[Command, MoveArgs, Tier, Targets, Job], Done]


class _Inside:
    """What another source of this node offers."""

    def __init__(self, offers: Offers, offer: str) -> None:
        self._offers, self._offer = offers, offer

    def page(self, after: int) -> Page:
        return self._offers.page(self._offer, after)

    def fetch(self, versions: list[int], credit: int) -> Parcel:
        return self._offers.read(self._offer, versions, credit)


class Desk:
    """The moves of one agent."""

    def __init__(
        self, media: Media, ring: KeyRing, *, node: str, private_key: bytes, clock: Callable[[], float] = time.time,
        dialled: Callable[[str], httpx.Client] | None = None, hurry: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        """The desk of one agent.

        Args:
            dialled: a client for an address.
            hurry: asks for leases soon.
        """
        self._media, self._ring, self._node = media, ring, node
        self._pool = media.pool
        self._key = Ed25519PrivateKey.from_private_bytes(private_key)
        self.offers = Offers(media.pool, node=node, key=self._key, clock=clock)
        self.staging, self.credits, self.pace = Staging(), Credits(), Pace()
        self._hurry = hurry
        self.gifts: Gifts | None = None
        """What is given within requests; an erase reaches it too."""
        self._client = dialled or (lambda url: transfer_client())

    @property
    def long(self) -> dict[str, Callable[[Command, Job], Done]]:
        """Verbs that run beside others."""
        verbs: dict[str, _Verb] = {MOVE: self._move, OFFER: self._offer, TAKE: self._take, RELEASE: self._release}

        def bound(verb: _Verb) -> Callable[[Command, Job], Done]:
            return lambda command, job: self._do(command, job, verb)

        return {kind: bound(verb) for kind, verb in verbs.items()}

    def _do(self, command: Command, job: Job, verb: _Verb) -> Done:
        try:
            args = msgspec.convert(command.args, MoveArgs)
            targets = Targets(args.targets)
        except (msgspec.ValidationError, Malformed) as e:
            return Done("refused", "args-malformed", {"error": str(e)[:200]})
        tier = Tier(args.tier) if args.tier in TIERS else None
        if tier is None or tier not in self._pool.tiers or self._pool.outboxes[tier].source != args.source:
            return Done("refused", "owner-unknown", {"source": args.source, "tier": args.tier})
        while not self._media.opened:  # what an earlier life left is not known yet
            job.sleep(OPEN_SECONDS)
        return verb(command, args, tier, targets, job)

    def _move(self, command: Command, args: MoveArgs, tier: Tier, targets: Targets, job: Job) -> Done:
        pool, to = self._pool, Tier(args.to_tier) if args.to_tier in TIERS else None
        if to is None or to is tier or to not in pool.tiers or pool.outboxes[to] is not pool.outboxes[tier]:
            return Done("refused", "owner-unknown", {"source": args.source, "tier": args.to_tier})
        only = Only(args.only)
        return Moving(pool, tier, to, targets, job, self.pace, args.rate_bytes_per_s, only).run()

    def _offer(self, command: Command, args: MoveArgs, tier: Tier, targets: Targets, job: Job) -> Done:
        return self.offers.offer(command, args, tier, targets)

    def _take(self, command: Command, args: MoveArgs, tier: Tier, targets: Targets, job: Job) -> Done:
        if args.party is None or not args.offer:
            return Done("refused", "args-malformed", {"error": "it must be said of whom"})
        taking = Taking(
            self._pool, self._ring, command, args, tier, targets, job,
            staging=self.staging, credit=self.credits, pace=self.pace, offered=self.offers.holds,
            hurry=self._hurry,
        )  # fmt: skip
        if args.party.node == self._node:
            return taking.run(lambda party, offer: _Inside(self.offers, offer))
        with self._client(args.party.url) as client:
            post = poster(client, args.party.url)

            def dial(party: Party, offer: str) -> Source:
                key = bytes.fromhex(party.public_key)
                return Line(post, key=self._key, node=self._node, offer=offer, to=party.node, to_key=key)

            return taking.run(dial)

    def _release(self, command: Command, args: MoveArgs, tier: Tier, targets: Targets, job: Job) -> Done:
        return self.offers.release(args, tier, targets, job)

    # What others ask

    def answer(self, body: bytes) -> bytes:
        """The answer to another agent.

        Raises:
            Denied: nothing was given.
        """
        return self.offers.answer(body)

    def upkeep(self, now: float) -> None:
        """Offers whose time is over hold nothing any more."""
        self.offers.expire(now)

    def erase(self, tier: Tier, targets: Targets) -> list[tuple[RunMeta, list[bool]]]:
        """Nothing of the targets is under way to the tier or held on it for others; answers what was staged."""
        with self._pool.lock:
            self.offers.cancel(tier, targets)
            if self.gifts is not None:
                self.gifts.cancel(tier, targets)
            return self.staging.scour(tier, targets)
