"""What is next, held, lost or a new life, whatever order the publisher and its ring speak in."""

import random

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.engines.stream import Apply, Lost, Reborn, Replay, Step, Stream


def p(n: int, life: int = 0) -> bytes:
    return f"{life}/{n}".encode()


def applied(steps: list[Step]) -> list[bytes]:
    return [s.payload for s in steps if isinstance(s, Apply)]


def test_in_order() -> None:
    s = Stream(has_ring=False)
    assert s.start() == []
    assert [s.live(n, p(n)) for n in range(3)] == [[Apply(p(n))] for n in range(3)]


def test_a_jump_without_a_ring_is_a_loss() -> None:
    s = Stream(has_ring=False)
    s.live(0, p(0))
    assert s.live(5, p(5)) == [Lost("ring"), Apply(p(5))]
    assert s.live(6, p(6)) == [Apply(p(6))]


def test_a_late_start_asks_the_ring_for_everything() -> None:
    s = Stream(has_ring=True)
    assert s.start() == [Replay(0)]
    assert s.live(3, p(3)) == []
    assert s.held == 1
    assert applied(s.replayed(0, p(0)) + s.replayed(1, p(1)) + s.replayed(2, p(2)) + s.replayed(3, p(3))) == [
        p(0), p(1), p(2), p(3)
    ]  # fmt: skip
    assert s.replay_over() == []
    assert s.live(4, p(4)) == [Apply(p(4))]


def test_live_batches_wait_for_the_ring_and_follow_in_order() -> None:
    s = Stream(has_ring=True)
    s.live(0, p(0))
    s.replay_over()
    assert s.live(3, p(3)) == [Replay(1)]
    assert s.live(4, p(4)) == []
    assert s.replayed(0, p(0)) == []
    assert applied(s.replayed(1, p(1))) == [p(1)]
    assert applied(s.replayed(2, p(2))) == [p(2)]
    assert applied(s.replay_over()) == [p(3), p(4)]
    assert s.replay_over() == []
    assert s.replayed(5, p(5)) == []


def test_what_the_ring_has_lost_is_a_loss() -> None:
    s = Stream(has_ring=True)
    s.live(0, p(0))
    s.live(9, p(9))
    assert s.replayed(5, p(5)) == [Lost("ring"), Apply(p(5))]
    assert s.replay_over() == [Replay(6)]  # the ring went on rolling: asked once more
    assert s.replay_over() == [Lost("ring"), Apply(p(9))]
    assert s.live(10, p(10)) == [Apply(p(10))]


def test_numbers_that_go_back_are_a_new_life() -> None:
    s = Stream(has_ring=False)
    for n in range(3):
        s.live(n, p(n))
    assert s.live(0, p(0, 1)) == [Reborn(), Apply(p(0, 1))]
    assert s.live(1, p(1, 1)) == [Apply(p(1, 1))]
    ring = Stream(has_ring=True)
    ring.live(0, p(0))
    ring.live(5, p(5))
    assert ring.live(1, p(1, 1)) == [Reborn(), Replay(0)]
    assert ring.held == 1


def test_the_ring_may_be_ahead_of_the_publisher() -> None:
    s = Stream(has_ring=True)
    s.start()
    for n in range(3):
        s.replayed(n, p(n))
    s.replay_over()
    assert [s.live(n, p(n)) for n in range(3)] == [[], [], []]
    assert s.live(3, p(3)) == [Apply(p(3))]


def test_a_restart_between_the_ring_and_the_publisher_is_seen() -> None:
    s = Stream(has_ring=True)
    s.start()
    for n in range(3):
        s.replayed(n, p(n))
    s.replay_over()
    assert s.live(0, p(0, 1)) == [Reborn(), Apply(p(0, 1))]


def test_too_much_to_hold_gives_the_ring_up() -> None:
    s = Stream(has_ring=True, held_max=2)
    s.live(0, p(0))
    s.live(3, p(3))
    s.live(4, p(4))
    assert s.live(5, p(5)) == [Lost("overflow"), Apply(p(3)), Apply(p(4)), Apply(p(5))]
    assert s.replayed(1, p(1)) == []
    assert s.live(6, p(6)) == [Apply(p(6))]


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 4))
def test_nothing_is_applied_twice_out_of_order_or_silently_lost(seed: int, n: int, lives: int) -> None:
    """Any loss, any ring: of each life the batches come in order, and what is missing was told as lost."""
    rnd = random.Random(seed)
    s = Stream(has_ring=rnd.random() < 0.8)
    got: list[Step] = []
    asked: int | None = None

    def take(steps: list[Step]) -> None:
        nonlocal asked
        for step in steps:
            asked = step.start if isinstance(step, Replay) else asked
            got.append(step)

    take(s.start())
    for life in range(lives):
        ring: list[int] = []
        for seq in range(n):
            ring = [*ring, seq][-rnd.randint(3, 50) :]
            if rnd.random() < 0.8 or seq == 0:  # the first batch of a life is heard, else its restart may go unseen
                take(s.live(seq, p(seq, life)))
            while asked is not None and rnd.random() < 0.5:
                start, asked = asked, None
                for r in [r for r in ring if r >= start]:
                    take(s.replayed(r, p(r, life)))
                take(s.replay_over())
        asked = None if life < lives - 1 else asked
    while asked is not None:
        asked = None
        take(s.replay_over())
    last, lost = (0, -1), False
    for step in got:
        match step:
            case Reborn():
                last, lost = (last[0] + 1, -1), False
            case Lost():
                lost = True
            case Apply(payload=payload):
                life, seq = (int(x) for x in payload.decode().split("/"))
                assert life == last[0]
                assert seq > last[1]
                assert lost or seq == last[1] + 1
                last, lost = (life, seq), False
            case _:
                pass
