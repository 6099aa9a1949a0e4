"""What a certificate's evidence is, and which receipts cannot all be true."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvcore.certificates import (
    CopyReceipts,
    body_bytes,
    certificate_file,
    complete,
    contradictions,
    copy_row,
    detail_of,
    evidence_of,
    exceptions_of,
    grade,
    receipts_root,
)
from kvcore.erasure import CopyEvidence, Erasure
from kvcore.messages import Receipt, canonical
from kvcore.receipts import CertificateBody, ErasedDetail, Medium, ProbedDetail, Readback, VerifiedDetail
from tests.audit.verifier.certificates import FLASH, ROOT, TOLD, Node, Step, copies, erased, verified

MEMORY = Medium(type="memory")


def step(kind: str, detail: msgspec.Struct, outcome: str = "done", attempt: int = 0, node: int = 1) -> Step:
    return Node(node).says(kind, 1, detail, outcome=outcome, attempt=attempt)


def receipts(erase: ErasedDetail | None = None, verify: VerifiedDetail | None = None, **more: object) -> CopyReceipts:
    made = CopyReceipts(
        erased=step("erase", erase or erased()), verified=step("verify", verify or verified(erase and erase.medium))
    )
    return replace(made, **more)


def probe(method: str = "probe", found: int = 0, asked: int = 3) -> Step:
    detail = ProbedDetail(
        node="n", source="engine", tier="dram", method=method, asked=asked, found=found, evidence="", at_us=1
    )
    return step("probe", detail, node=2)


def test_the_node_says_what_only_it_knows_and_the_console_the_rest() -> None:
    seen = evidence_of(receipts(), TOLD)
    assert (seen.technique, seen.found, seen.sampled, seen.clean, seen.claimed) == ("memset", 3, 3, 3, 3)
    assert (seen.confirmed, seen.verified, seen.reachable, seen.medium) == (True, True, True, "memory")
    assert (seen.fenced, seen.believed, seen.key_destroyed) == (True, 3, True)


def test_what_the_console_is_told_of_a_node_without_receipts_is_not_taken() -> None:
    lie = replace(TOLD, confirmed=True, verified=True, technique="memset", claimed=5, probed=True, scanned=True)
    seen = evidence_of(CopyReceipts(), lie)
    assert seen == replace(TOLD, reachable=False)


def test_neither_side_alone_makes_a_tier_look_better() -> None:
    assert not evidence_of(receipts(erased(medium=MEMORY)), TOLD).encrypted
    assert not evidence_of(receipts(erased(medium=FLASH), verified(FLASH)), replace(TOLD, encrypted=False)).encrypted
    assert evidence_of(receipts(erased(medium=FLASH), verified(FLASH)), TOLD).encrypted
    odd = Medium(type="memory", emulated=True)
    assert evidence_of(receipts(erased(medium=odd), verified(odd)), TOLD).emulated


def test_several_erases_count_together_and_the_weakest_says_how() -> None:
    first = step("erase", erased("unlink", objects=5, claimed=2, left=2), outcome="partial")
    seen = evidence_of(receipts(erased(objects=2), earlier=(first,)), TOLD)
    assert (seen.found, seen.technique, seen.readback, seen.claimed, seen.sampled) == (7, "unlink", "list", 2, 7)
    assert seen.confirmed
    seen = evidence_of(receipts(erased(objects=0), earlier=(first,)), TOLD)
    assert (seen.found, seen.technique, seen.leased) == (5, "unlink", 0)


def test_a_part_is_no_end() -> None:
    left = receipts(erased=step("erase", erased(left=2, residual=("ENGINE_CANNOT",)), outcome="partial"))
    seen = evidence_of(left, TOLD)
    assert (seen.confirmed, seen.leased, seen.engine_cannot) == (False, 2, True)
    assert grade([row(left)]).cls is Erasure.UNREACHABLE


def test_the_medium_of_an_objects_key() -> None:
    gone = erased("key_destroy", medium=FLASH)
    assert evidence_of(receipts(gone, verified(FLASH)), TOLD).key_medium == "unknown"
    odd = erased("key_destroy", medium=FLASH, residual=("KEY_MEDIUM_UNSANITISED",))
    assert evidence_of(receipts(odd, verified(FLASH)), TOLD).key_medium == "flash"
    assert evidence_of(receipts(), TOLD).key_medium == ""


def test_who_else_looked() -> None:
    assert evidence_of(receipts(probes=(probe(),)), TOLD).probed
    assert evidence_of(receipts(probes=(probe("scan"),)), TOLD).scanned
    assert not evidence_of(receipts(probes=(probe(asked=0),)), TOLD).probed
    assert not evidence_of(receipts(probes=(probe(), probe("scan", found=1))), TOLD).probed


def row(receipts_: CopyReceipts, told: CopyEvidence = TOLD, node: str = "n1"):  # type: ignore[no-untyped-def]
    return copy_row(node=node, source="engine", dp_rank=0, tier="dram", owner=1, receipts=receipts_, told=told)


def test_what_agrees_is_no_contradiction() -> None:
    heard = ("b", "s", 5)
    for one in (
        CopyReceipts(),
        receipts(),
        receipts(erased(objects=0)),
        receipts(probes=(probe(),)),
        receipts(erased=step("erase", erased(left=1), outcome="partial")),
    ):
        assert contradictions(one, counted=0) == ()
    assert contradictions(receipts(), believed=3, heard=heard) == ()
    assert contradictions(receipts(), believed=5, heard=heard, dropped=2) == ()
    assert contradictions(receipts(), believed=9) == (), "the directory was not exact"
    assert contradictions(receipts(), believed=9, heard=("b0", "s", 5)) == (), "the memory of that life is gone"


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (receipts(erased(left=1)), "done-with-remaining"),
        (receipts(erased=step("erase", erased(), outcome="partial")), "partial-without-remaining"),
        (receipts(replace(erased(), blocks=0)), "nothing-and-something"),
        (receipts(replace(erased(objects=0), bytes=5)), "nothing-and-something"),
        (receipts(replace(erased(), technique="none")), "found-but-not-done"),
        (receipts(replace(erased(), readback=Readback(method="readback", sampled=3, clean=2))), "readback-not-clean"),
        (receipts(replace(erased(), finished_us=0)), "ends-before-it-begins"),
        (receipts(replace(erased(), bytes=-1)), "numbers"),
        (
            receipts(erased(), replace(verified(), stream_pos=replace(verified().stream_pos, seq=3))),
            "verified-before-erased",
        ),
        (receipts(erased(medium=MEMORY), verified(FLASH)), "another-medium"),
        (receipts(erased(), replace(verified(), found_blocks=2)), "blocks-without-bytes"),
        (receipts(erased(), replace(verified(found=2), counters={"blocks": 1})), "counters"),
        (receipts(erased(), replace(verified(), readback=Readback(method="list", sampled=1))), "verify-not-clean"),
        (receipts(probes=(probe(found=1),)), "found-by-probe"),
        (receipts(probes=(probe("scan", found=1),)), "found-by-scan"),
        (receipts(erased=step("erase", verified())), "erase-unreadable"),
        (receipts(verified=step("verify", erased())), "verify-unreadable"),
    ],
)
def test_what_cannot_all_be_true_is_named(made: CopyReceipts, wanted: str) -> None:
    assert wanted in contradictions(made)


def test_a_node_that_finds_less_than_it_announced_is_caught() -> None:
    assert contradictions(receipts(), believed=4, heard=("b", "s", 7)) == ("fewer-than-announced",)
    assert contradictions(receipts(), believed=4, heard=("b", "s", 8)) == (), "it is behind what was heard"


def test_counters_that_differ_from_the_directory_are_caught() -> None:
    assert contradictions(receipts(), counted=2) == ("counters-differ",)


def test_engines_that_cannot_are_no_liars() -> None:
    assert contradictions(receipts(replace(erased(residual=("ENGINE_CANNOT",)), technique="none"))) == ()


def test_details_that_cannot_be_read_say_nothing() -> None:
    receipt = step("erase", erased())[0]
    assert detail_of(receipt, ErasedDetail) == msgspec.structs.replace(erased(), targets_root=ROOT)
    assert detail_of(receipt, VerifiedDetail) is None
    assert detail_of(replace(receipt, outcome="failed"), ErasedDetail) is None
    assert detail_of(None, ErasedDetail) is None


def body(rows: list, production: bool, nodes: dict[int, Node]) -> CertificateBody:  # type: ignore[type-arg]
    blank = CertificateBody(
        v=1, format="kv-console-certificate", origin="o", operation="op", kind="deletion", generation=1, selector={},
        tenant_ref="", targets=[], plan_hash="", order={}, times={}, copies=rows, cls=5, flags=[], exceptions=[],
        requester_ref="", approver_refs=[], receipts_root="", receipts=[], node_keys={}, seal=True, issued_at="",
    )  # fmt: skip
    return complete(blank, receipts=[s for n in nodes.values() for s in n.signed], production=production)


def test_all_that_follows_from_the_copies_is_filled_in() -> None:
    nodes = {1: Node(1), 2: Node(2)}
    made = body(list(reversed(copies(nodes))), True, nodes)
    assert [copy.owner for copy in made.copies] == [1, 2, 3, 4]
    assert (made.cls, made.flags, made.seal) == (2, ["EMULATED", "SELF_ATTESTED", "FORCED"], False)
    assert made.exceptions == [{"code": "FORCED", "node": nodes[2].name}] == exceptions_of(made.copies)
    links = [one.hash for copy in made.copies for one in copy.receipts]
    assert (made.receipts_root, len(made.receipts)) == (receipts_root(links), len(links))
    assert '"class":2' in body_bytes(made).decode()
    assert certificate_file(body_bytes(made), "note").endswith(b"\n")


def test_the_seal() -> None:
    nodes = {1: Node(1), 2: Node(2)}
    rows = copies(nodes)[:2]
    assert body(rows, True, nodes).seal
    assert not body(rows, False, nodes).seal
    assert not body([], True, nodes).seal


@given(st.permutations(range(4)), st.sets(st.integers(0, 3), min_size=1))
@settings(max_examples=30, deadline=None)
def test_the_body_does_not_depend_on_the_order_of_its_copies(order: list[int], chosen: set[int]) -> None:
    nodes = {1: Node(1), 2: Node(2)}
    rows = copies(nodes)
    mixed, plain = [rows[n] for n in order if n in chosen], [rows[n] for n in sorted(chosen)]
    assert body_bytes(body(mixed, True, nodes)) == body_bytes(body(plain, True, nodes))
    assert grade(mixed).cls == min(Erasure(rows[n].cls) for n in chosen if n != 3 or chosen == {3})


def test_a_body_comes_back_from_its_bytes() -> None:
    nodes = {1: Node(1), 2: Node(2)}
    made = body(copies(nodes), True, nodes)
    assert msgspec.json.decode(body_bytes(made), type=CertificateBody) == made
    assert canonical(made) == body_bytes(made)


def test_receipts_are_read_from_their_envelopes() -> None:
    node = Node(1)
    receipt, _, _ = node.says("erase", 1, erased())
    assert msgspec.convert(node.signed[0].body, Receipt) == receipt
