"""The file of what was signed last: whole or refused, one owner, on the disk before it counts."""

import os
import stat

import pytest

from audit.signer.heads import EMPTY, Head
from audit.signer.state import State, StateFile, StateRefused

STATE = State("console.example/log/eu/1", b"k" * 32, Head(7, b"r" * 32))


@pytest.fixture
def held(tmp_path):
    held = StateFile(tmp_path / "state.json")
    yield held
    held.close()


def test_what_was_saved_is_loaded_and_private(held):
    assert not held.exists()
    held.save(STATE, before=None)
    assert held.load() == STATE
    assert stat.S_IMODE(held.path.stat().st_mode) == 0o600
    later = STATE._replace(head=Head(8, b"s" * 32))
    held.save(later, before=STATE)
    assert held.load() == later


def test_every_flipped_bit_is_damage(held):
    held.save(STATE, before=None)
    raw = held.path.read_bytes()
    for at in range(len(raw)):
        for bit in range(8):
            held.path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << bit)]) + raw[at + 1 :])
            with pytest.raises(StateRefused, match="damaged"):
                held.load()


@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"[1]", b"\x00" * 200, b"[" * 9000, b'{"size":7}'])
def test_what_is_no_state_is_damage(held, content):
    held.path.write_bytes(content)
    held.path.chmod(0o600)
    with pytest.raises(StateRefused, match="damaged"):
        held.load()


def test_a_cut_file_is_damage_at_every_length(held):
    held.save(STATE, before=None)
    raw = held.path.read_bytes()
    for length in range(len(raw)):
        held.path.write_bytes(raw[:length])
        with pytest.raises(StateRefused):
            held.load()


def test_a_lost_or_open_file_is_refused(held):
    with pytest.raises(StateRefused, match="No such file"):
        held.load()
    held.save(STATE, before=None)
    held.path.chmod(0o644)
    with pytest.raises(StateRefused, match="0600"):
        held.load()


def test_a_second_owner_is_refused_until_the_first_lets_go(held):
    with pytest.raises(StateRefused, match="another signer"):
        StateFile(held.path)
    held.close()
    again = StateFile(held.path)
    again.close()
    held._lock = os.open(held.path, os.O_RDWR | os.O_CREAT)  # for the fixture


def test_what_somebody_else_wrote_is_not_overwritten(held):
    held.save(STATE, before=None)
    older = held.path.read_bytes()
    later = STATE._replace(head=Head(8, b"s" * 32))
    held.save(later, before=STATE)
    held.path.write_bytes(older)
    with pytest.raises(StateRefused, match="somebody else"):
        held.save(STATE._replace(head=Head(9, b"t" * 32)), before=later)
    assert held.path.read_bytes() == older
    held.path.unlink()
    with pytest.raises(StateRefused, match="somebody else"):
        held.save(later, before=later)


def test_a_part_that_was_left_behind_is_in_nobodys_way(held):
    held.path.with_name(".state.json.new").write_bytes(b"half of it")
    held.save(STATE, before=None)
    assert held.load() == STATE


def test_the_empty_log_has_its_own_root_only(held):
    held.save(State("o", b"k" * 32, EMPTY), before=None)
    assert held.load().head == EMPTY
    held.path.unlink()
    held.save(State("o", b"k" * 32, Head(0, b"r" * 32)), before=None)
    with pytest.raises(StateRefused, match="damaged"):
        held.load()
