from datetime import UTC, datetime

import pytest

from kvconsole.infra import sql
from kvconsole.infra.live import difference, fold, resolve
from routing import recorder as recording
from routing.live import ROLES, SHOWN, decisions_view
from tests.routing.deciding import Stand, worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_topic_is_the_fleets():
    kind, argument = resolve("decisions")
    assert (kind.name, argument, kind.roles) == ("decisions", "", ROLES)
    assert not ROLES & {"tenant-admin", "tenant-member", "gateway"}
    assert resolve("decisions:mine") is None


def test_the_newest_are_shown_and_what_was_not_is_counted_exactly(monkeypatch):
    monkeypatch.setattr(recording, "QUEUE_MOST", SHOWN + 5)
    monkeypatch.setattr(recording, "FULL_RATE", 10**6)
    stand = Stand(worker("a", load={}))
    for _ in range(SHOWN + 9):
        stand.route()
    with sql.connect("router") as cx:
        stand.recorder.write(cx)
        stand.recorder.write(cx)
    view = decisions_view("", datetime.now(UTC))
    assert len(view["decisions"]) == SHOWN
    numbers = view["numbers"]["all"]
    assert numbers["made"] == SHOWN + 9
    assert numbers["recorded"] + numbers["dropped"] + numbers["sampled_out"] == numbers["made"]
    assert numbers["dropped"] == 4
    stand.route()
    with sql.connect("router") as cx:
        stand.recorder.write(cx)
    after = decisions_view("", datetime.now(UTC))
    assert fold(view, difference(view, after)) == after
