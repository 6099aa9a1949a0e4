"""Decides which tree head may be signed after another: one with the same leaves in the same order, and maybe more.

Pure. What was signed once is never taken back: a log that is shorter or different gets no signature.
"""

from typing import NamedTuple

from audit.asked import HeadAsked, canonical
from kvcore.leaf import RESTORE, LeafError, body_hash, parse_leaf
from kvcore.proofs import EMPTY_ROOT, leaf_hash, verify_consistency, verify_inclusion


class Head(NamedTuple):
    """What was signed last."""

    size: int
    root: bytes


EMPTY = Head(0, EMPTY_ROOT)
RESTORED = 0x0F09
"""Number of `log.restored`: the event that a log begins with which goes on after another one."""


def begins(record: str, asked: HeadAsked) -> bool:
    """Whether the log that is to be signed for the first time begins with this record, and nothing stands before it."""
    first = asked.first
    if first is None or first.index != 0:
        return False
    data, raw = bytes.fromhex(first.leaf), first.body.encode()
    root, proof = bytes.fromhex(asked.new_root), [bytes.fromhex(one) for one in first.proof]
    if not verify_inclusion(leaf_hash(data), 0, asked.new_size, proof, root):
        return False
    try:
        leaf, body = parse_leaf(data), canonical(raw)
    except (LeafError, ValueError):
        return False
    told = body.get("data")
    named = (leaf.index, leaf.event_type, leaf.flags & RESTORE) == (0, RESTORED, RESTORE)
    return named and leaf.body_hash == body_hash(raw) and isinstance(told, dict) and told.get("record") == record


def next_head(last: Head, asked: HeadAsked) -> Head | str:
    """The head to sign (the last one again, where nothing grew), or the code of the refusal.

    log-shrunk: fewer leaves than were signed. log-fork: other leaves than were signed. stale-size: it may be right, but
    what was signed last is of another size than the caller believes, so that the proof starts at the wrong place.
    """
    root = bytes.fromhex(asked.new_root)
    if asked.new_size < last.size:
        return "log-shrunk"
    if asked.new_size == last.size:
        return last if root == last.root else "log-fork"
    if asked.old_size != last.size:
        return "stale-size"
    proof = [bytes.fromhex(one) for one in asked.proof]
    grew = verify_consistency(last.size, asked.new_size, proof, last.root, root)
    return Head(asked.new_size, root) if grew else "log-fork"
