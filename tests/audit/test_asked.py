"""What the signer takes: one reading of every text, bounded."""

import msgspec
import pytest

from audit.asked import Evidence, HeadAsked, SignAsked, canonical, strict


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b'{"a":1,"a":1}', b'{"a":{"b":1,"b":2}}', b'[{"a":1,"a":2}]', b"NaN", b'{"a":Infinity}', b"\xff",
     b"[" * 9000, b'\xef\xbb\xbf{}', b'{"a":' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_what_has_no_one_reading_is_refused(raw):
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the parser says
        strict(raw)


@pytest.mark.parametrize(
    "raw",
    [b'{"b":1,"a":2}', b'{"a": 1}', b'{"a":1.0}', b'{"a":1e3}', b'{"a":"\\u0061"}', b"[]", b"1",
     b'{"a":9007199254740993}', b'{"a":1}\n', b'{"a":"\\ud800"}', b'{"a":-0}', b'{"a":1e400}',
     b'{"a":' + b"[" * 990 + b"]" * 990 + b"}"],
)  # fmt: skip
def test_what_is_not_canonical_is_refused(raw):
    with pytest.raises(ValueError):  # noqa: PT011
        canonical(raw)


def test_what_is_canonical_is_read():
    raw = '{"a":[1,"é",{"b":null}],"b":1.5}'.encode()
    assert canonical(raw) == {"a": [1, "é", {"b": None}], "b": 1.5}


GOOD = {"old_size": 1, "new_size": 2, "new_root": "ab" * 32, "proof": ["cd" * 32]}


@pytest.mark.parametrize(
    "change",
    [{"old_size": -1}, {"new_size": 2**63}, {"new_size": True}, {"new_root": "AB" * 32}, {"new_root": "ab"},
     {"new_root": "ab" * 32 + "\n"}, {"proof": ["cd"]}, {"proof": ["cd" * 32] * 64}, {"more": 1}, 
     {"new_size": "2"}, {"new_size": 1.5}],
)  # fmt: skip
def test_heads_are_bounded(change):
    msgspec.convert(GOOD, HeadAsked)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(GOOD | change, HeadAsked)


@pytest.mark.parametrize(
    "change",
    [
        {"leaf": "ab" * 147},
        {"leaf": "AB" * 148},
        {"leaf": "ab" * 148 + "\n"},
        {"index": -1},
        {"body": "x" * 98305},
        {"body": None},
        {"x": 1},
    ],
)
def test_evidence_is_bounded(change):
    good = {"leaf": "ab" * 148, "index": 0, "proof": [], "body": "{}"}
    msgspec.convert(good, Evidence)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(good | change, Evidence)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"command": {}, "order": good, "witness": good}, SignAsked)
