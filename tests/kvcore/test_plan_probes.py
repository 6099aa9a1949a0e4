"""Who else looks, how often somebody is asked, and that nothing waits for whoever does not see."""

from msgspec.structs import replace

from kvcore.plan_probes import PATIENCE_SECONDS, PROBES_MOST, probers
from kvcore.plan_state import conditions, finalizers_left
from tests.kvcore.world import World, intent, owner

HERE = "127.0.0.1"


def fleet(tier: str = "dram", nodes: int = 3, **changes: object) -> World:
    """One owner that holds something, and others that hold nothing."""
    rest = [owner(n, tier, blocks=0, host=HERE) for n in range(2, nodes + 1)]
    return World([owner(1, tier, host=HERE, **changes), *rest], intent(crypto_erase=False))


def until_probe(world: World) -> None:
    """Everything is done but the probes, in no time."""
    now = world.seen.now
    while wish := next((one for one in world.wishes if one.kind != "probe"), None):
        world.answer(wish)
        world.set(now=now)


def probed(world: World) -> str:
    return next(one.status for one in conditions(world.intent, world.seen) if one.type == "Probed")


def test_memory_is_looked_at_from_its_machine_and_a_shared_store_by_who_has_a_share() -> None:
    mine, near, far = owner(1, host="a"), owner(2, host="a"), owner(3, host="b")
    gone, left = owner(4, host="a", reachable=False), owner(5, host="a", retired=True)
    assert probers(mine, [mine, near, far, gone, left]) == ("node-2",)
    assert probers(owner(1), [owner(1), owner(2)]) == (), "nobody knows where it is"
    stores = [owner(1, "remote"), owner(2, "remote"), owner(3, "dram")]
    assert probers(stores[0], stores) == ("node-2",)
    assert probers(owner(1, "ssd", host="a"), [near]) == (), "what is encrypted there is judged by its keys"


def test_a_second_node_is_asked_once_the_look_is_clean_and_before_the_end() -> None:
    world = fleet()
    assert "probe" not in {kind for kind, _ in world.kinds()}
    until_probe(world)
    (wish,) = world.wishes
    assert (wish.kind, wish.owner, wish.node) == ("probe", 1, "node-2")
    assert probed(world) == "false"
    assert finalizers_left(world.intent, world.seen) == ("catalog",)
    world.answer(wish)
    assert (world.wishes, probed(world)) == ([], "true")
    assert finalizers_left(world.intent, world.seen) == ()


def test_whoever_does_not_see_it_is_passed_over_and_nobody_is_asked_for_ever() -> None:
    world = fleet(nodes=6)
    until_probe(world)
    asked = []
    while world.wishes:
        asked.append(world.wishes[0].node)
        world.answer(world.wishes[0], "refused")
    assert asked == [f"node-{n}" for n in range(2, 2 + PROBES_MOST)]
    assert finalizers_left(world.intent, world.seen) == ()


def test_who_does_not_answer_is_not_waited_for() -> None:
    world = fleet()
    until_probe(world)
    world.set(now=world.seen.now + PATIENCE_SECONDS + 2)
    assert (world.wishes, probed(world)) == ([], "true")


def test_nothing_is_probed_where_nothing_was_or_only_its_keys_count() -> None:
    for world in (fleet("ssd"), fleet(blocks=0, total_bytes=0)):
        until_probe(world)
        assert world.wishes == []


def test_after_another_look_somebody_looks_again() -> None:
    world = fleet()
    until_probe(world)
    world.answer(world.wishes[0])
    steps = tuple(replace(s, bad=s.kind in ("erase", "verify") and s.owner == 1) for s in world.seen.steps)
    world.set(steps=steps, now=world.seen.now + 100)
    until_probe(world)
    (wish,) = world.wishes
    assert (wish.kind, wish.attempt) == ("probe", 1)
