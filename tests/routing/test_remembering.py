import uuid

import msgspec

from kvcore.policies import built_in
from routing.recorder import Outcome
from routing.remembering import Memory
from tests.routing.deciding import Stand, worker


def test_a_hot_beginning_is_told_only_above_what_the_cap_is_about():
    memory, policy = Memory(), built_in()
    head = b"h" * 64
    for i in range(50):
        hot = memory.hot("m", head + i.to_bytes(8, "little"), policy, 4)
    assert hot[0] > 0.9
    assert 4 <= hot[1] <= 8
    assert memory.hot("m", b"other---" * 3, policy, 4) == (0.0, 0)
    assert memory.hot("m", head, built_in("random"), 4) == (0.0, 0), "no cap, nothing to tell"
    assert memory.hot("m", b"", policy, 4) == (0.0, 0)


def test_sessions_are_the_tenants_and_the_oldest_is_forgotten(monkeypatch):
    from routing import remembering

    monkeypatch.setattr(remembering, "SESSIONS_MOST", 2)
    memory, one, two = Memory(), uuid.uuid4(), uuid.uuid4()
    memory.wrote(one, "s", "n1", 5)
    memory.wrote(two, "s", "n2", 6)
    assert memory.session(one, "s") == ("n1", 5)
    assert memory.session(two, "s") == ("n2", 6)
    memory.wrote(one, "s2", "n3", 1)
    assert memory.session(one, "s") is None
    memory.wrote(one, "", "n3", 1)
    assert memory.session(one, "") is None


def test_only_trusted_outcomes_teach():
    stand = Stand(worker("a", load={"queue_ms": 0.0}))
    heard = []
    stand.recorder.learn = lambda made, ms: heard.append(ms)
    for trusted in (False, True):
        answer = stand.route()
        sent = stand.recorder.recent[uuid.UUID(answer.decision_id)]
        sent.made = msgspec.structs.replace(sent.made, trusted=trusted)
        told = Outcome(sent.made.at, 50.0, {}, 0)
        assert stand.recorder.outcome(uuid.UUID(answer.decision_id), "g1", told) == ""
    assert heard == [50.0]


def test_outcomes_change_what_is_expected_once_there_are_enough():
    stand = Stand(worker("a", load={"queue_ms": 10.0}))
    answer = stand.route()
    before = answer.predicted.ttft_ms
    sent = stand.recorder.recent[uuid.UUID(answer.decision_id)]
    for _ in range(400):
        stand.router.memory.learn(sent.made, before * 1.5)
    assert stand.router.memory.learned.version > 0
    stand.take(worker("a", load={"queue_ms": 10.0}))
    assert stand.route().predicted.ttft_ms > before * 1.2
