"""How a log begins and begins again; what does not belong together is refused."""

import json
import stat

import pytest

from audit.keyfiles import KeyFileRefused, key_file, public_bytes, verify
from audit.signer import setup
from audit.signer.state import StateFile, StateRefused
from kvcore import notes
from kvcore.epochs import record_parse
from kvcore.notes import VerifierKey
from tests.audit.signer.making import NOW, ORIGIN, Log, a_signer, files, signed_up_to

LOG = Log().fill(12)


@pytest.fixture
def place(tmp_path):
    signer = a_signer(tmp_path)
    note = signed_up_to(signer, LOG, 7)
    signer.held.close()
    return tmp_path, note


def opened(directory):
    where = files(directory)
    return where, StateFile(where.state)


def test_it_begins_once(place):
    directory, _ = place
    where, held = opened(directory)
    before = {path: path.read_bytes() for path in where}
    setup.begin(where, held, origin="another/log/eu/9")
    assert {path: path.read_bytes() for path in where} == before
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in where)
    assert len({path.read_bytes() for path in where[:3]}) == 3
    _, state = setup.load(where, held)
    assert (state.origin, state.head.size) == (ORIGIN, 7)
    held.close()


def test_a_lost_state_is_never_made_up(place):
    directory, _ = place
    where, held = opened(directory)
    where.state.unlink()
    for attempt in (lambda: setup.begin(where, held, origin=ORIGIN), lambda: setup.load(where, held)):
        with pytest.raises(StateRefused):
            attempt()
    assert not where.state.exists()
    held.close()


def test_a_replaced_or_lost_key_is_refused(place):
    directory, _ = place
    where, held = opened(directory)
    old = where.log.read_bytes()
    where.log.unlink()
    with pytest.raises(KeyFileRefused):
        setup.load(where, held)
    key_file(where.log, make=True)
    with pytest.raises(StateRefused, match="not the key that signed"):
        setup.load(where, held)
    setup.begin(where, held, origin=ORIGIN)
    with pytest.raises(StateRefused, match="not the key that signed"):
        setup.load(where, held)
    where.log.write_bytes(old)
    setup.load(where, held)
    held.close()


def test_a_lost_or_older_state_is_taken_from_what_the_key_signed(place):
    directory, note = place
    where, held = opened(directory)
    where.state.unlink()
    assert setup.adopt(where, held, note).head == (7, LOG.root(7))
    with pytest.raises(StateRefused, match="size 7"):
        setup.adopt(where, held, note)
    held.close()


@pytest.mark.parametrize("spoil", ["size", "key", "nothing"])
def test_it_is_not_taken_from_anything_else(place, spoil, tmp_path_factory):
    directory, note = place
    where, held = opened(directory)
    where.state.unlink()
    if spoil == "size":
        note = note.replace("\n7\n", "\n6\n")
    elif spoil == "key":
        other = a_signer(tmp_path_factory.mktemp("other"))
        note = signed_up_to(other, LOG, 3)
        other.held.close()
    else:
        note = ""
    with pytest.raises(StateRefused, match="no checkpoint of the log's key"):
        setup.adopt(where, held, note)
    assert not where.state.exists()
    held.close()


def order(size=4, **change):
    """What two people agreed: the first leaves of `LOG`, as its key signed them, are kept."""
    kept = {"size": size, "root": LOG.root(size).hex(), "note": change.pop("note", "")}
    found = {"v": 1, "origin": ORIGIN, "reason": "restore", "approval": "01a22c14-8067-731b-9701-94e98a5d88ad",
             "approvers": ["ab" * 16, "cd" * 16], "kept": kept, **change}  # fmt: skip
    return json.dumps(found).encode()


@pytest.fixture
def early(tmp_path):
    """A signer that signed seven leaves, and the note of the first four."""
    signer = a_signer(tmp_path)
    note = signed_up_to(signer, LOG, 4)
    signed_up_to(signer, LOG, 7)
    signer.held.close()
    return tmp_path, note


