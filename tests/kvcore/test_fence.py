"""Each rule of the fence by example."""

from kvcore.fence import (
    Cleared,
    Collapsed,
    Copy,
    Effect,
    Fenced,
    Heard,
    Listed,
    Message,
    Op,
    Ordered,
    Receipted,
    apply,
    gone,
    uncertain,
    visible,
)


def after(*messages: Message, copy: Copy | None = None) -> tuple[Copy, list[Effect]]:
    copy, effects = copy or Copy(gen=1), []
    for m in messages:
        copy, more = apply(copy, m)
        effects += more
    return copy, effects


def heard(boot: int, seq: int, op: Op) -> Heard:
    return Heard((boot, seq), op)


ADDED = heard(1, 0, Op.ADD)


def test_a_block_comes_and_goes() -> None:
    copy, _ = after(ADDED)
    assert visible(copy)
    assert not gone(copy)
    copy, _ = after(heard(1, 1, Op.OTHER), heard(1, 2, Op.REMOVE), copy=copy)
    assert not visible(copy)
    assert gone(copy)


def test_rule_1_an_ended_boot_is_late_and_a_new_one_wipes_what_is_volatile() -> None:
    copy, effects = after(ADDED, heard(2, 0, Op.OTHER))
    assert gone(copy)
    copy, effects = after(heard(1, 1, Op.ADD), copy=copy)
    assert gone(copy)
    assert effects == [Effect.LATE]


def test_rule_1_a_persistent_store_is_uncertain_until_listed() -> None:
    copy, effects = after(ADDED, copy=Copy(gen=1, persistent=True))
    assert effects == [Effect.LIST]
    assert not visible(copy)
    copy, _ = after(Listed((1, 0), True), copy=copy)
    assert visible(copy)
    copy, _ = after(heard(2, 0, Op.OTHER), copy=copy)
    assert (visible(copy), gone(copy), uncertain(copy)) == (False, False, True)
    copy, effects = after(Listed((2, -1), True), copy=copy)
    assert effects == [Effect.LATE]
    assert gone(after(Listed((2, 0), False), copy=copy)[0])
    assert visible(after(Listed((2, 0), True), copy=copy)[0])


def test_rule_2_numbers_grow() -> None:
    copy, effects = after(ADDED, heard(1, 1, Op.REMOVE), ADDED)
    assert gone(copy)
    assert effects == [Effect.LATE]


def test_rule_3_a_clear_that_overtakes_the_stream() -> None:
    copy, effects = after(Cleared((1, 1)), ADDED)
    assert not visible(copy)
    assert effects == [Effect.SUPPRESSED]
    assert visible(after(heard(1, 1, Op.CLEAR), heard(1, 2, Op.ADD), copy=copy)[0])


def test_rule_4_an_order_hides_at_once() -> None:
    copy, _ = after(ADDED, Ordered(), heard(1, 1, Op.ADD))
    assert not visible(copy)
    assert not gone(copy)


def test_rule_5_the_echo_of_deleted_data() -> None:
    copy, effects = after(Ordered(), Receipted((1, 3)), ADDED)
    assert effects == [Effect.SUPPRESSED]
    assert gone(copy)
    copy, _ = after(*(heard(1, n, Op.OTHER) for n in (1, 2, 3)), heard(1, 4, Op.ADD), copy=copy)
    assert visible(copy)


def test_rule_6_a_fenced_generation_is_never_shown_and_opens_a_redelete() -> None:
    copy, effects = after(ADDED, Fenced(2))
    assert effects == [Effect.REDELETE]
    assert not visible(copy)
    assert not gone(copy)
    copy, effects = after(Fenced(1), heard(1, 1, Op.ADD), copy=copy)
    assert effects == [Effect.REDELETE]
    assert not visible(copy)
    assert after(Listed((1, 1), True), copy=copy)[1] == [Effect.REDELETE]


def test_rule_7_nothing_is_folded_beyond_a_gap() -> None:
    copy, effects = after(ADDED, heard(1, 3, Op.ADD), heard(1, 2, Op.REMOVE), heard(1, 2, Op.REMOVE))
    assert effects == [Effect.REPLAY, Effect.REPLAY, Effect.LATE]
    assert (visible(copy), gone(copy), uncertain(copy)) == (False, False, True)
    copy, _ = after(heard(1, 1, Op.OTHER), copy=copy)
    assert visible(copy)
    assert copy.at == (1, 3)
    held, _ = after(ADDED, heard(1, 4, Op.ADD), heard(1, 2, Op.REMOVE))
    listed, _ = after(Listed((1, 3), False), copy=held)
    assert visible(listed)


def test_rule_8_tombstones_collapse_into_a_fence() -> None:
    copy, _ = after(ADDED, Ordered(), Receipted((1, 0)), Collapsed())
    assert copy == Copy(gen=1, min_gen=2)
    assert not visible(after(ADDED, copy=copy)[0])
