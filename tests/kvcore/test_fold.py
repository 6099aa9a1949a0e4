"""Sequence rules and the reference fold."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore import fold as f
from kvcore.events import Add, Adds, Clear, Drop, Gap, Item, Load, Mark, Move, State, Use
from kvcore.fold import Change, Cursor, Duplicate, Next, Place, Reset

NS, OTHER = bytes([1]) * 32, bytes([2]) * 32


def k(*numbers: int) -> bytes:
    return b"".join(n.to_bytes(32, "big") for n in numbers)


def add(*numbers: int, tier: str = "hbm", ns: bytes = NS, gen: int = 1) -> Add:
    return Add(ns=ns, gen=gen, keys=k(*numbers), tier=tier, tokens=16, bytes=1024)


def place(n: int, tier: str = "hbm", gen: int = 1) -> Place:
    return Place(tier, NS, gen, 0, k(n))


class TestCursor:
    def test_first_contact(self) -> None:
        c, v = Cursor().advance("b", "s", 0)
        assert (c, v) == (Cursor("b", "s", 0), Reset(""))
        c, v = Cursor().advance("b", "s", 5)
        assert (c, v) == (Cursor(), f.Gap(0))

    def test_next_duplicate_gap(self) -> None:
        c = Cursor("b", "s", 4)
        assert c.advance("b", "s", 5) == (Cursor("b", "s", 5), Next())
        assert c.advance("b", "s", 4) == (c, Duplicate())
        assert c.advance("b", "s", 6) == (c, f.Gap(5))
        high = Cursor("b", "s", 10_000)
        assert high.advance("b", "s", 3) == (high, Duplicate("seq-backwards"))

    def test_new_stream_of_the_same_boot_is_a_gap_until_an_inventory(self) -> None:
        c = Cursor("b", "s1", 4)
        assert c.advance("b", "s2", 0) == (c, f.Gap(0, inventory=True))
        c2, v = c.listed("b", "s2", 7)
        assert (c2.stream, c2.seq, v) == ("s2", 7, Next())
        assert c2.advance("b", "s2", 8)[1] == Next()
        assert c2.advance("b", "s1", 5)[1] == Duplicate("fenced-boot")

    def test_new_boot_begins_at_zero_and_the_old_one_is_fenced(self) -> None:
        c = Cursor("b1", "s1", 4)
        assert c.advance("b2", "s2", 3) == (c, f.Gap(0))
        c2, v = c.advance("b2", "s2", 0)
        assert v == Reset("b1")
        assert c2.advance("b1", "s1", 5) == (c2, Duplicate("fenced-boot"))
        assert c2.advance("b3", "s1", 0) == (c2, Duplicate("fenced-boot"))
        assert c2.listed("b1", "s1", 9) == (c2, Duplicate("fenced-boot"))

    def test_inventories(self) -> None:
        c = Cursor("b", "s", 4)
        assert c.listed("b", "s", 3) == (c, Duplicate())
        assert c.listed("b", "s", 9) == (Cursor("b", "s", 9), Next())
        after, v = c.listed("b2", "s2", -1)
        assert (after.seq, v) == (-1, Reset("b"))
        assert after.advance("b2", "s2", 0)[1] == Next()

    def test_ended_lives_are_bounded(self) -> None:
        c = Cursor()
        for i in range(f.LIVES_MAX + 10):
            c, _ = c.advance(f"b{i}", f"s{i}", 0)
        assert len(c.old_boots) == f.LIVES_MAX

    @given(st.integers(1, 40), st.integers(0, 2**32), st.integers(2, 4))
    def test_any_order_folds_each_frame_once(self, n: int, seed: int, boots: int) -> None:
        """Go back N, with losses and doubles: whatever the network does, what is folded is each life's 0, 1, 2, …"""
        rnd = random.Random(seed)
        cursor, folded = Cursor(), []
        for b in range(boots):
            want, sent = 0, [(f"b{b}", f"s{b}", i) for i in range(n)]
            late = [(f"b{rnd.randrange(b + 1)}", "x", rnd.randrange(n)) for _ in range(3)] if b else []
            while want < n:
                window = sent[want : want + 8]
                rnd.shuffle(window)
                for frame in window[rnd.randrange(2) :] + window[:2] + [x for x in late if x[0] != f"b{b}"]:
                    cursor, verdict = cursor.advance(*frame)
                    match verdict:
                        case Next() | Reset():
                            folded.append(frame)
                        case f.Gap(expect_seq=e):
                            assert e == want if cursor.boot == f"b{b}" else e == 0
                        case Duplicate():
                            pass
                    want = cursor.seq + 1 if cursor.boot == f"b{b}" else 0
        assert folded == [(f"b{b}", f"s{b}", i) for b in range(boots) for i in range(n)]


