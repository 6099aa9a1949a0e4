"""How a log begins and begins again; what does not belong together is refused."""

import stat

import pytest

from audit.keyfiles import KeyFileRefused, key_file, public_bytes, verify
from audit.signer import setup
from audit.signer.state import StateFile, StateRefused
from kvcore import notes
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


def test_a_new_epoch_has_a_new_key_and_name_and_both_keys_say_so(place):
    directory, _ = place
    where, held = opened(directory)
    old = public_bytes(key_file(where.log))
    command = where.command.read_bytes()
    state, record = setup.new_epoch(where, held, reason="restored from a backup", now=NOW)
    assert (state.origin, state.head.size) == ("console.example/log/eu/2", 0)
    assert state.key != old
    for name, public in ((ORIGIN, old), (state.origin, state.key)):
        text = notes.note_open(record, [VerifierKey(name, notes.ED25519, public)], verify).text
    assert text.split("\n") == [
        "kvconsole/epoch/v1", f"old {ORIGIN} 7 {LOG.root(7).hex()}",
        f"new {VerifierKey(state.origin, notes.ED25519, state.key).text}", "at 2026-05-28T20:26:40Z",
        "restored from a backup", "",
    ]  # fmt: skip
    assert (directory / "state.json.epoch-2.note").read_text() == record
    assert public_bytes(key_file(directory / "log.key.1")) == old
    assert where.command.read_bytes() == command
    held.close()
    signer = a_signer(directory)
    assert signed_up_to(signer, LOG, 4).startswith("console.example/log/eu/2\n4\n")
    signer.held.close()


@pytest.mark.parametrize("reason", ["", " ", "a\nb"])
def test_a_new_epoch_needs_a_reason(place, reason):
    directory, _ = place
    where, held = opened(directory)
    with pytest.raises(StateRefused, match="reason"):
        setup.new_epoch(where, held, reason=reason, now=NOW)
    held.close()
