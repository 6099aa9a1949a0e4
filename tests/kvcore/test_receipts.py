"""What receipts of erasing look like on the wire: the names are a contract between agents, console and verifier."""

import json

import msgspec
import pytest

from kvcore import messages, receipts
from kvcore.messages import canonical
from kvcore.receipts import CertificateCopy, EraseArgs, ErasedDetail, EraseTarget, ShreddedDetail, VerifiedDetail
from tests.audit.verifier.certificates import Node, copies, erased, verified


def wire(value: msgspec.Struct) -> dict[str, object]:
    found: dict[str, object] = json.loads(canonical(value))
    return found


def test_arguments_of_an_erase() -> None:
    target = EraseTarget(ns="ab" * 32, gen_upto=str(2**63))
    args = EraseArgs(operation="op", generation=2, source="engine", dp_rank=None, tier="ssd", owner=7, targets=[target])
    assert wire(args) == {
        "operation": "op", "generation": 2, "source": "engine", "dp_rank": None, "tier": "ssd", "owner": 7,
        "targets": [{"ns": "ab" * 32, "gen_upto": "9223372036854775808"}],
        "force": False, "deadline": 0, "rate_bytes_per_s": None, "fencing": False, "targets_root": "", "part": None,
        "keys": {},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("detail", "names"),
    [
        (
            erased(),
            "objects_root objects blocks bytes technique readback medium class_claimed residual remaining started_us"
            " finished_us stream_pos targets_root",
        ),
        (verified(), "found_blocks found_bytes listed_at_us counters readback medium stream_pos targets_root"),
        (
            ShreddedDetail(objects=1, key_medium="flash", lease_dropped=True),
            "objects key_medium lease_dropped flags targets_root",
        ),
    ],
)
def test_names_of_details(detail: msgspec.Struct, names: str) -> None:
    assert set(wire(detail)) == set(names.split())
    assert msgspec.convert(wire(detail), type(detail)) == detail


def test_parts_of_details() -> None:
    found = wire(erased())
    assert set(found["readback"]) == {"method", "sampled", "clean", "evidence"}  # type: ignore[call-overload]
    assert found["remaining"] == {"blocks": 0, "leased_until": None}
    assert found["stream_pos"] == {"boot": "b", "stream": "s", "seq": 7}
    assert found["medium"] == {"type": "memory", "encrypted": False, "emulated": False}


def test_a_copy_says_class_where_python_cannot() -> None:
    copy = copies({1: Node(1), 2: Node(2)})[0]
    assert isinstance(copy, CertificateCopy)
    assert wire(copy)["class"] == copy.cls


def test_they_are_found_where_messages_are() -> None:
    for form in (ErasedDetail, VerifiedDetail, ShreddedDetail, receipts.CertificateBody):
        assert getattr(messages, form.__name__) is form
