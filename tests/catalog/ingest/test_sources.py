"""What a source is called, and that an open gap is never called exact, whatever comes in whatever order."""

import random
import uuid

import pytest

from catalog.ingest.sources import DEGRADED, EXACT, GAP_PATIENCE_S, LOST, RECOVERING, Source
from kvcore.fold import Duplicate, Gap, Next, Reset

NODE = uuid.UUID(int=7)


def source(**kw) -> Source:
    return Source(1, NODE, "ref", 0, **kw)


def begun(boot="b1", stream="s1") -> Source:
    s = source()
    assert isinstance(s.advance(boot, stream, 0, 1.0), Reset)
    return s


def test_a_new_source_is_recovering_and_exact_from_its_first_frame():
    s = source()
    assert s.state == (RECOVERING, "new")
    assert isinstance(s.advance("b1", "s1", 0, 1.0), Reset)
    assert s.state == (EXACT, "")
    assert s.last_verified_at == 1.0


def test_a_gap_closes_only_when_everything_seen_has_come():
    s = begun()
    assert s.advance("b1", "s1", 3, 2.0) == Gap(1)
    assert s.state == (RECOVERING, "gap")
    for seq in (1, 2):
        assert isinstance(s.advance("b1", "s1", seq, 2.1), Next)
        assert s.state == (RECOVERING, "gap")
    assert isinstance(s.advance("b1", "s1", 3, 2.2), Next)
    assert s.state == (EXACT, "")
    assert s.gaps == 1


def test_an_inventory_is_asked_for_when_rewinding_does_not_help():
    s = begun()
    verdict = s.advance("b1", "s1", 5, 2.0)
    assert not s.asks(2.0, verdict=verdict)
    verdict = s.advance("b1", "s1", 6, 2.0 + GAP_PATIENCE_S)
    assert s.asks(2.0 + GAP_PATIENCE_S, verdict=verdict)
    assert not s.asks(2.1 + GAP_PATIENCE_S, verdict=verdict)  # once, then again after a while
    assert isinstance(s.listed("b1", "s1", 6, 4.0), Next)
    s.verified(4.0)
    assert s.state == (EXACT, "")
    assert s.last_verified_at == 4.0


def test_an_inventory_before_what_was_seen_leaves_the_gap_open():
    s = begun()
    s.advance("b1", "s1", 9, 2.0)
    s.listed("b1", "s1", 6, 3.0)
    s.verified(3.0)
    assert s.state == (RECOVERING, "gap")
    for seq in (7, 8, 9):
        s.advance("b1", "s1", seq, 4.0)
    assert s.state == (EXACT, "")


def test_a_late_frame_of_the_old_stream_does_not_hide_that_a_new_one_waits():
    s = begun()
    assert isinstance(s.advance("b2", "s2", 4, 2.0), Gap)
    assert isinstance(s.advance("b1", "s1", 1, 2.1), Next)
    assert s.state == (RECOVERING, "gap")
    assert isinstance(s.advance("b2", "s2", 0, 2.2), Reset)
    assert s.state == (RECOVERING, "gap")  # its frame 4 was seen
    for seq in (1, 2, 3, 4):
        s.advance("b2", "s2", seq, 2.2)
    assert s.state == (EXACT, "")
    assert s.advance("b1", "s1", 2, 2.3) == Duplicate("fenced-boot")


def test_a_stream_that_opens_with_a_gap_item_is_taken_and_never_exact():
    s = begun()
    assert isinstance(s.advance("b1", "s2", 0, 2.0), Gap)
    s = begun()
    assert isinstance(s.advance("b1", "s2", 0, 2.0, declared=True), Next)
    s.doubt("engine-overflow", 2.0)
    assert not s.can_list
    assert s.state == (DEGRADED, "cannot-list")
    assert not s.asks(100.0)
    assert isinstance(s.advance("b2", "s3", 0, 3.0), Reset)
    assert s.state == (EXACT, "")


def test_refused_input_degrades_until_it_is_verified():
    s = begun()
    s.doubt("block-size-mismatch", 2.0)
    assert s.state == (DEGRADED, "block-size-mismatch")
    assert s.asks(2.0)
    s.verified(3.0)
    assert s.state == (EXACT, "")


def test_the_state_changes_once_and_keeps_since():
    s = begun()
    assert s.changed(1.0)
    assert not s.changed(2.0)
    s.doubt("wrong-type", 3.0)
    assert s.changed(3.0)
    assert s.since == 3.0
    s.doubt("nesting", 4.0)
    assert not s.changed(4.0)


def test_a_lost_source_that_lists_goes_on_only_with_an_inventory():
    s = begun()
    s.lose(5.0)
    assert s.state == (LOST, "silent")
    assert s.advance("b1", "s1", 1, 6.0) == Gap(1, inventory=True)
    assert s.cursor.seq == 0
    s.listed("b1", "s1", 1, 7.0)
    s.verified(7.0)
    assert s.state == (EXACT, "")


def test_a_lost_source_that_cannot_list_goes_on_degraded():
    s = begun()
    s.can_list = False
    s.lose(5.0)
    assert isinstance(s.advance("b1", "s1", 1, 6.0), Next)
    assert s.state == (DEGRADED, "cannot-list")


