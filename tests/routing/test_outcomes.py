import asyncio
import uuid
from datetime import UTC, datetime

import pytest

from kvconsole.infra import sql
from routing.codes import Refusal
from routing.lost_hits import lost_of
from routing.outcomes import MS_MOST, Outcomes, outcome_of
from routing.recorder import Recorder
from tests.routing.deciding import Stand, worker

NOW = datetime(2026, 11, 30, tzinfo=UTC)
JSON, PACKED = b"application/json", b"application/msgpack"


def test_figures_are_clamped_and_a_sum_stands_for_what_was_not_said():
    found = outcome_of(b'{"ttft_ms": 1e12, "hit_tokens": 99999999}', JSON, now=NOW)
    assert (found.ttft_ms, found.hit_tokens) == (MS_MOST, 2**20)
    found = outcome_of(b'{"terms": {"prefill": 3, "queue_p": 2.5}}', JSON, now=NOW)
    assert (found.ttft_ms, found.terms) == (5.5, {"prefill": 3.0, "queue_p": 2.5})
    assert found.hit_tokens is None, "what was not measured is not 0"


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"{}", JSON, "outcome-invalid"), (b'{"ttft_ms": -1}', JSON, "outcome-invalid"),
        (b'{"ttft_ms": "x"}', JSON, "outcome-invalid"), (b'{"ttft_ms": 1, "hit_tokens": -1}', JSON, "outcome-invalid"),
        (b'{"terms": {"magic": 1}}', JSON, "outcome-invalid"), (b'{"ttft_ms": 1, "x": 1}', JSON, "unknown-field"),
        (b"{", JSON, "bad-request"), (b"{}", b"text/html", "unsupported-media-type"),
        (b"\x81\xa7ttft_ms\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", PACKED, "outcome-invalid"),
    ],
)  # fmt: skip
def test_what_is_no_outcome_is_refused(body, kind, code):
    with pytest.raises(Refusal) as e:
        outcome_of(body, kind, now=NOW)
    assert e.value.code == code


@pytest.mark.parametrize(
    ("short", "pointer"),
    [
        ('[{"cause": "timeout", "tokens": 1}], "hit_tokens": null', "/hit_tokens"),
        ('[{"cause": "magic", "tokens": 1}], "hit_tokens": 0', "/short/0/cause"),
        ('[{"cause": "timeout", "tokens": 1}, {"cause": "timeout", "tokens": 0}], "hit_tokens": 0', "/short/1/tokens"),
        ('[{"cause": "timeout", "tokens": 9999999}], "hit_tokens": 0', "/short/0/tokens"),
        (f'[{", ".join(["{}"] * 17)}], "hit_tokens": 0'.replace("{}", '{"cause": "timeout", "tokens": 1}'), "/short"),
        ('[{"cause": "timeout", "tokens": 1.5}], "hit_tokens": 0', ""),
        ('[{"cause": "timeout"}], "hit_tokens": 0', ""),
    ],
)
def test_what_fell_short_is_a_cause_and_tokens(short, pointer):
    with pytest.raises(Refusal) as e:
        outcome_of(f'{{"ttft_ms": 1, "short": {short}}}'.encode(), JSON, now=NOW)
    assert (e.value.code, e.value.pointer) == ("outcome-invalid", pointer)


def test_no_more_fell_short_than_could_have_been_reused(transactional_db):
    stand = Stand(worker("a", load={}))
    stand.holds("a", 40)
    known, table = (uuid.UUID(stand.route(holder="g").decision_id) for _ in range(2))
    with sql.connect("router") as cx:
        stand.recorder.write(cx)
    here, other = Outcomes(stand.recorder), Outcomes(Recorder("another"))

    def code(outcomes, which, tokens):
        body = f'{{"ttft_ms": 5, "hit_tokens": 0, "short": [{{"cause": "rate-limit", "tokens": {tokens}}}]}}'
        try:
            asyncio.run(outcomes.take(which, "g", outcome_of(body.encode(), JSON, now=datetime.now(UTC))))
        except Refusal as e:
            return e.code
        return ""

    for outcomes, which in ((here, known), (other, table)):
        most = short_room(stand.recorder.recent[which].made)
        assert most > 0
        assert code(outcomes, which, most + 1) == "outcome-invalid"
        assert code(outcomes, which, most) == ""
    with sql.connect("router") as cx:
        stand.recorder.write(cx)
        kept = cx.execute("SELECT measured FROM routing_decision").fetchall()
    assert kept == [({"short": [{"cause": "rate-limit", "tokens": most}]},)] * 2
    here.close()
    other.close()


def short_room(made):
    return lost_of(made, answer="hit", hit_tokens=0).available


def test_a_decision_of_a_former_life_is_found_in_the_table(transactional_db):
    stand = Stand(worker("a", load={}))
    decision = uuid.UUID(stand.route(holder="g1").decision_id)
    with sql.connect("router") as cx:
        stand.recorder.write(cx)
    other = Outcomes(Recorder("another"))
    told = outcome_of(b'{"ttft_ms": 5, "hit_tokens": 9999}', JSON, now=datetime.now(UTC))

    def code(holder, which=decision):
        try:
            asyncio.run(other.take(which, holder, told))
        except Refusal as e:
            return e.code
        return ""

    assert code("g2") == code("g1", uuid.uuid4()) == "not-found"
    assert code("g1") == ""
    assert code("g1") == "outcome-known"
    with sql.connect("router") as cx:
        assert cx.execute("SELECT measured_ms, hit_tokens FROM routing_decision").fetchall() == [(5.0, 643)]
    other.close()
