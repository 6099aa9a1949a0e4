"""Decides of which events webhooks are told, under which names, and with what of them. No personal data is sent."""

import json
from typing import Any

from audit.contents import content_of
from audit.registry import TYPES

CHECKPOINT, TEST = "checkpoint.signed", "webhook.test"
KINDS = {
    CHECKPOINT: "the log grew and its head was signed; at most one a minute, the newest",
    "log.gap": "a number of a producer is missing, or something differs from what was sealed; or that was explained",
    "receipt.concluded": "a node has answered an order, with the hash of its receipt",
    "certificate.issued": "a certificate of a deletion was issued",
    "quota.refused": "blocks were refused or found where a quota, class or region bars them; quotas were changed",
    "source.degraded": "what a node's engine holds is no longer known exactly, or is again",
}
"""Name of a kind → what its messages say."""
_ACTIONS = {
    "log.gap_found": "log.gap",
    "log.divergence_found": "log.gap",
    "log.refused_by_signer": "log.gap",
    "log.finding_settled": "log.gap",
    "command.concluded": "receipt.concluded",
    "receipt.accepted": "receipt.concluded",
    "certificate.issued": "certificate.issued",
    "placement.refused": "quota.refused",
    "placement.violated": "quota.refused",
    "quota.changed": "quota.refused",
    "source.state_changed": "source.degraded",
    "source.reset": "source.degraded",
}
NUMBERS = {TYPES[action].number: kind for action, kind in _ACTIONS.items() if action in TYPES}
"""Number of an event's type → kind of the message about it."""
MOST_DATA = 16 * 1024
"""Characters of an event's data that a message carries; who wants more reads the event."""


def event_message(kind: str, *, action: str, index: int, event_id: str, time: str, body: bytes) -> str:
    """The message about an event; of a body that is none of ours it says nothing."""
    said = content_of(body)
    data = said.data
    if len(json.dumps(data)) > MOST_DATA:
        data = {"truncated": True}
    fields = {
        "event": event_id,
        "index": index,
        "action": action,
        "outcome": said.outcome,
        "object": {"id": said.object.id, "kind": said.object.kind} if body else {},
        "details": data,
    }
    return message(kind, time, fields)


def checkpoint_message(*, size: int, root: bytes, note: str, time: str) -> str:
    """The message about a signed head of the log; `note` can be checked by itself."""
    return message(CHECKPOINT, time, {"size": size, "root": root.hex(), "note": note})


def message(kind: str, time: str, data: dict[str, Any]) -> str:
    """A message as Standard Webhooks has it."""
    return json.dumps({"type": kind, "timestamp": time, "data": data}, ensure_ascii=False, separators=(",", ":"))
