"""Which head may follow another: every pair of sizes of one log, and none of another log."""

import msgspec
import pytest

from audit.asked import HeadAsked
from audit.signer.heads import EMPTY, Head, next_head
from tests.audit.signer.making import Log

LOG = Log().fill(40)
OTHER = Log().fill(9)
OTHER.add({"forged": True})
OTHER.fill(30)


def asked(log, old, new):
    return msgspec.convert(log.head(old, new), HeadAsked)


def test_a_log_that_grows_is_signed_at_every_size():
    for old in range(40):
        last = Head(old, LOG.root(old))
        for new in range(old, 41):
            assert next_head(last, asked(LOG, old, new)) == Head(new, LOG.root(new))


def test_a_log_that_is_shorter_is_not():
    for old in range(1, 41):
        for new in range(old):
            assert next_head(Head(old, LOG.root(old)), asked(LOG, new, new)) == "log-shrunk"


def test_another_log_is_not_from_the_first_leaf_that_differs_on():
    for old in range(10, 40):
        last = Head(old, LOG.root(old))
        assert next_head(last, asked(OTHER, old, old)) == "log-fork"
        for new in range(old + 1, 41):
            assert next_head(last, asked(OTHER, old, new)) == "log-fork"
    assert next_head(Head(9, LOG.root(9)), asked(OTHER, 9, 20)) == Head(20, OTHER.root(20)), "nobody can know"


def test_who_believes_another_size_is_told():
    last = Head(20, LOG.root(20))
    for old in (0, 1, 19, 21, 30):
        assert next_head(last, asked(LOG, old, 30)) == "stale-size"
    for old in (0, 3, 20, 25):
        request = asked(LOG, 20, 20)
        assert next_head(last, msgspec.structs.replace(request, old_size=old)) == last, "the same again is no question"


@pytest.mark.parametrize("spoil", ["drop", "swap", "flip", "more", "root"])
def test_a_proof_that_is_not_whole_is_a_fork(spoil):
    request = msgspec.to_builtins(asked(LOG, 21, 38))
    proof = request["proof"]
    if spoil == "drop":
        proof.pop()
    elif spoil == "swap":
        proof[0], proof[1] = proof[1], proof[0]
    elif spoil == "flip":
        proof[0] = f"{int(proof[0], 16) ^ 1:064x}"
    elif spoil == "more":
        proof.append("00" * 32)
    else:
        request["new_root"] = "00" * 32
    assert next_head(Head(21, LOG.root(21)), msgspec.convert(request, HeadAsked)) == "log-fork"


def test_the_empty_log_has_one_root():
    assert next_head(EMPTY, asked(LOG, 0, 0)) == EMPTY
    assert next_head(EMPTY, HeadAsked(old_size=0, new_size=0, new_root="00" * 32)) == "log-fork"
