"""What is kept beside a receipt says of a class what the receipt says, and proves nothing."""

import msgspec
import pytest
from msgspec.structs import replace

from kvcore.certificates import CopyReceipts, evidence_of
from kvcore.erasure import copy_class
from kvcore.messages import Receipt
from kvcore.told import LEFT_OUT, receipt_told, told_of
from tests.audit.verifier.certificates import FLASH, TOLD, Step, erased, verified
from tests.kvcore.test_certificates import probe, receipts, step

MADE = [
    CopyReceipts(),
    receipts(),
    receipts(erased(objects=0)),
    receipts(erased=step("erase", erased(left=2, residual=("FORCED",)), outcome="partial")),
    receipts(erased("key_destroy", medium=FLASH), verified(FLASH)),
    receipts(erased(), verified(found=2)),
    receipts(earlier=(step("erase", erased("unlink", objects=5, claimed=2, left=2), outcome="partial"),)),
    receipts(probes=(probe(), probe("scan", found=1))),
    receipts(probes=(probe("scan"),)),
    receipts(erased=step("erase", verified())),
    receipts(verified=step("verify", erased())),
    receipts(erased=step("erase", erased(), outcome="failed")),
]


def kept(one: Step) -> Step:
    receipt, boot, attempt = one
    stored = msgspec.json.decode(msgspec.json.encode(told_of(receipt)))
    return receipt_told(kind=receipt.kind, outcome=receipt.outcome, told=stored), boot, attempt


def again(made: CopyReceipts) -> CopyReceipts:
    return CopyReceipts(
        earlier=tuple(map(kept, made.earlier)), erased=made.erased and kept(made.erased),
        verified=made.verified and kept(made.verified), shredded=made.shredded and kept(made.shredded),
        probes=tuple(map(kept, made.probes)),
    )  # fmt: skip


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("told", [TOLD, replace(TOLD, key_destroyed=False, unroutable=False)])
def test_the_class_is_the_same(made: CopyReceipts, told: object) -> None:
    assert evidence_of(again(made), told) == evidence_of(made, told)
    assert copy_class(evidence_of(again(made), told)) == copy_class(evidence_of(made, told))


def test_it_has_no_hash_and_a_detail_that_lacks_what_is_left_out_stays_unreadable() -> None:
    whole = step("erase", erased())[0]
    stored = told_of(whole)
    assert not set(stored) & set(LEFT_OUT["erase"])
    assert "evidence" not in stored["readback"]
    odd = replace(whole, detail={k: v for k, v in whole.detail.items() if k != "objects_root"})
    assert receipt_told(kind="erase", outcome="done", told=told_of(odd)).detail == {}


def test_of_a_move_all_is_kept() -> None:
    moved = Receipt(v=1, step="s", kind="take", node="n", outcome="done", at=1.0, prev="", detail={"runs": 3})
    assert told_of(moved) == {"runs": 3}
