"""Decides which codes ingest uses besides those of `kvcore.events.REFUSALS`, and which HTTP status each has.

Every code has a page under `docs/problems/`. Called by `hot` (whole requests), `admission` (items) and `pipeline`.
"""

from kvcore.events import REFUSALS

WHOLE = -1
"""Index of a refusal that speaks of the whole frame, not of one item."""

OWN = {
    "node-fenced": "the node is fenced: nothing it says is folded until it is readmitted",
    "too-many-sources": "the node speaks for more sources than a node may have",
    "wrong-shard": "the frame is for another shard's writer",
    "shard-unavailable": "this process is not the writer of the shard now, or its database is away",
    "too-many-namespaces": "the node speaks of more unregistered namespaces than a node may make",
    "queue-full": "more frames wait than the writer may hold in memory",
    "rate-limited": "more unknown tokens came from the address than are looked up",
    "load-late": "a worker's load report is older than the last one, or was measured more than ten seconds ago",
    "unfoldable": "the writer could not fold the item; it was set aside and the source is asked for its inventory",
    "step-unknown": "the item claims a move between nodes that no open step allows",
    "unknown-keys": "the item speaks of blocks the source was not believed to hold",
    "illegal-transition": "the block cannot go from its present state to the one the item names",
    "parent-mismatch": "the block was first reported behind another parent; residency is right, the chain is not",
    "misplaced-blocks": "the blocks are on a tier or node that their data class, region or isolation bars",
    "stale-generation": "the blocks are of a fenced generation: folded, never routable",
    "inventory-order": "the pages of an inventory did not come in order, or disagree about their position",
    "inventory-too-large": "the inventory has more keys than a source may list",
    "inventory-item": "an inventory carries something other than add and adds",
}
"""Codes of the event road itself. The last two groups are told of items that were folded in part or whole."""

TOLD = {
    "rank-mismatch": "the engine's batch is of another rank than the publisher it came from",
    "replay-timeout": "the engine's ring did not answer in time",
    "malformed-replay": "the engine's ring answered with something that is no batch",
    "lost-ring": "events of the engine are lost: its ring did not hold them any more",
    "lost-overflow": "events of the engine are lost: the listener could not hold what came meanwhile",
    "map-full": "the listener cannot remember more blocks of the engine",
    "given-up": "blocks waited too long for what they build on",
    "adapter-mismatch": "chains of one namespace were computed with different adapters",
    "removed-unknown": "the engine removed blocks that were never heard of",
}
"""What only agents can say: what went wrong between an engine and its listener. Counted; what it cost is told by `gap`
items."""

CODES: dict[str, str] = {**REFUSALS, **OWN, **TOLD}

HARMLESS = frozenset({"fenced-boot"})
"""Refusals that cast no doubt on the source: what an ended life says is void anyway."""

STATUS = {
    "foreign-token": 403,
    "frame-too-large": 413,
    "node-fenced": 409,
    "too-many-sources": 409,
    "wrong-shard": 421,
    "shard-unavailable": 503,
    "queue-full": 503,
    "rate-limited": 429,
    "missing-dp-rank": 422,
    "wrong-dp-rank": 422,
    "fenced-boot": 409,
}
"""HTTP status where it is not 400."""

TITLES = {400: "Bad request", 401: "Not authenticated", 403: "Not allowed", 404: "Not found", 405: "Method not allowed"}


class Unavailable(Exception):
    """Nothing of the request was folded or acknowledged; the same request may be sent again after `seconds`."""

    def __init__(self, code: str, seconds: float = 1.0) -> None:
        super().__init__(code)
        self.code, self.seconds = code, seconds
