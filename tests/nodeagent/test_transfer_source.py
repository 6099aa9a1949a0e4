"""Offers hold what they name, for the destination they name, until they are over."""

import secrets

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kvcore.blocks import BlockState
from nodeagent import transfer, transfer_source
from tests.nodeagent.moving import TIERS, D, Node, S, filled, network, offer, pair, release, take
from tests.nodeagent.ordering import everything
from tests.nodeagent.test_pool import check

__all__ = ["network", "pair"]


def test_two_offers_never_hold_the_same_copy(pair):
    a, b = pair
    key = filled(a, b)
    first, _ = offer(a, D, b, D, everything(key), most_bytes=10 * 1104)
    second, _ = offer(a, D, b, S, everything(key))
    assert 0 < first.detail["blocks"] <= 10
    assert first.detail["blocks"] + second.detail["blocks"] == len(a.all(D))


def test_an_offer_whose_time_is_over_holds_nothing(pair):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    assert {r.copies[D].state for r in a.pool.runs.values() if D in r.copies} == {BlockState.REFERENCED}
    a.desk.upkeep(a.now + 601)
    assert {r.copies[D].state for r in a.pool.runs.values() if D in r.copies} == {BlockState.COMMITTED}
    assert take(a, D, b, D, step, everything(key))[0].code == "offer-unknown"
    check(a)


def test_a_copy_in_use_is_waited_for(pair):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    take(a, D, b, D, step, everything(key))
    run = next(r for r in a.pool.runs.values() if D in r.copies)
    run.copies[D].acquire()
    done = release(a, D, step, everything(key))
    assert (done.outcome, done.code, done.detail["leased"]) == ("partial", "blocks-leased", run.blocks)
    run.copies[D].release()
    assert release(a, D, step, everything(key)).outcome == "done"
    assert release(a, D, step, everything(key)).code == "offer-unknown"
    check(a)


def test_whoever_is_not_the_destination_gets_nothing(pair, network, tmp_path):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    thief = Node(tmp_path / "c", TIERS, network, "c", 3)
    thief.lease_of(key)
    assert take(a, D, thief, D, step, everything(key))[0].code == "transfer-signature"
    assert thief.all(D) == set()
    thief.name = "b"
    thief.desk._node = "b"
    assert take(a, D, thief, D, step, everything(key))[0].code == "transfer-signature"
    party = msgspec.structs.replace(a.party(D), public_key=thief.party(D).public_key)
    done, _ = b.obey("take", D, everything(key), party=party, offer=step)
    assert done.code == "transfer-signature"  # a source that is not the one it was told
    assert take(a, D, b, D, "another", everything(key))[0].code == "offer-unknown"
    thief.close()


def test_what_was_said_once_is_not_taken_again(pair, network):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    take(a, D, b, D, step, everything(key))
    asks = network.seen[2::2]  # each is followed by its answer; the first opens the session
    assert len(asks) > 1
    for body in asks:
        with pytest.raises(transfer_source.Denied, match="transfer-session"):
            a.desk.answer(body)
    with pytest.raises(transfer_source.Denied, match="transfer-malformed"):
        a.desk.answer(secrets.token_bytes(80))


@pytest.mark.parametrize("came", ["before", "between"])
def test_what_is_to_be_spared_is_neither_offered_nor_released(pair, came):
    a, _ = pair
    key = filled(a, a)
    spare, there = [key.ns.hex()], a.all(D)
    done, step = offer(a, D, a, D, everything(key), spare=spare if came == "before" else [])
    assert (done.detail["spared"], done.detail["blocks"]) == ((len(there), 0) if came == "before" else (0, len(there)))
    if came == "between":
        done, _ = a.obey("release", D, everything(key), offer=step, spare=spare)
        assert (done.outcome, done.detail["spared"], done.detail["blocks"]) == ("done", len(there), 0)
    assert a.all(D) == there
    check(a)


DEEP = b"\x91" * 100_000 + b"\xc0"


@pytest.mark.parametrize("body", [b"\x80", DEEP, b"\x81\xa1a" + DEEP, b"\x81\xa4body" + DEEP, b"\x81\xa5offer\xa1\xff"])
def test_what_is_nested_too_deep_is_malformed_like_all_that_cannot_be_read(pair, body):
    a, _ = pair
    hello = msgspec.msgpack.encode({"body": body, "signature": b""})
    for sent in (body, hello):
        with pytest.raises(transfer_source.Denied, match="transfer-malformed"):
            a.desk.answer(sent)
    key = Ed25519PrivateKey.generate()
    with pytest.raises(transfer.Cut):
        transfer.Line(lambda _: body, key=key, node="a", offer="o", to="b", to_key=b"")


@pytest.mark.parametrize("said", [b"\x81\xa4verb" + DEEP, b"\x81\xa4verb\xa1\xff"])
def test_what_is_asked_in_a_session_is_read_with_the_same_care(pair, monkeypatch, said):
    a, b = pair
    key = filled(a, b)
    _, step = offer(a, D, b, D, everything(key))
    monkeypatch.setattr(transfer.Session, "open", lambda self, blob: said)
    assert take(a, D, b, D, step, everything(key))[0].code == "transfer-malformed"
