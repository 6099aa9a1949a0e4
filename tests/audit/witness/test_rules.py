"""What a witness answers, by the words of the specification."""

import base64

import pytest

from audit.keyfiles import public_bytes
from audit.witness.rules import Refusal, logs_of, read, refusal
from kvcore import notes
from kvcore.notes import Checkpoint, NoteError, VerifierKey
from kvcore.proofs import EMPTY_ROOT
from tests.audit.signer.making import ORIGIN, Log
from tests.audit.witness.asking import KEY, LOGS, OTHER_KEY, body, note_of

LOG = Log().fill(30)


def judged(raw, last=None):
    asked = read(raw, LOGS)
    return asked if isinstance(asked, Refusal) else refusal(asked, last)


def at(size, log=LOG):
    return Checkpoint(ORIGIN, size, log.root(size))


def test_a_log_that_grows_is_cosigned_at_every_size():
    for old in range(30):
        for new in range(old, 31):
            assert judged(body(LOG, old, new), at(old) if old else None) is None


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"\xff", 400),
        (body(LOG, 3, 9).replace(b"old 3", b"old 03"), 400),
        (body(LOG, 3, 9).replace(b"old 3", b"old -3"), 400),
        (body(LOG, 3, 9).replace(b"old 3", b"old  3"), 400),
        (body(LOG, 3, 9).replace(b"old 3\n", b""), 400),
        (body(LOG, 3, 9).replace(b"old 3\n", b"old 3\nAAAA\n"), 400),
        (body(LOG, 3, 9).replace(b"old 3\n", b"old 3\n" + b"A" * 43 + b"B\n"), 400),
        (b"old 3\n" + (base64.b64encode(bytes(32)) + b"\n") * 64 + b"\n" + note_of(LOG, 9).encode(), 400),
        (b"old 3\n\n", 400),
        (b"old 3\n\nhello\n", 400),
        (body(LOG, 3, 9).replace(b"\n9\n", b"\n09\n"), 400),
        (body(LOG, 3, 9).replace(ORIGIN.encode() + b"\n", b"unknown.example/log\n"), 404),
        (body(LOG, 3, 9).replace(b"\n9\n", b"\n8\n"), 403),
        (body(LOG, 3, 9, key=OTHER_KEY), 403),
        (body(LOG, 3, 9, name="another.example/log"), 403),
        (f"old 10\n\n{note_of(LOG, 9)}".encode(), 400),
    ],
)
def test_what_is_no_checkpoint_of_a_known_log(raw, status):
    assert judged(raw, at(3)).status == status


def test_who_believes_another_size_is_told_the_right_one():
    for old in (0, 2, 4):
        assert judged(body(LOG, old, 9), at(3)) == Refusal(409, "3\n", 3)
    assert judged(body(LOG, 3, 9)) == Refusal(409, "0\n", 0), "never seen before"


def test_a_fork_a_bad_proof_and_a_proof_too_many():
    other = Log().fill(3)
    other.add({"forged": 1})
    other.fill(20)
    assert judged(body(other, 3, 9), at(3)) is None, "nobody can know"
    assert judged(body(other, 6, 9), at(6)).status == 422
    same = judged(body(other, 6, 6), at(6))
    assert (same.status, same.size) == (409, None)
    line = base64.b64encode(bytes(32))
    assert judged(body(LOG, 6, 6).replace(b"old 6\n", b"old 6\n" + line + b"\n"), at(6)).status == 422
    assert judged(body(LOG, 0, 6).replace(b"old 0\n", b"old 0\n" + line + b"\n")).status == 422
    good = body(LOG, 6, 9)
    assert judged(good.replace(good.split(b"\n")[1] + b"\n", b""), at(6)).status == 422


def test_the_empty_log_has_one_root():
    assert judged(body(LOG, 0, 0)) is None
    forged = note_of(LOG, 0).replace(base64.b64encode(EMPTY_ROOT).decode(), "A" * 43 + "=")
    assert judged(f"old 0\n\n{forged}".encode()).status == 403


def test_logs_are_known_by_their_keys():
    log = VerifierKey(ORIGIN, notes.ED25519, public_bytes(KEY))
    assert logs_of([log.text]) == LOGS
    assert logs_of([]) == {}
    for bad in ("nonsense", VerifierKey(ORIGIN, notes.COSIGNATURE, public_bytes(KEY)).text):
        with pytest.raises(NoteError):
            logs_of([bad])
