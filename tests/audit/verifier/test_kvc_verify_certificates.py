"""Certificates: what is claimed has to follow from what the nodes signed; whatever does not is named."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.verifier import kvc_verify
from kvcore.erasure import certificate_class, copy_class
from kvcore.plan_steps import step_id
from kvcore.receipts import ProbedDetail
from tests.audit.verifier.certificates import (
    FLASH,
    LOG,
    OPERATION,
    TOLD,
    CopyReceipts,
    Node,
    certificate,
    copies,
    copy_row,
    erased,
    name,
    ordering,
    verified,
)
from tests.audit.verifier.checking import checked
from tests.kvcore.test_erasure import EVIDENCE

GOLDEN = Path(__file__).parents[2] / "golden"
Change = Callable[[dict[str, Any]], None]


def report(path: Path, data: bytes, keys: str | None = None) -> dict[str, Any]:
    return checked(path / "certificate.json", data, command="certificate", keys=LOG.keys() if keys is None else keys)


def code(path: Path, data: bytes) -> str:
    found = report(path, data)
    return found["problems"][0]["code"] if found["problems"] else found["verdict"]  # type: ignore[no-any-return]


def test_what_follows_from_its_receipts_is_valid(tmp_path: Path) -> None:
    found = report(tmp_path, certificate())
    assert (found["verdict"], found["problems"], found["reasons"]) == ("valid", [], [])
    assert found["certificate"] == {
        "operation": OPERATION, "class": "E2", "flags": ["EMULATED", "SELF_ATTESTED", "FORCED"], "copies": 4,
        "receipts": 11, "exceptions": 1, "seal": False,
    }  # fmt: skip
    assert found["event"]["event_type"] == 0x0501


def test_the_format_is_the_one_that_was_given_out(tmp_path: Path) -> None:
    kept, keys = (GOLDEN / "certificate.json").read_bytes(), (GOLDEN / "certificate.keys.txt").read_text()
    assert report(tmp_path, kept, keys)["verdict"] == "valid"
    assert kept == certificate()
    assert keys == LOG.keys()


def test_a_seal_is_given_where_nothing_is_excepted_and_only_in_production(tmp_path: Path) -> None:
    def plain(nodes: dict[int, Node]) -> Any:
        return copies(nodes)[:2]

    for production in (True, False):
        found = report(tmp_path, certificate(rows=plain, production=production))
        assert (found["verdict"], found["certificate"]["seal"]) == ("valid", production)
        assert found["certificate"]["class"] == "E3"


@pytest.mark.parametrize("field", ["targets_root", "targets"])
def test_an_order_of_other_targets_is_not_its_order(tmp_path: Path, field: str) -> None:
    def other(body: dict[str, Any]) -> None:
        body["data"][field] = "00" * 32 if field == "targets_root" else 2

    assert code(tmp_path, certificate(log=ordering(other))) == "order"


def test_a_look_at_something_else_proves_nothing(tmp_path: Path) -> None:
    """Whoever can have looks signed lets one look where nothing ever was."""

    def elsewhere(nodes: dict[int, Node]) -> Any:
        nodes[1].looked = "00" * 32
        return copies(nodes)

    assert code(tmp_path, certificate(rows=elsewhere)) == "receipt-of-another"


def test_without_keys_or_the_order_something_is_missing(tmp_path: Path) -> None:
    found = report(tmp_path, certificate(), keys="")
    assert (found["verdict"], {one["code"] for one in found["reasons"]}) == ("incomplete", {"keys-not-given"})
    found = report(tmp_path, certificate(order=False))
    assert (found["verdict"], [one["code"] for one in found["reasons"]]) == ("incomplete", ["order-not-given"])


def set_(*path: str | int, value: Any) -> Change:
    def change(found: dict[str, Any]) -> None:
        held: Any = found
        for part in path[:-1]:
            held = held[part]
        held[path[-1]] = value(held[path[-1]]) if callable(value) else value

    return change


def swapped(found: dict[str, Any]) -> None:
    first, third = (found["copies"][n]["receipts"] for n in (0, 2))
    first[0]["hash"], third[1]["hash"] = third[1]["hash"], first[0]["hash"]


def forgotten(found: dict[str, Any]) -> None:
    """The erase that left something is dropped, with everything that tells of it."""
    row = found["copies"][2]
    row["receipts"].pop(0)
    row["evidence"] |= {"found": 2, "sampled": 2, "clean": 2}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (set_("class", value=3), "class"),
        (set_("flags", value=["EMULATED", "FORCED"]), "class"),
        (set_("copies", 1, "class", value=5), "class"),
        (set_("copies", 2, "flags", value=[]), "class"),
        (set_("copies", 2, "absent", value=True), "class"),
        (set_("copies", 2, "evidence", "probed", value=True), "evidence"),
        (set_("copies", 2, "evidence", "forced", value=False), "evidence"),
        (set_("copies", 2, "evidence", "leased", value=1), "evidence"),
        (set_("copies", 0, "evidence", "encrypted", value=True), "evidence"),
        (set_("copies", 0, "evidence", "medium", value="flash"), "evidence"),
        (set_("copies", 3, "evidence", "believed", value=5), "class"),
        (set_("copies", 0, "owner", value=9), "receipt-of-another"),
        (set_("copies", 0, "node", value=name(2)), "receipt-of-another"),
        (set_("copies", 2, "receipts", 0, "attempt", value=4), "receipt-of-another"),
        (set_("copies", 0, "receipts", 0, "boot", value="b7"), "receipt-of-another"),
        (set_("copies", 0, "receipts", 0, "kind", value="verify"), "receipt-of-another"),
        (set_("copies", 0, "receipts", 0, "hash", value="00" * 32), "receipts"),
        (set_("generation", value=2), "receipt-of-another"),
        (set_("operation", value=name(7)), "receipt-of-another"),
        (set_("targets", 0, "gen_upto", value="7"), "receipt-of-another"),
        (set_("targets", 0, "namespace_ref", value="cd" * 32), "receipt-of-another"),
        (set_("targets", 0, "keys", value={"count": 1, "sha256": "00" * 32}), "receipt-of-another"),
        (
            set_("targets", value=lambda some: [*some, {"namespace_ref": "cd" * 32, "gen_upto": "1"}]),
            "receipt-of-another",
        ),
        (swapped, "receipts"),
        (forgotten, "receipts"),
        (set_("receipts", 0, "signature", value="00" * 64), "signature"),
        (set_("receipts", 0, "body", "detail", "objects", value=900), "signature"),
        (set_("receipts", 0, "body", "at", value=7.0), "signature"),
        (set_("receipts", 0, "key", value="00" * 16), "signature"),
        (set_("node_keys", name(1), value="00" * 32), "signature"),
        (set_("receipts", value=lambda all_: all_[:-1]), "root"),
        (set_("receipts_root", value="00" * 32), "root"),
        (set_("exceptions", value=[]), "exceptions"),
        (set_("seal", value=True), "exceptions"),
        (set_("times", "erase", value="2026-11-30T10:00:00Z"), "times"),
        (set_("plan_hash", value="00" * 32), "order"),
        (set_("order", "index", value=3), "order"),
        (set_("order", "body_hash", value="00" * 32), "order"),
        (set_("order", "event_id", value=name(3)), "order"),
        (set_("copies", value=7), "form"),
        (set_("node_keys", value={}), "form"),
        (set_("copies", 0, "evidence", value={}), "form"),
    ],
)
def test_what_does_not_follow_is_named_even_where_it_was_signed(change: Change, wanted: str, tmp_path: Path) -> None:
    assert code(tmp_path, certificate(change=change)) == wanted


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (set_("note", value=lambda note: note.replace("kvconsole/bundle/v1", "kvconsole/bundle/v2")), "note"),
        (set_("body", "kind", value="epoch"), "sha256"),
        (set_("body", "more", value=1), "sha256"),
        (set_("more", value=1), "canonical"),
        (set_("order", "body", value=lambda body: body.replace("R2", "R1")), "order"),
        (set_("order", "proof", value=lambda text: text.replace("index 11", "index 12")), "index"),
        (set_("note", value=7), "form"),
    ],
)
def test_a_file_that_was_changed_is_found_out(change: Change, wanted: str, tmp_path: Path) -> None:
    assert code(tmp_path, certificate(whole=change)) == wanted


@pytest.mark.parametrize(
    "change",
    [
        set_("data", "operation", value=name(9)),
        set_("data", "plan_hash", value="00" * 32),
        set_("data", "nodes", value=[name(1)]),
    ],
)
def test_the_order_in_the_log_has_to_be_the_order_of_this(change: Change, tmp_path: Path) -> None:
    log = ordering(change)
    assert code(tmp_path, certificate(log=log)) == "order"


def test_another_event_of_the_log_is_no_order(tmp_path: Path) -> None:
    assert code(tmp_path, certificate(log=ordering(kind=0x0502))) == "order"


@pytest.mark.parametrize("kind", ["erase", "verify"])
def test_of_what_no_receipt_answers_there_is_no_time(kind: str, tmp_path: Path) -> None:
    nobody: Callable[[dict[int, Node]], Any] = lambda nodes: []  # noqa: E731
    assert report(tmp_path, certificate(rows=nobody))["verdict"] == "valid"
    later = set_("times", kind, value="2026-11-30T11:00:00Z")
    assert code(tmp_path, certificate(rows=nobody, change=later)) == "times"


def rows(make: Callable[[dict[int, Node]], CopyReceipts]) -> Callable[[dict[int, Node]], Any]:
    def made(nodes: dict[int, Node]) -> Any:
        return [
            copy_row(node=name(1), source="engine", dp_rank=0, tier="dram", owner=1, receipts=make(nodes), told=TOLD)
        ]

    return made


def test_receipts_of_another_step_another_node_or_yesterday_carry_nothing(tmp_path: Path) -> None:
    def another(nodes: dict[int, Node]) -> CopyReceipts:
        return CopyReceipts(erased=nodes[2].says("erase", 1, erased()), verified=nodes[1].says("verify", 1, verified()))

    def yesterday(nodes: dict[int, Node]) -> CopyReceipts:
        old = str(step_id(name(3), 1, "erase", 1, "b1"))
        return CopyReceipts(
            erased=nodes[1].says("erase", 1, erased(), step=old), verified=nodes[1].says("verify", 1, verified())
        )

    def failed(nodes: dict[int, Node]) -> CopyReceipts:
        return CopyReceipts(
            erased=nodes[1].says("erase", 1, erased(), outcome="failed"),
            verified=nodes[1].says("verify", 1, verified()),
        )

    for make in (another, yesterday, failed):
        assert code(tmp_path, certificate(rows=rows(make))) == "receipt-of-another"


def test_a_node_does_not_probe_itself(tmp_path: Path) -> None:
    detail = ProbedDetail(
        node=name(1), source="engine", tier="dram", method="probe", asked=3, found=0, evidence="", at_us=4
    )  # fmt: skip

    def own(nodes: dict[int, Node]) -> CopyReceipts:
        return CopyReceipts(
            erased=nodes[1].says("erase", 1, erased()),
            verified=nodes[1].says("verify", 1, verified()),
            probes=(nodes[1].says("probe", 1, detail),),
        )

    assert code(tmp_path, certificate(rows=rows(own))) == "receipt-of-another"


def test_two_receipts_after_the_same_one_are_a_fork(tmp_path: Path) -> None:
    def forked(nodes: dict[int, Node]) -> CopyReceipts:
        erase = nodes[1].says("erase", 1, erased())
        nodes[1].prev = "0" * 64
        return CopyReceipts(erased=erase, verified=nodes[1].says("verify", 1, verified()))

    assert code(tmp_path, certificate(rows=rows(forked))) == "receipt-forked"


def test_a_node_that_is_off_is_said_and_its_disk_is_unreadable_by_its_key(tmp_path: Path) -> None:
    def off(nodes: dict[int, Node]) -> Any:
        return [
            copy_row(node=name(1), source="engine", dp_rank=0, tier="ssd", owner=1, receipts=CopyReceipts(), told=TOLD)
        ]

    found = report(tmp_path, certificate(rows=off))
    assert (found["verdict"], found["certificate"]["class"]) == ("valid", "E4")
    assert found["certificate"]["flags"] == ["NODE_UNREACHABLE"]
    assert FLASH.encrypted


@pytest.mark.parametrize(
    ("data", "wanted"),
    [(b"", "not-a-certificate"), (b"{}", "not-a-certificate"), (b"\xff", "utf-8"), (b"PK\3\4", "not-a-certificate")],
)
def test_what_is_none(data: bytes, wanted: str, tmp_path: Path) -> None:
    assert code(tmp_path, data) == wanted


def test_a_later_version_wants_a_later_verifier(tmp_path: Path) -> None:
    found = report(tmp_path, certificate(whole=set_("v", value=2)))
    assert (found["verdict"], found["problems"][0]["code"]) == ("malformed", "version")


def test_no_flipped_bit_is_accepted(tmp_path: Path) -> None:
    data, chance = certificate(), random.Random(11)
    for place in chance.sample(range(len(data)), 60):
        flipped = bytearray(data)
        flipped[place] ^= 1 << chance.randrange(8)
        assert report(tmp_path, bytes(flipped))["verdict"] in ("invalid", "malformed"), place


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(1e-4, 1e15)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_the_canonical_form_is_the_same_on_both_sides(value: Any) -> None:
    assert kvc_verify.canonical(json.loads(json.dumps(value))).encode() == rfc8785.dumps(value)


@given(st.integers(0, 2**40), st.sampled_from(["erase", "probe"]), st.text(max_size=5), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_ids_of_steps_are_the_same_on_both_sides(owner: int, kind: str, boot: str, attempt: int) -> None:
    said = {"kind": kind, "boot": boot, "attempt": attempt}
    wanted = str(step_id(OPERATION, 3, kind, owner, boot, attempt))
    assert kvc_verify.step_id({"operation": OPERATION, "generation": 3}, owner, said) == wanted


@given(EVIDENCE)
@settings(max_examples=150, deadline=None)
def test_classes_are_the_same_on_both_sides(evidence: Any) -> None:

    ours, theirs = copy_class(evidence), kvc_verify.graded(msgspec.to_builtins(evidence))
    assert (int(ours.cls), list(ours.flags), ours.absent) == tuple(theirs)
    assert certificate_class([ours]).cls == theirs.cls