class TestFold:
    def test_add_drop_and_repeating(self) -> None:
        world: dict[Place, str] = {}
        changes, notes = f.fold(world, add(1, 2))
        assert changes == [Change(place(1), None, "committed"), Change(place(2), None, "committed")]
        assert notes == []
        f.apply(world, changes)
        assert f.fold(world, add(1, 2)) == ([], [])
        drop = Drop(ns=NS, gen=1, keys=k(1, 3), tier="hbm", reason="ttl")
        changes, notes = f.fold(world, drop)
        assert (changes, notes) == ([Change(place(1), "committed", None)], [f.UnknownKey(place(3))])
        twice = Drop(ns=NS, gen=1, keys=k(1, 1), tier="hbm", reason="ttl")
        assert len(f.fold(world, twice)[0]) == 1

    def test_notes_about_the_namespace(self) -> None:
        assert f.fold({}, add(1), {NS: 2})[1] == [f.StaleGeneration(NS, 1, 2, 1)]
        assert len(f.fold({}, add(1), {NS: 2})[0]) == 1
        assert f.fold({}, add(1, 2, ns=OTHER), {NS: 2})[1] == [f.Unclaimed(OTHER, 2)]
        assert f.fold({}, add(1), {NS: 1})[1] == []

    def test_adds(self) -> None:
        item = Adds(ns=NS, gen=1, keys=k(1, 5), parents=k(0, 4), tier="dram", tokens=16, bytes=1)
        assert [c.place.tier for c in f.fold({}, item)[0]] == ["dram", "dram"]

    def test_move(self) -> None:
        world = {place(1): "committed"}
        changes, notes = f.fold(world, Move(ns=NS, gen=1, keys=k(1, 2), from_="hbm", to="ssd"))
        assert notes == [f.UnknownKey(place(2))]
        f.apply(world, changes)
        assert world == {place(1, "ssd"): "committed", place(2, "ssd"): "committed"}
        assert f.fold(world, Move(ns=NS, gen=1, keys=k(1), from_="ssd", to="ssd")) == ([], [])

    def test_states(self) -> None:
        world = {place(1): "committed"}

        def state(to: str, n: int = 1) -> list[f.Note]:
            changes, notes = f.fold(world, State(ns=NS, gen=1, keys=k(n), tier="hbm", state=to))
            f.apply(world, changes)
            return notes

        assert state("committed", 9) == [f.UnknownKey(place(9))]
        assert state("referenced") == []
        assert f.fold(world, add(1)) == ([], [])  # announcing again does not end the reference
        assert state("transferring") == [f.IllegalTransition(place(1), "referenced", "transferring")]
        assert state("evicting") == [f.IllegalTransition(place(1), "referenced", "evicting")]
        assert state("quarantined") == [f.IllegalTransition(place(1), "referenced", "quarantined")]
        assert state("committed") == []
        assert state("quarantined") == []
        assert f.fold(world, add(1)) == ([], [])
        assert world[place(1)] == "quarantined"
        assert state("evicting") == []
        f.apply(world, f.fold(world, add(1))[0])
        assert world[place(1)] == "committed"

    def test_clear(self) -> None:
        world = {place(1): "committed", place(2, "dram"): "committed", place(3, gen=2): "committed"}
        assert {c.place for c in f.fold(world, Clear(tiers=("hbm",)))[0]} == {place(1), place(3, gen=2)}
        assert {c.place for c in f.fold(world, Clear(tiers=("hbm",), ns=NS, gen_upto=1))[0]} == {place(1)}
        assert f.fold(world, Clear(tiers=("hbm",), ns=OTHER))[0] == []
        changes, notes = f.fold(world, Clear())
        assert changes == []
        assert isinstance(notes[0], f.Unverified)

    def test_what_does_not_place(self) -> None:
        use = Use(
            ns=NS, gen=1, head=None, hit_tokens=0, tiers={}, prompt_tokens=1, saved_ms=0.0, measured=False, request="r"
        )
        load = Load(queue_ms=0.0, running=0, prefill_curve=(0.0, 0.0), measured=True)
        mark = Mark(tier="hbm", used=0, capacity=1, high=0.9, low=0.8)
        assert [f.fold({}, i) for i in (use, load, mark)] == [([], [])] * 3
        assert f.fold({}, Gap(since=0.0, reason="ring"))[1] == [f.Unverified(f.TIERS, "ring")]

    def test_reset_takes_what_is_volatile(self) -> None:
        changes, notes = f.reset({place(1): "committed", place(2, "ssd"): "committed"})
        assert [c.place for c in changes] == [place(1)]
        assert notes == [f.Unverified(("ssd", "remote"), "boot")]


numbers = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True)
tiers = st.sampled_from(["hbm", "dram", "ssd"])
items: st.SearchStrategy[Item] = st.one_of(
    st.builds(lambda n, t: add(*n, tier=t), numbers, tiers),
    st.builds(lambda n, t: Drop(ns=NS, gen=1, keys=k(*n), tier=t, reason="value"), numbers, tiers),
    st.builds(lambda n, a, b: Move(ns=NS, gen=1, keys=k(*n), from_=a, to=b), numbers, tiers, tiers),
    st.builds(lambda t: Clear(tiers=(t,)), tiers),
)


@given(st.lists(items, max_size=20))
def test_fold_of_the_deltas_is_the_snapshot(history: list[Item]) -> None:
    """fold(before, deltas) = snapshot after; and folding a snapshot's diff gives the snapshot."""
    world: dict[Place, str] = {}
    truth: set[Place] = set()
    for item in history:
        match item:
            case Add():
                truth |= {Place(item.tier, NS, 1, 0, x) for x in f.unpack(item.keys)}
            case Drop():
                truth -= {Place(item.tier, NS, 1, 0, x) for x in f.unpack(item.keys)}
            case Move():
                if item.from_ != item.to:
                    truth -= {Place(item.from_, NS, 1, 0, x) for x in f.unpack(item.keys)}
                    truth |= {Place(item.to, NS, 1, 0, x) for x in f.unpack(item.keys)}
            case Clear():
                truth = {p for p in truth if p.tier not in item.tiers}
            case _:
                pytest.fail("not generated")
        before = dict(world)
        changes, _ = f.fold(world, item)
        assert world == before
        assert all(world.get(c.place) == c.before != c.after for c in changes)
        f.apply(world, changes)
    assert set(world) == truth
