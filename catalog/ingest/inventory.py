"""Decides how an inventory is collected and what a digest report says; both verify what the catalog believes.

Pages are kept per source, in order, until the last has come; only then does the writer replace what it believes, in
one commit. Memory is bounded over all sources. Called by `hot` (reading) and `pipeline` (folding).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from catalog.ingest.codes import Unavailable
from catalog.ingest.distinct import suspects
from catalog.ingest.sources import RANKS_MOST, SOURCES_MOST
from kvcore.events import GAPS, ITEMS_MAX, NAME_MAX, VERSION, Add, Adds, Refused, decode_items
from kvcore.keys import KEY_BYTES
from kvcore.messages import DigestReport, Heartbeat, InventoryPage

KEYS_MOST = 4_000_000
"""Keys of one inventory (128 MB)."""
BYTES_MOST = 384 * 2**20
"""Bytes of all inventories that are being collected: their keys, and what an item costs beside them."""
ITEM_BYTES = 512
IDLE_S = 30.0
"""A collection whose next page has not come by then is dropped; the agent begins again."""
LINES_MOST = 100_000
REFUSED_MOST = 10_000
"""Refused items of one inventory that are told apart."""

_page = msgspec.msgpack.Decoder(InventoryPage)
_digest = msgspec.msgpack.Decoder(DigestReport)
_heartbeat = msgspec.msgpack.Decoder(Heartbeat)
_shape = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_I63 = 2**63 - 1
Line = tuple[bytes, int, int, str]
"""(namespace digest, generation, group, tier)"""


def decode_inventory(body: bytes) -> InventoryPage | DigestReport:
    """The page, or the digest report if the map has `lines`.

    Raises:
        Refused: with a frame code; nothing of the body counts.
    """
    shape = _decode(_shape, body)
    message: InventoryPage | DigestReport = _decode(_digest if "lines" in shape else _page, body)
    _check(message.v, message.node, message.source, message.boot, message.stream)
    if not -1 <= message.seq <= _I63 or not _natural(*_numbers(message)):
        raise Refused("malformed-frame", "a number is out of range")
    if message.gap and message.gap not in GAPS:
        raise Refused("malformed-frame", "gap")
    if isinstance(message, InventoryPage):
        if len(message.items) > ITEMS_MAX:
            raise Refused("frame-too-large", f"{len(message.items)} items")
        if not _natural(message.page) or not _named(message.inventory):
            raise Refused("malformed-frame", "page or inventory")
        return message
    if len(message.lines) > LINES_MOST:
        raise Refused("frame-too-large", f"{len(message.lines)} lines")
    for line in message.lines:
        sums = 0 <= line.lo < 2**64 and 0 <= line.hi < 2**64
        where = len(line.ns) == KEY_BYTES and _named(line.tier) and _natural(line.gen, line.group)
        if not where or not sums or not _natural(line.blocks):
            raise Refused("malformed-frame", "a line is not a digest")
    return message


def decode_heartbeat(body: bytes) -> Heartbeat:
    """The heartbeat.

    Raises:
        Refused: with a frame code.
    """
    beat: Heartbeat = _decode(_heartbeat, body)
    if len(beat.sources) > 1024 or len(beat.refused) > 1024:
        raise Refused("frame-too-large", "more than 1,024 entries")
    for at in beat.sources:
        if not (_named(at.source) and _named(at.boot) and _named(at.stream)):
            raise Refused("malformed-frame", "a position is not named")
        if not (_natural(at.dp_rank) and -1 <= at.seq <= _I63):
            raise Refused("malformed-frame", "a position is out of range")
    if not _natural(beat.fence_seq, beat.allowances):
        raise Refused("malformed-frame", "a number is out of range")
    if len(beat.ranks) > SOURCES_MOST:
        raise Refused("frame-too-large", f"more than {SOURCES_MOST} sources")
    for source, count in beat.ranks.items():
        if not _named(source):
            raise Refused("malformed-frame", "a source is not named")
        if not 1 <= count <= RANKS_MOST:
            raise Refused("wrong-dp-rank", f"{source[:100]}: {count} ranks")
    return beat


def decode_listed(page: InventoryPage) -> list[Add | Adds | Refused]:
    """The page's items; in place of one that cannot be listed, why."""
    return [
        item if isinstance(item, Add | Adds | Refused) else Refused("inventory-item", type(item).__name__.lower())
        for item in decode_items(page.items, twice=suspects)
    ]


