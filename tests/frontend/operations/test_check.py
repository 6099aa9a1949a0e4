"""A certificate on the public page is read by the verifier as one, and what is none is told to be none."""

import pytest

from frontend.audit import checking, sentences
from frontend.audit.checking import Brought, Checked


@pytest.mark.parametrize(("data", "kind"), [
    (b"", "head"), (b"PK\x03\x04", "bundle"), (b'{"body":{}}', "certificate"), (b"\n {", "certificate"),
    (b"c2sp.org/tlog-proof@v1\n", "proof"),
])  # fmt: skip
def test_what_it_is_shows_by_how_it_begins(data, kind):
    assert checking.kind_of(data) == kind


def test_what_is_no_certificate_is_said_so(db):
    found = checking.check(Brought(proof=b'{"body":{},"format":"something"}'))
    assert (found.kind, found.verdict) == ("certificate", "malformed")
    assert [one["code"] for one in found.facts["problems"]] == ["not-a-certificate"]


def test_a_valid_one_is_told_by_its_class_and_claims_no_more():
    facts = {"certificate": {"class": "E2", "exceptions": 1, "seal": False, "receipts": 4}, "log": {}}
    lines = sentences.verdict(Checked("certificate", "valid", facts, "console", False))
    assert lines[0].startswith("Valid: what this certificate says")
    assert "Class E2, evicted." in lines[1]
    assert "It has 1 exception. It bears no seal." in lines[1]


def test_one_without_receipts_is_not_said_to_follow_from_what_nodes_signed():
    facts = {"certificate": {"class": "E0", "exceptions": 0, "seal": False, "receipts": 0}, "log": {}}
    lines = sentences.verdict(Checked("certificate", "valid", facts, "console", False))
    assert "No node signed anything of it" in lines[0]
    assert "follows from what the nodes signed" not in " ".join(lines)
