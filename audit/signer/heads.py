"""Decides which tree head may be signed after another: one with the same leaves in the same order, and maybe more.

Pure. What was signed once is never taken back: a log that is shorter or different gets no signature.
"""

from typing import NamedTuple

from audit.asked import HeadAsked
from kvcore.proofs import EMPTY_ROOT, verify_consistency


class Head(NamedTuple):
    """What was signed last."""

    size: int
    root: bytes


EMPTY = Head(0, EMPTY_ROOT)


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