@dataclass(slots=True)
class Collection:
    """The pages of one inventory so far; `refused` are items that could not be listed."""

    inventory: str
    position: tuple[str, str, int]
    at: float
    pages: int = 0
    keys: int = 0
    size: int = 0
    refused: list[Refused] = field(default_factory=list)
    items: list[Add | Adds] = field(default_factory=list)


class Inventories:
    """What is being collected, by source id. A source lists one inventory at a time; a new one drops the old."""

    def __init__(self) -> None:
        self.open: dict[int, Collection] = {}
        self.done: dict[int, str] = {}

    def add(
        self, source: int, page: InventoryPage, items: list[Add | Adds], refused: list[Refused], now: float
    ) -> Collection | None:
        """The collection with this page in it; None if the page is a resent one.

        Raises:
            Refused: inventory-order or inventory-too-large; the collection is dropped and the agent begins again.
            Unavailable: too much is being collected at once; the collection stays as it was.
        """
        self.expire(now)
        position = (page.boot, page.stream, page.seq)
        got = self.open.get(source)
        if got is None or got.inventory != page.inventory:
            if page.page:
                raise Refused("inventory-order", f"page {page.page} of an inventory that was not begun")
            got = Collection(page.inventory, position, now)
        if page.page < got.pages:
            return None
        if page.page > got.pages or position != got.position:
            self.open.pop(source, None)
            raise Refused("inventory-order", f"page {page.page} where {got.pages} was due")
        keys = sum(len(i.keys) for i in items) // KEY_BYTES
        size = got.size + keys * KEY_BYTES + len(items) * ITEM_BYTES
        if got.keys + keys > KEYS_MOST or size > BYTES_MOST:
            self.open.pop(source, None)
            raise Refused("inventory-too-large", f"more than {KEYS_MOST} keys, or too many items")
        if size + sum(c.size for s, c in self.open.items() if s != source) > BYTES_MOST:
            raise Unavailable("queue-full", 5.0)
        got.items += items
        got.refused += refused[: REFUSED_MOST - len(got.refused)]
        got.keys, got.size, got.pages, got.at = got.keys + keys, size, got.pages + 1, now
        self.open[source] = got
        return got

    def finish(self, source: int) -> None:
        """The inventory is applied or void; its memory is free."""
        got = self.open.pop(source, None)
        if got is not None:
            self.done[source] = got.inventory

    def expire(self, now: float) -> None:
        """Collections that nobody goes on with are gone."""
        for source in [s for s, c in self.open.items() if now - c.at > IDLE_S]:
            del self.open[source]


def digests_equal(said: DigestReport, believed: Mapping[Line, tuple[int, int, int]]) -> bool:
    """Whether the source holds what the catalog believes; lines of nothing count as absent on both sides."""
    listed = {
        (bytes(x.ns), x.gen, x.group, x.tier): (x.blocks, x.lo, x.hi) for x in said.lines if x.blocks or x.lo or x.hi
    }
    return listed == {at: sums for at, sums in believed.items() if any(sums)}


def _decode(decoder: msgspec.msgpack.Decoder, body: bytes):  # type: ignore[type-arg, no-untyped-def]
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as e:
        raise Refused("malformed-frame", str(e)[:200]) from None
    except msgspec.DecodeError as e:
        raise Refused("truncated-frame" if "truncated" in str(e) else "malformed-frame", str(e)[:200]) from None
    except (RecursionError, UnicodeDecodeError, OverflowError, TypeError) as e:  # TypeError: a map's key is a map
        raise Refused("malformed-frame", type(e).__name__) from None


def _numbers(m: InventoryPage | DigestReport) -> tuple[float, ...]:
    return m.dp_rank or 0, m.shard, m.fence_seq, m.allowances, m.ts


def _check(version: int, *names: str) -> None:
    if version != VERSION:
        raise Refused("version-unsupported", str(version))
    if not all(_named(n) for n in names):
        raise Refused("malformed-frame", "a name is empty, too long or not printable")


def _named(text: str) -> bool:
    return 0 < len(text) <= NAME_MAX and text.isprintable()


def _natural(*numbers: float) -> bool:
    return all(0 <= n <= _I63 for n in numbers)  # False for NaN
