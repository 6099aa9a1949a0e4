"""Decides what of a receipt is kept beside it, so that progress and classes are shown without reading receipts.

It is all that classes depend on, and nothing that only proves: no hashes, no times. A certificate is never made of it.
Called where receipts are kept and where operations are shown.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcore.messages import Receipt
from kvcore.receipts import ErasedDetail, ProbedDetail, ShreddedDetail, VerifiedDetail

FORMS: dict[str, type[msgspec.Struct]] = {
    "erase": ErasedDetail, "verify": VerifiedDetail, "probe": ProbedDetail, "shred": ShreddedDetail,
}  # fmt: skip
UNREADABLE = "unreadable"
"""Stands with what is kept of a detail that is none of its kind: it says nothing of a class."""
_NOWHERE: dict[str, Any] = {"boot": "", "stream": "", "seq": -1}
LEFT_OUT: dict[str, dict[str, Any]] = {
    "erase": {"objects_root": "", "stream_pos": _NOWHERE, "started_us": 0, "finished_us": 0, "targets_root": ""},
    "verify": {"stream_pos": _NOWHERE, "listed_at_us": 0, "counters": {}, "targets_root": ""},
    "probe": {"evidence": "", "at_us": 0},
    "shred": {"targets_root": ""},
}
"""Kind → what is not kept, with what stands in its place where the rest is read as a receipt again."""


def told_of(receipt: Receipt) -> dict[str, Any]:
    """What is kept of a receipt's detail."""
    left = LEFT_OUT.get(receipt.kind, {})
    kept = {name: value for name, value in receipt.detail.items() if name not in left}
    if isinstance(kept.get("readback"), dict):
        kept["readback"] = {name: value for name, value in kept["readback"].items() if name != "evidence"}
    return kept if _readable(receipt) else {**kept, UNREADABLE: True}


def _readable(receipt: Receipt) -> bool:
    try:
        msgspec.convert(receipt.detail, FORMS.get(receipt.kind, Any))
    except msgspec.ValidationError:
        return False
    return True


def receipt_told(*, kind: str, outcome: str, told: Mapping[str, Any]) -> Receipt:
    """A receipt that says of a class what the whole one says. It is nobody's word: it proves nothing."""
    detail = {} if UNREADABLE in told else {**LEFT_OUT.get(kind, {}), **told}
    return Receipt(v=1, step="", kind=kind, node="", outcome=outcome, at=0.0, prev="", detail=detail)
