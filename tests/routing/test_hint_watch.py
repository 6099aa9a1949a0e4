"""What was announced came if a router saw it in time; what nobody watched all the time is neither right nor wrong."""

import hashlib
import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from kvconsole.infra import sql
from kvconsole.infra.sql import uuid7
from routing.hint_watch import KEPT, Watcher, announcements_judge
from routing.hints import trust_view
from routing.models import Announcement, TrustDay, Watch

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
NOW = datetime.now(UTC)
TENANT, OTHER = uuid.uuid4(), uuid.uuid4()
SPACE, SESSION = b"n" * 32, hashlib.sha256(b"s1").digest()
PRINTS = b"".join(bytes([n]) * 8 for n in range(1, 9))


def announced(kind="tool", *, about=None, blocks=0, said=-10.0, lasts=36.0, tenant=TENANT, namespace=None):
    return Announcement.objects.create(
        id=uuid7(), tenant_id=tenant, kind=kind, about=SESSION if about is None else about, blocks=blocks,
        namespace=namespace, said_at=NOW + timedelta(seconds=said), until=NOW + timedelta(seconds=said + lasts),
        believed=0.5, effect="nothing", reason="", bytes=0, pins=[], operation=None, state="open",
    ).id  # fmt: skip


class Clock:
    now = NOW

    def __call__(self):
        return self.now


def watcher(router="r1", since=-600.0):
    clock = Clock()
    clock.now = NOW + timedelta(seconds=since)
    return Watcher(router, clock=clock)


def tell(one, at=0.0):
    with sql.connect("router") as cx:
        one.write(cx, NOW + timedelta(seconds=at))


def judged(at=0.0):
    return announcements_judge(now=NOW + timedelta(seconds=at))


def state(one):
    return Announcement.objects.get(id=one).state


def see(one, *, tenant=TENANT, session="s1", namespace=SPACE, prints=b"", at=1.0):
    one._clock.now = NOW + timedelta(seconds=at)
    one.saw(tenant=tenant, session=session, namespace=namespace, prints=prints)


def test_a_session_that_comes_back_in_time_came():
    one, router = announced(), watcher()
    tell(router)
    see(router)
    tell(router, 1)
    assert judged(2) == {"came": 1}
    assert state(one) == "came"
    trust = trust_view(tenant=TENANT, now=NOW)
    assert (trust.came, trust.missed) == (1, 0)


def test_what_did_not_come_while_a_router_watched_was_missed():
    one, router = announced(), watcher()
    tell(router)
    see(router, tenant=OTHER)
    see(router, session="s2")
    assert judged(20) == {}, "it may still come"
    tell(router, 30)
    assert judged(32) == {"missed": 1}
    assert (state(one), TrustDay.objects.get().missed) == ("missed", 1)


def test_what_comes_too_late_did_not_come():
    one, router = announced(), watcher()
    tell(router)
    see(router, at=27.0)
    tell(router, 28)
    judged(32)
    assert state(one) == "missed"


@pytest.mark.parametrize("since", [None, -5.0])
def test_what_nobody_watched_all_the_time_is_neither(since):
    one = announced()
    if since is not None:
        router = watcher(since=since)  # it began after that was said
        tell(router)
        tell(router, 30)
    assert judged(32) == {"unseen": 1}
    assert state(one) == "unseen"
    assert not TrustDay.objects.exists()


def test_where_one_of_two_routers_did_not_watch_nobody_knows():
    announced()
    old, young = watcher(), watcher("r2", since=-1.0)
    for router in (old, young):
        tell(router)
        tell(router, 30)
    assert judged(32) == {"unseen": 1}


def test_a_router_that_fell_silent_before_the_end_did_not_watch():
    announced()
    tell(watcher(), 10)
    assert judged(32) == {"unseen": 1}


def test_a_prefix_came_if_a_prompt_begins_with_it():
    last = PRINTS[24:32]
    one = announced("prefix", about=last, blocks=4, namespace=SPACE)
    elsewhere = announced("prefix", about=last, blocks=3, namespace=SPACE)
    foreign = announced("prefix", about=last, blocks=4, namespace=b"x" * 32)
    router = watcher()
    tell(router)
    see(router, session="", prints=PRINTS[:24])
    see(router, session="", prints=PRINTS)
    tell(router, 2)
    tell(router, 30)
    judged(32)
    assert [state(x) for x in (one, elsewhere, foreign)] == ["came", "missed", "missed"]


def test_what_is_said_a_hundred_times_counts_once():
    for _ in range(100):
        announced()
    router = watcher()
    tell(router)
    see(router)
    tell(router, 1)
    assert judged(2) == {"came": 100}
    assert TrustDay.objects.get().came == 1


def test_it_is_judged_once_and_forgotten_later():
    one, router = announced(), watcher()
    tell(router)
    see(router)
    tell(router, 1)
    assert [judged(2), judged(2)] == [{"came": 1}, {}]
    judged((KEPT + timedelta(minutes=1)).total_seconds())
    assert not Announcement.objects.filter(id=one).exists()
    assert not Watch.objects.exists()


def test_a_router_that_cannot_hold_all_of_them_does_not_watch(monkeypatch):
    monkeypatch.setattr("routing.hint_watch.MOST", 1)
    announced()
    announced(about=b"y" * 32)
    router = watcher()
    tell(router)
    assert router.since == NOW


def test_its_thread_tells_and_begins_to_watch_anew_after_postgresql_was_away(monkeypatch):
    monkeypatch.setattr("routing.hint_watch.TELL_SECONDS", 0.05)
    now = datetime.now(UTC)
    one = announced(said=-1.0)
    router = Watcher("r1")
    began, failures = router.since, []
    real = sql.connect

    def away(role):
        if len(failures) < 2:
            failures.append(role)
            raise OSError("away")
        return real(role)

    monkeypatch.setattr("routing.hint_watch.sql.connect", away)
    router.start()
    try:
        deadline = time.monotonic() + 20
        while not Watch.objects.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        router.saw(tenant=TENANT, session="s1", namespace=SPACE, prints=b"")
    finally:
        router.close()
    assert Watch.objects.get().since > began
    assert Announcement.objects.get(id=one).came_at >= now