def test_a_new_epoch_has_a_new_key_and_name_and_both_keys_say_so(early):
    directory, note = early
    where, held = opened(directory)
    old = public_bytes(key_file(where.log))
    command = where.command.read_bytes()
    state = setup.new_epoch(where, held, order(note=note), now=NOW)
    assert (state.origin, state.head.size) == ("console.example/log/eu/2", 0)
    assert state.key != old
    for name, public in ((ORIGIN, old), (state.origin, state.key)):
        notes.note_open(state.record, [VerifierKey(name, notes.ED25519, public)], verify)
    said = record_parse(state.record)
    assert (said.old_origin, said.old_size, said.old_root) == (ORIGIN, 7, LOG.root(7))
    assert (said.kept, said.kept_root, said.at) == (4, LOG.root(4), "2026-05-28T20:26:40Z")
    assert (said.origin, said.reason, said.approvers) == (state.origin, "restore", ("ab" * 16, "cd" * 16))
    assert (directory / "state.json.epoch-2.note").read_text() == state.record
    assert public_bytes(key_file(directory / "log.key.1")) == old
    assert where.command.read_bytes() == command
    assert held.load() == state
    held.close()


def test_what_was_kept_must_be_what_the_key_signed(early):
    directory, note = early
    where, held = opened(directory)
    before = held.load()
    forged = note.replace("\n4\n", "\n5\n")
    for raw in (order(), order(note=forged), order(size=5, note=note), order(size=9, note=note), b"{}", b"x"):
        with pytest.raises(StateRefused):
            setup.new_epoch(where, held, raw, now=NOW)
    assert held.load() == before
    held.close()


def test_under_the_new_name_only_a_log_is_signed_that_begins_with_the_record(early):
    directory, note = early
    where, held = opened(directory)
    state = setup.new_epoch(where, held, order(note=note), now=NOW)
    held.close()
    signer = a_signer(directory)
    log = Log()
    body = {"action": "log.restored", "data": {"record": state.record}}
    log.add(body, event_type=0x0F09, flags=32, actor_ref=bytes(16))
    log.fill(5)

    def asked(log, first):
        given = {name: getattr(first, name) for name in first.__struct_fields__} if first else None
        return signer.checkpoint(json.dumps({**log.head(0), "first": given}).encode())

    others = []
    for change in ({"event_type": 0x0101}, {"flags": 0}):
        other = Log()
        other.add(body, **{"event_type": 0x0F09, "flags": 32, "actor_ref": bytes(16), **change})
        others.append((other, other.evidence(0)))
    said = Log()
    said.add({**body, "data": {"record": "another"}}, event_type=0x0F09, flags=32, actor_ref=bytes(16))
    others += [(LOG, None), (LOG, LOG.evidence(0)), (said, said.evidence(0)), (LOG, log.evidence(0)),
               (log, log.evidence(1)), (log, None)]  # fmt: skip
    for other, first in others:
        assert asked(other, first)[1].get("code") == "epoch-not-begun"
    status, answer = asked(log, log.evidence(0))
    assert (status, answer["note"][:27]) == (200, "console.example/log/eu/2\n6\n")
    log.fill(2)
    assert signer.checkpoint(json.dumps(log.head(6)).encode())[0] == 200, "and then it only grows"
    for origin, wanted in ((ORIGIN, 200), (state.origin, 200), ("console.example/log/eu/3", 403), ("x", 403)):
        assert signer.export(json.dumps({"manifest_sha256": "ab" * 32, "origin": origin}).encode())[0] == wanted
    signer.held.close()


@pytest.mark.parametrize("origin", ["a/log/eu/1", "a/log/eu/02", "a/log/eu/0", "b/log/eu/1", "a/log/eu/", "a/log/eu/x"])
def test_which_names_are_of_one_log(origin):
    assert setup.is_epoch(origin, "a/log/eu/3") == (origin == "a/log/eu/1")
    assert setup.is_epoch("a/log/eu/3", "a/log/eu/3")
    assert not setup.is_epoch("a/log/eu/4", "a/log/eu/3")
