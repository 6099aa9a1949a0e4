"""Decides how blocks of a gift are fetched: page by page as it grows, within this node's credits, run by run committed.

Credits are of two kinds: how many requests may receive at a time, and how many bytes may be in flight to this node.
Blocking, in a thread of its own; called by `remote`.
"""

import time
from collections.abc import Callable

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kvcore.tickets import Peer, Ticket
from nodeagent.meters import Meters
from nodeagent.serving.gifts import Knock
from nodeagent.serving.receiving import Receiver, Reservation
from nodeagent.serving.words import GIFTS
from nodeagent.tiers.base import RunMeta
from nodeagent.transfer import Cut, Denied, Line, Post
from nodeagent.transfer_pace import Credits

CUT_SECONDS = 1.0
PARCEL_BYTES = 2**20


class Fetcher:
    """Fetches from givers for one node."""

    def __init__(
        self, receiver: Receiver, meters: Meters, credits: Credits, *, node: str, key: Ed25519PrivateKey,
        client: httpx.Client,
    ) -> None:  # fmt: skip
        self._receiver, self._meters, self._credits = receiver, meters, credits
        self._node, self._key, self._client = node, key, client
        self.fetched_bytes = 0

    def post(self, url: str) -> Post:
        """Sends to a giver."""

        def send(body: bytes) -> bytes:
            headers = {"Content-Type": "application/msgpack"}
            try:
                answer = self._client.post(url.rstrip("/") + GIFTS, content=body, headers=headers)
            except (httpx.HTTPError, httpx.InvalidURL) as e:
                raise Cut(type(e).__name__) from None
            if answer.status_code == 200:
                return answer.content
            if answer.status_code < 500:
                raise Denied(_code(answer))
            raise Cut(f"HTTP {answer.status_code}")

        return send

    def knock(self, giver: Peer, ticket: Ticket) -> tuple[int, int]:
        """The giver holds what the ticket says: (first block, blocks).

        Raises:
            Cut, Denied.
        """
        answer = self.post(giver.url)(msgspec.msgpack.encode(Knock(ticket)))
        try:
            found = msgspec.msgpack.decode(answer, type=dict[str, int])
            return found["start"], found["blocks"]
        except (msgspec.DecodeError, KeyError):
            raise Cut("the answer ended early") from None

    def line(self, giver: Peer, name: str) -> Line:
        """A connection to the giver for the gift.

        Raises:
            Cut, Denied.
        """
        return Line(
            self.post(giver.url), key=self._key, node=self._node, offer=name, to=giver.node, to_key=giver.public_key
        )

    def fetch(
        self, line: Line, giver: Peer, reservation: Reservation, after: int, check: Callable[[], None]
    ) -> tuple[int, int]:
        """Fetches what the gift has behind its part `after`: (parts seen so far, blocks committed now).

        Raises:
            Cut, Denied: as of the line; `check` may raise too. What was committed stays.
        """
        done = 0
        while (page := line.page(after)).runs:
            after += len(page.runs)
            waiting = self._receiver.begin(reservation, page.runs)
            try:
                while waiting:
                    check()
                    done += self._parcel(line, giver, reservation, waiting, check)
            finally:
                for meta in waiting:
                    self._receiver.missed(reservation, meta, "not-fetched")
        return after, done

    def _parcel(
        self, line: Line, giver: Peer, reservation: Reservation, waiting: list[RunMeta], check: Callable[[], None]
    ) -> int:
        """One exchange; what it settled is not waited for any more. Answers blocks committed."""
        want, size = list[RunMeta](), 0
        for meta in waiting:
            if want and size + meta.size_bytes > PARCEL_BYTES:
                break
            want.append(meta)
            size += meta.size_bytes
        granted = self._credits.take(size, left=sum(m.size_bytes for m in waiting), check=check)
        began = time.perf_counter()
        try:
            parcel = line.fetch([m.version for m in want], max(granted, want[0].size_bytes))
        finally:
            self._credits.give(granted)
        by, blocks = {m.version: m for m in want}, 0
        came = sum(len(raw) for _, raw in parcel.runs)
        if came:
            self._meters.fetched(giver.node, came, (time.perf_counter() - began) * 1000.0)
            self.fetched_bytes += came
        for version, raw in parcel.runs:
            if (found := by.pop(version, None)) is not None:
                waiting.remove(found)
                blocks += found.blocks if self._receiver.land(reservation, found, raw) else 0
        for version, code in parcel.refused:
            if (found := by.pop(version, None)) is not None:
                waiting.remove(found)
                self._receiver.missed(reservation, found, code)
        if not parcel.runs and not parcel.refused:
            raise Cut("nothing came")
        return blocks


def _code(answer: httpx.Response) -> str:
    try:
        code = msgspec.json.decode(answer.content).get("code", "")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        return "denied"
    return code if isinstance(code, str) and 0 < len(code) <= 63 else "denied"