def test_a_heartbeat_ahead_for_long_is_recovering():
    s = begun()
    s.heard("b1", "s1", 4, 2.0)
    assert s.state == (EXACT, "")
    s.heard("b1", "s1", 4, 4.5)
    assert s.state == (RECOVERING, "behind")
    for seq in (1, 2, 3, 4):
        s.advance("b1", "s1", seq, 5.0)
    assert s.state == (EXACT, "")


def test_silence_ends_with_the_next_word_and_asks_for_nothing():
    s = begun()
    s.doubt("silent", 7.0)
    assert s.state == (RECOVERING, "silent")
    assert not s.asks(7.0)
    s.heard("b1", "s1", 0, 8.0)
    assert s.state == (EXACT, "")
    s.doubt("silent", 14.0)
    s.heard("b1", "s1", 2, 15.0)  # it lives, and is ahead: what it has is not known yet
    assert s.state == (RECOVERING, "silent")
    assert isinstance(s.advance("b1", "s1", 1, 15.1), Next)
    assert s.state == (EXACT, "")


def test_silence_does_not_hide_a_gap_from_the_next_writer():
    s = begun()
    s.doubt("silent", 7.0)
    s.advance("b1", "s1", 5, 8.0)
    assert s.state == (RECOVERING, "gap")


def test_silence_of_a_source_that_cannot_list_is_no_loss_yet():
    s = begun()
    s.can_list = False
    s.doubt("silent", 7.0)
    assert s.state == (RECOVERING, "silent")


def test_an_ended_life_does_not_speak_for_the_present_one():
    s = begun()
    s.advance("b2", "s2", 0, 2.0)
    s.spoke("b2", "s2", 3.0)
    s.spoke("b1", "s1", 9.0)
    assert s.spoke_at == 3.0


def test_what_a_digest_reveals_is_a_gap():
    s = begun()
    s.revealed("b1", "s1", 3, 2.0)
    assert s.state == (RECOVERING, "gap")
    assert s.asks(2.0 + GAP_PATIENCE_S)
    for seq in (1, 2, 3):
        s.advance("b1", "s1", seq, 4.0)
    assert s.state == (EXACT, "")


def test_asking_is_repeated_while_nothing_comes():
    s = begun()
    s.doubt("unknown-keys", 1.0)
    assert [t for t in range(1, 20) if s.asks(float(t))] == [1, 3, 5, 7]
    assert s.state == (DEGRADED, "unknown-keys")
    s.doubts = {"engine-ring": 1.0}
    assert s.state == (DEGRADED, "cannot-list")  # it was asked in vain
    s.listing(20.0)
    assert s.state == (RECOVERING, "engine-ring")


def test_inventories_that_do_not_help_grow_rare():
    s, asked = begun(), []
    for tenth in range(10, 6000):
        now = tenth / 10
        s.doubt("block-size-mismatch", now)
        if s.asks(now):
            asked.append(now)
            s.listing(now)
            s.verified(now)
            s.inventoried(now, whole=False)
    assert len(asked) < 20
    assert asked[1] - asked[0] < 1.5
    assert asked[-1] - asked[-2] == pytest.approx(60.0, abs=0.2)


def gap_known(seen: list[tuple[str, str, int]], s: Source) -> bool:
    """Whether a frame of a life that has not ended was seen and is not folded, by brute force."""
    old = set(s.cursor.old_boots)
    for boot, stream, seq in seen:
        if boot in old or stream in old:
            continue
        if (boot, stream) != (s.cursor.boot, s.cursor.stream) or seq > s.cursor.seq:
            return True
    return False


@pytest.mark.parametrize("seed", range(200))
def test_no_history_calls_an_open_gap_exact(seed):
    rng = random.Random(seed)
    s, now, sent, seen = source(), 0.0, [], []
    lives = [("b1", "s1"), ("b1", "s2"), ("b2", "s3")]
    life, top = 0, -1
    for _ in range(120):
        now += rng.random() * 0.4
        if rng.random() < 0.03 and life < 2:
            life, top = life + 1, -1
        boot, stream = lives[life]
        roll = rng.random()
        before = (s.cursor.boot, s.cursor.stream)
        if roll < 0.6:
            top += 1
            if rng.random() < 0.25:
                continue  # lost on the way
            frame = (boot, stream, top)
        elif roll < 0.85 and sent:
            frame = rng.choice(sent)  # sent again, or late
        elif roll < 0.9 and top >= 0:
            frame = (boot, stream, rng.randrange(top + 1))
        elif roll < 0.95:
            s.heard(boot, stream, top, now)
            frame = None
        else:
            frame = None
            if not isinstance(s.listed(boot, stream, top, now), Duplicate):
                seen = [f for f in seen if f[:2] == (boot, stream)]
                s.verified(now)
        if frame is not None:
            sent.append(frame)
            seen.append(frame)
            s.advance(*frame, now)
        at = (s.cursor.boot, s.cursor.stream)
        if at != before:  # the newest life that was accepted ends all others that were seen
            seen = [f for f in seen if f[:2] == at]
        assert not (s.state[0] == EXACT and gap_known(seen, s)), (frame, s)
