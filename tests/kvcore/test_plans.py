"""What a plan holds, what its hash covers, and when what was found has drifted from it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvcore.plans import (
    SAMPLE,
    Blocker,
    Cell,
    Options,
    PlanInput,
    Requester,
    Selector,
    Target,
    closed,
    confirm_phrase,
    confirmed,
    drifted,
    fields_of,
    inseparable,
    plan_freeze,
    plan_from_json,
    plan_to_json,
    width,
)

ME = Requester(ref="u1", tenant="nuri-bank")


def cell(owner: int = 1, tier: str = "dram", size: int = 100, **changes: object) -> Cell:
    made = Cell(
        owner=owner, node=f"n{owner}", source="engine", tier=tier, boot="b", stream="s", seq=4, blocks=size // 10,
        bytes=size,
    )  # fmt: skip
    return replace(made, **changes)


def target(ns: str = "aa", tenant: str = "nuri-bank", **changes: object) -> Target:
    return replace(Target(ns=ns * 32, gen_upto="3", tenant=tenant, cells=(cell(),)), **changes)


def asked(*targets: Target, **changes: object) -> PlanInput:
    made = PlanInput(
        kind="deletion", selector=Selector(session="s-1"), targets=targets or (target(),), requester=ME,
        totals={"dram": 100_000, "ssd": 100_000},
    )  # fmt: skip
    return replace(made, **changes)


def test_a_plan_counts_and_lives_for_a_quarter_of_an_hour() -> None:
    plan = plan_freeze(asked(target(cells=(cell(2, "ssd"), cell(1))), target("bb", cells=(cell(1, seq=9),))), 1000.0)
    assert [(c.owner, c.blocks, c.bytes, c.seq) for c in plan.cells] == [(1, 20, 200, 9), (2, 10, 100, 4)]
    assert (plan.blocks, plan.bytes, plan.risk, plan.expires_at) == (30, 300, "R0", 1900.0)
    assert plan.tenants == ("nuri-bank",)


def test_what_others_read_is_left_out_until_its_group_is_chosen() -> None:
    shared = target("bb", shared_with=("other",), share_group="g1")
    plan = plan_freeze(asked(target(), shared), 0.0)
    assert (len(plan.targets), [t.ns for t in plan.left_out], plan.risk) == (1, ["bb" * 32], "R0")
    plan = plan_freeze(asked(target(), shared, options=Options(share_groups=("g1",))), 0.0)
    assert (len(plan.targets), plan.left_out, plan.risk) == (2, (), "R3")
    assert plan.tenants == ("nuri-bank", "other")


def test_blockers_of_what_goes_are_listed_one_by_one() -> None:
    def made(kind: str, ns: str) -> Blocker:
        return Blocker(kind=kind, ref=kind, ns=ns)  # type: ignore[arg-type]

    ns = "aa" * 32
    found = plan_freeze(
        asked(pins=(made("pin", ns), made("pin", "cc")), leases=(made("key_lease", ns),), holds=(made("hold", ns),),
              transfers=(made("transfer", ns),), options=Options(override_pins=True)), 0.0,
    )  # fmt: skip
    assert [b.kind for b in found.blockers] == ["hold", "key_lease", "pin", "transfer"]
    assert found.risk == "R2"
    assert "pins-overridden" in found.reasons


def test_nodes_out_of_reach_are_named_and_the_sample_is_small() -> None:
    plan = plan_freeze(asked(target(cells=(cell(), cell(2, reachable=False))), sample=("k",) * 200), 0.0)
    assert plan.unreachable == ("n2",)
    assert len(plan.sample) == SAMPLE


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"totals": {"dram": 400}}, "R3"),
        ({"totals": {"dram": 10_000}}, "R2"),
        ({"totals": {}}, "R3"),
        ({"requester": Requester(ref="op")}, "R1"),
        ({"selector": Selector(tenant="nuri-bank")}, "R2"),
        ({"selector": Selector(tenant="nuri-bank", and_=(Selector(subject="x"),))}, "R1"),
        ({"selector": Selector()}, "R3"),
        ({"options": Options(crypto_erase=True)}, "R3"),
        ({"targets": (target(data_class="restricted"),)}, "R3"),
        ({"targets": (target(), target("bb", "other"))}, "R3"),
    ],
)
def test_its_risk_follows_from_what_it_is_made_of(changes: dict[str, object], level: str) -> None:
    assert plan_freeze(asked(**changes), 0.0).risk == level


def test_fields_narrow_each_other() -> None:
    both = Selector(tenant="t", and_=(Selector(data_class="pii", and_=(Selector(older_than=3.0),)),))
    assert fields_of(both) == {"tenant", "class", "older_than"}
    assert width(both) == "older_than"
    assert not closed(both)
    assert closed(Selector(subject="x"))
    assert not closed(Selector(prefix=("aa",)))


@pytest.mark.parametrize("part", [{"older_than": 3.0}, {"prefix": ("aa",)}])
def test_a_part_for_which_whole_namespaces_go_narrows_nothing(part: dict[str, Any]) -> None:
    """What is reached is the same as without it, and so is the risk; also inside `and`."""
    whole = Options(collateral="namespace")
    for wide in (
        Selector(tenant="t"),
        Selector(epoch="m/1"),
        Selector(data_class="pii"),
        Selector(session="s"),
        Selector(),
    ):
        without = plan_freeze(asked(selector=wide, options=whole), 0.0)
        for narrowed in (replace(wide, **part), replace(wide, and_=(Selector(**part),))):
            plan = plan_freeze(asked(selector=narrowed, options=whole), 0.0)
            assert (plan.risk, plan.reasons) == (without.risk, without.reasons)
            assert width(narrowed, "namespace") == width(wide)
    assert width(Selector(tenant="t", **part), "none") == next(iter(part))


@pytest.mark.parametrize(
    ("scope", "selector", "beyond"),
    [
        ("tenant", Selector(subject="x"), "subject"),
        ("label", Selector(label="x", data_class="pii"), ""),
        ("label", Selector(subject="x", session="y"), "session"),
        ("session", Selector(session="y"), ""),
        ("class", Selector(tenant="t"), ""),
    ],
)
def test_what_the_scope_cannot_tell_apart_is_named(scope: str, selector: Selector, beyond: str) -> None:
    assert inseparable(selector, scope) == beyond


def test_the_hash_covers_targets_positions_and_cells_and_nothing_of_the_moment() -> None:
    before = plan_freeze(asked(), 0.0).plan_hash
    assert len(before) == 64
    same = [plan_freeze(asked(), 99.0), plan_freeze(asked(target(cells=(cell(reachable=False),))), 0.0)]
    assert {plan.plan_hash for plan in same} == {before}
    others = [
        asked(target("bb")), asked(target(gen_upto="4")), asked(target(keys="aa", key_count=1)), asked(target(group=1)),
        asked(target(cells=(cell(seq=5),))), asked(target(cells=(cell(boot="c"),))), asked(target(cells=(cell(2),))),
        asked(target(cells=(cell(size=110),))), asked(kind="epoch"), asked(options=Options(grace_seconds=5.0)),
        asked(selector=Selector(session="s-2")), asked(target(tenant="other")),
    ]  # fmt: skip
    assert len({before, *(plan_freeze(one, 0.0).plan_hash for one in others)}) == 1 + len(others)


def test_a_plan_is_the_same_after_it_was_kept() -> None:
    plan = plan_freeze(asked(target(gen_upto=str(2**63), keys="ab"), lost_hits=0.5), 7.0)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_the_phrase() -> None:
    plan = plan_freeze(asked(target(cells=(cell(size=142_030),))), 0.0)
    assert confirm_phrase(plan) == "delete 14,203 objects"
    assert confirmed(plan, " Delete  14,203 OBJECTS ")
    assert not confirmed(plan, "delete 14203 objects")


def test_what_is_added_goes_too_and_is_shown() -> None:
    plan = plan_freeze(asked(target(cells=(cell(size=1000),))), 0.0)
    drift = drifted(plan, asked(target(cells=(cell(size=1010), cell(2, size=40)))))
    assert [(c.owner, c.blocks, c.bytes) for c in drift.added] == [(1, 1, 10), (2, 4, 40)]
    assert not drift.replan


@pytest.mark.parametrize(("now", "replan"), [(1050, False), (950, False), (1060, True), (940, True), (0, True)])
def test_beyond_one_in_twenty_it_is_planned_anew(now: int, replan: bool) -> None:
    plan = plan_freeze(asked(target(cells=(cell(size=1000),))), 0.0)
    drift = drifted(plan, asked(target(cells=(cell(size=now),))))
    assert drift.replan is replan
    assert drift.reasons == (("bytes-differ",) if replan else ())


def test_another_tenant_that_enters_is_planned_anew() -> None:
    plan = plan_freeze(asked(), 0.0)
    drift = drifted(plan, asked(target(), target("bb", "other", cells=())))
    assert (drift.tenants_entered, drift.reasons) == (("other",), ("tenant-entered",))


CELLS = st.lists(
    st.builds(lambda n, size: cell(n, "dram" if n % 2 else "ssd", size), st.integers(1, 5), st.integers(0, 400)),
    max_size=5,
).map(tuple)
TARGETS = st.lists(
    st.builds(target, st.sampled_from(["aa", "bb", "cc"]), st.sampled_from(["t", "u"]), cells=CELLS),
    min_size=1,
    max_size=4,
)


@given(TARGETS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_a_plan_does_not_drift_from_itself_in_whatever_order_it_was_found(
    targets: list[Target], chance: object
) -> None:
    plan = plan_freeze(asked(*targets), 0.0)
    mixed = list(targets)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    drift = drifted(plan, asked(*mixed))
    assert (drift.added, drift.replan, drift.bytes_now) == ((), False, plan.bytes)
    assert plan_freeze(asked(*mixed), 5.0).plan_hash == plan.plan_hash
    assert plan_from_json(plan_to_json(plan)) == plan
