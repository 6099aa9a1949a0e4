"""Every token between what could have been reused and what was has a cause, and none has two."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcore.lost_hits import (
    CAUSES,
    OF_FILTER,
    Cause,
    Limit,
    Reach,
    Short,
    cause_named,
    cause_of_code,
    column,
    gap,
    limits_of,
)

TOKENS = st.integers(0, 100_000)
LIMITS = st.lists(st.builds(Limit, st.sampled_from(CAUSES), TOKENS), max_size=8)
REACHES = st.lists(st.builds(Reach, TOKENS, st.sampled_from(["", "odd", *OF_FILTER])), max_size=8)
SHORTS = st.lists(st.builds(Short, st.sampled_from([*(c.value for c in CAUSES), "odd"]), TOKENS), max_size=4)


def lost(**said):
    available, limits = limits_of(**{"reaches": [], **{k: v for k, v in said.items() if k != "achieved"}})
    found = gap(available=available, limits=limits, achieved=said["achieved"])
    assert found.available == found.achieved + sum(tokens for _, tokens in found.lost)
    return {cause.value: tokens for cause, tokens in found.lost}


@given(TOKENS, LIMITS, TOKENS)
def test_the_gap_is_the_sum_of_its_causes(available, limits, achieved):
    found = gap(available=available, limits=limits, achieved=achieved)
    assert found.achieved + sum(tokens for _, tokens in found.lost) == available
    assert found.achieved + found.beyond == achieved
    assert all(tokens > 0 for _, tokens in found.lost)


@given(st.integers(0, 9_000), REACHES, TOKENS, st.sampled_from([None, *CAUSES]), SHORTS, TOKENS)
def test_whatever_is_known_of_a_decision_the_sum_holds(written, reaches, planned, barred, short, achieved):
    lost(written=written, reaches=reaches, planned=planned, barred=barred, short=short, achieved=achieved)


@pytest.mark.parametrize(("reason", "cause"), list(OF_FILTER.items()))
def test_what_a_filtered_candidate_alone_holds_goes_to_its_reason(reason, cause):
    reaches = [Reach(1024, reason), Reach(256)]
    assert lost(reaches=reaches, planned=256, achieved=256) == {cause.value: 768}


def test_layers_of_filtered_candidates_have_each_their_reason():
    reaches = [Reach(1000, "rights"), Reach(700, "health"), Reach(400), Reach(300, "quota")]
    assert lost(reaches=reaches, planned=100, achieved=100) == {"scope": 300, "timeout": 300, "fetch-not-worth": 300}


def test_what_was_written_and_is_nowhere_was_evicted():
    assert lost(written=800, reaches=[Reach(320)], planned=320, achieved=320) == {"evicted": 480}


def test_what_the_target_did_not_serve_goes_to_what_it_said_and_the_rest_is_unknown():
    short = [Short("target-refused", 100), Short("rate-limit", 50), Short("no such word", 10)]
    assert lost(reaches=[Reach(500)], planned=500, short=short, achieved=300) == {
        "target-refused": 100, "rate-limit": 50, "unknown": 50,
    }  # fmt: skip


def test_a_limited_prefetch_is_the_whole_gap():
    assert lost(reaches=[Reach(4800)], planned=4800, short=[Short("rate-limit", 2400)], achieved=2400) == {
        "rate-limit": 2400
    }


def test_with_the_lease_over_nothing_is_planned_because_of_fences():
    assert lost(reaches=[Reach(512)], planned=0, barred=Cause.FENCE, achieved=0) == {"fence": 512}
    assert lost(written=512, reaches=[], planned=0, barred=Cause.FENCE, achieved=0) == {"fence": 512}


def test_what_was_achieved_is_never_lost_and_what_nobody_knew_of_is_beyond():
    assert lost(reaches=[Reach(512, "rights")], planned=0, achieved=512) == {}
    assert gap(available=100, limits=(), achieved=160).beyond == 60


def test_negative_tokens_are_refused():
    for said in ({"available": -1, "achieved": 0}, {"available": 0, "achieved": -1}):
        with pytest.raises(ValueError, match="fewer"):
            gap(limits=(), **said)


def test_each_cause_has_a_name_and_a_column():
    assert [cause_named(cause.value) for cause in CAUSES] == list(CAUSES)
    assert cause_named("luck") is Cause.UNKNOWN
    assert len({column(cause) for cause in CAUSES}) == 10


def test_what_a_node_says_has_a_cause_and_what_it_refuses_is_the_targets():
    assert cause_of_code("rate-limited") is cause_of_code("quota") is Cause.RATE_LIMIT
    assert cause_of_code("prefill-lost") is cause_of_code("giver-lost") is Cause.TIMEOUT
    assert cause_of_code("offer-unknown") is cause_of_code("not-here") is Cause.EVICTED
    assert cause_of_code("no-room") is Cause.NO_SLACK
    assert cause_of_code("stale-generation") is Cause.FENCE
    assert cause_of_code("ticket-expired") is cause_of_code("block-digest") is Cause.TARGET_REFUSED
