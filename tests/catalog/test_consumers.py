"""The socket: who may open it, what it says, and how a client may speak. A real database and Valkey."""

# ruff: noqa: F811

import asyncio
import json
import time
from datetime import UTC, datetime

import psycopg
import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from channels.sessions import SessionMiddlewareStack
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import connections

from catalog import consumers
from catalog.consumers import websocket_urlpatterns
from kvconsole.infra import live, nudge
from tests.catalog.ingest.conftest import planted, rig  # noqa: F401  (fixtures)
from tests.catalog.ingest.rig import Rig, Sim, add, plant_namespace, plant_node
from tests.conftest import TEST_DATABASE
from tests.tenants.making import a_tenant, a_user

pytestmark = pytest.mark.django_db(transaction=True)
ORIGIN = b"http://127.0.0.1:8000"


def a_session(**fields):
    """A logged-in session: (store, user)."""
    user, store = a_user(**fields), SessionStore()
    store[SESSION_KEY], store[BACKEND_SESSION_KEY] = str(user.pk), "tenants.authentication.LoginBackend"
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.save()
    return store, user


class Socket(ApplicationCommunicator):
    """A browser's end of the socket."""

    async def connect(self):
        await self.send_input({"type": "websocket.connect"})
        answer = await self.receive_output(10)
        return answer["type"] == "websocket.accept", answer.get("code")

    async def send_to(self, *, text_data):
        await self.send_input({"type": "websocket.receive", "text": text_data})

    async def send_json_to(self, message):
        await self.send_to(text_data=json.dumps(message))

    async def receive_from(self, timeout):
        message = await self.receive_output(timeout)
        assert message["type"] == "websocket.send", message
        return message["text"]

    async def disconnect(self):
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(10)


def talk(session=None, *, origin=ORIGIN, host=b"127.0.0.1:8000"):
    headers = [(b"host", host)]
    if origin is not None:
        headers.append((b"origin", origin))
    if session is not None:
        headers.append((b"cookie", f"kvc={session.session_key}".encode()))
    scope = {"type": "websocket", "path": "/ws/live", "query_string": b"", "headers": headers, "subprotocols": []}
    return Socket(SessionMiddlewareStack(URLRouter(websocket_urlpatterns)), scope)


def run(test):
    """The test in a loop of its own; every connection that was opened on the way is closed."""

    async def main():
        try:
            await asyncio.wait_for(test(), 60)
        finally:
            await live.stop()
            await sync_to_async(connections.close_all)()

    asyncio.run(main())


async def said(socket, count=1, timeout=10):
    return [json.loads(await socket.receive_from(timeout)) for _ in range(count)]


async def closed(socket, timeout=10):
    while True:
        message = await socket.receive_output(timeout)
        if message["type"] == "websocket.close":
            return message["code"]


def test_who_is_let_in():
    session, _ = a_session()

    async def test():
        for kw, code in (
            ({"origin": None}, consumers.FORBIDDEN),
            ({"origin": b"null"}, consumers.FORBIDDEN),
            ({"origin": b"http://evil.example"}, consumers.FORBIDDEN),
            ({"origin": b"http://127.0.0.1:8001"}, consumers.FORBIDDEN),
        ):
            assert await talk(session, **kw).connect() == (False, code), kw
        assert await talk(None).connect() == (False, consumers.ENDED)
        socket = talk(session)
        assert (await socket.connect())[0]
        await socket.disconnect()
        proxied = talk(session, origin=b"https://console.example", host=b"console.example")
        assert (await proxied.connect())[0]
        await proxied.disconnect()

    run(test)


def test_snapshot_then_deltas_of_a_real_commit(planted, valkey, monkeypatch):
    monkeypatch.setattr(nudge, "_publisher", nudge._Publisher())
    session, _ = a_session()
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig = Rig(now=datetime.now(UTC).timestamp())
    rig.tick(1.1)

    async def test():
        socket = talk(session)
        await socket.connect()
        await socket.send_json_to({"subscribe": ["tiles", "node:n1", "watermarks", "map:hits"]})
        first = {f["topic"]: f for f in await said(socket, 4)}
        assert first["tiles"]["snapshot"]["nodes"]["n1"]["blocks"] is None
        assert list(first["map:hits"]["snapshot"]) == ["axis", "columns"]
        view, seq = first["tiles"]["snapshot"], first["tiles"]["seq"]

        def commit():
            rig.send(sim.node, sim.frame(add(ns, 1, 2, 3)))
            connections.close_all()  # this thread's

        await asyncio.to_thread(commit)
        await asyncio.to_thread(nudge.wake, nudge.LEDGER, 1)
        while view["nodes"]["n1"]["blocks"] != 3:
            (frame,) = await said(socket)
            if frame["topic"] == "tiles":
                assert frame["seq"] == seq + 1
                view, seq = live.fold(view, frame["delta"]), frame["seq"]
        await socket.send_json_to({"unsubscribe": ["tiles", "node:n1", "watermarks", "map:hits"]})
        await socket.disconnect()

    run(test)
    rig.writer.close()


def test_topics_that_are_not_there_or_not_allowed_answer_alike():
    fleet, _ = a_session()
    tenants, _ = a_session(tenant=a_tenant(), roles=["tenant-admin", "viewer"])

    async def test():
        for session, topics in ((fleet, ["nothing", "node:nobody", "tiles:x"]), (tenants, ["tiles", "node:n1", "x"])):
            socket = talk(session)
            await socket.connect()
            await socket.send_json_to({"subscribe": topics})
            answers = await said(socket, 3)
            assert {a["error"] for a in answers} == {"no-such-topic"}
            assert {a["topic"] for a in answers} == set(topics)
            await socket.disconnect()

    run(test)


def test_when_the_process_has_all_topics_it_may_the_socket_keeps_what_it_has(monkeypatch):
    monkeypatch.setattr(live, "FEEDS_MAX", 2)
    session, _ = a_session()

    async def test():
        socket = talk(session)
        await socket.connect()
        await socket.send_json_to({"subscribe": ["tiles", "node:a", "node:b"]})
        refused = [a for a in await said(socket, 3) if a.get("error") == "too-many-topics"]
        assert [a["topic"] for a in refused] == ["node:b"]
        await asyncio.sleep(0.2)  # nothing is being built any more
        await socket.send_json_to({"unsubscribe": ["node:a"]})
        await socket.send_json_to({"subscribe": ["node:b"]})
        assert (await said(socket))[0] == {"topic": "node:b", "error": "no-such-topic"}
        await socket.disconnect()

    run(test)


def test_clients_that_speak_too_much_or_wrongly_are_closed():
    session, _ = a_session()

    async def test():
        for text, code in (
            ("{", consumers.MALFORMED),
            ("[]", consumers.MALFORMED),
            ('{"subscribe": "tiles"}', consumers.MALFORMED),
            ('{"surprise": 1}', consumers.MALFORMED),
            ("[" * 40_000, consumers.MALFORMED),
            ('{"subscribe": ["' + "x" * consumers.MESSAGE_BYTES_MAX + '"]}', consumers.TOO_LARGE),
        ):
            socket = talk(session)
            await socket.connect()
            await socket.send_to(text_data=text)
            assert await closed(socket) == code, text[:20]
        socket = talk(session)
        await socket.connect()
        for _ in range(consumers.MESSAGES_PER_SECOND + 1):
            await socket.send_json_to({})
        assert await closed(socket) == consumers.TOO_MANY
        socket = talk(session)
        await socket.connect()
        await socket.send_json_to({"subscribe": [f"node:n{i}" for i in range(consumers.TOPICS_MAX + 1)]})
        answers = await said(socket, 1)
        assert answers[0] == {"topic": f"node:n{consumers.TOPICS_MAX}", "error": "too-many-topics"}
        await socket.disconnect()

    run(test)


def test_rights_and_session_are_those_of_now(planted, monkeypatch):
    monkeypatch.setattr(consumers, "CHECK_SECONDS", 0.3)
    ended, _ = a_session()
    demoted, user = a_session()

    async def test():
        one, two = talk(ended), talk(demoted)
        for socket in (one, two):
            await socket.connect()
            await socket.send_json_to({"subscribe": ["tiles"]})
            await said(socket)
        await sync_to_async(ended.delete)()
        assert await closed(one) == consumers.ENDED
        await asyncio.to_thread(planted.execute, "UPDATE tenants_user SET roles = '{}' WHERE id = %s", (user.pk,))
        while (await said(two))[0] != {"topic": "tiles", "error": "no-such-topic"}:
            pass
        await asyncio.to_thread(planted.execute, "UPDATE tenants_user SET is_active = false WHERE id = %s", (user.pk,))
        assert await closed(two) == consumers.ENDED

    run(test)


def test_an_idle_session_ends_its_socket_and_rights_hold_for_less_than_30_s(monkeypatch, settings):
    assert consumers.CHECK_SECONDS <= 25, "promised are 30 s, and the look-up takes its time"
    monkeypatch.setattr(consumers, "CHECK_SECONDS", 0.3)
    session, _ = a_session()

    async def test():
        socket = talk(session)
        await socket.connect()
        session["kvc.begun"] = session["kvc.seen"] = time.time() - settings.SESSION_IDLE_SECONDS - 1
        await sync_to_async(session.save)()
        assert await closed(socket) == consumers.ENDED

    run(test)


@pytest.fixture
def quick(monkeypatch):
    """Rights are looked up often, and may be unknown for little more than a second."""
    monkeypatch.setattr(consumers, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(consumers, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "UNHEARD_SECONDS", 1.5)


def test_nobody_hears_for_longer_than_promised_what_cannot_be_looked_up():
    assert consumers.CHECK_SECONDS < consumers.UNHEARD_SECONDS <= 30.0


def test_a_look_up_that_fails_is_made_again(planted, quick):
    """The table is gone for a moment; the socket lives on, and is still watched: a suspension ends it."""
    session, user = a_session()

    async def test():
        socket = talk(session)
        await socket.connect()
        await socket.send_json_to({"subscribe": ["tiles"]})
        await said(socket)
        away = "ALTER TABLE django_session RENAME TO django_session_away"
        await asyncio.to_thread(planted.execute, away)
        await asyncio.sleep(0.8)
        await asyncio.to_thread(planted.execute, "ALTER TABLE django_session_away RENAME TO django_session")
        await asyncio.sleep(2.0)
        assert "live-check" in {t.get_name() for t in asyncio.all_tasks()}
        await asyncio.to_thread(planted.execute, "UPDATE tenants_user SET is_active = false WHERE id = %s", (user.pk,))
        assert await closed(socket) == consumers.ENDED

    run(test)


@pytest.mark.parametrize("how", ["fails", "says nothing"])
def test_a_socket_ends_when_its_rights_cannot_be_looked_up(planted, postgres, quick, how):
    session, _ = a_session()

    async def test():
        socket = talk(session)
        await socket.connect()
        await socket.send_json_to({"subscribe": ["tiles"]})
        await said(socket)
        begun = time.monotonic()
        if how == "fails":
            await asyncio.to_thread(planted.execute, "ALTER TABLE django_session RENAME TO django_session_away")
        else:
            lock = psycopg.connect(postgres.superuser_dsn(TEST_DATABASE))
            await asyncio.to_thread(lock.execute, "LOCK TABLE django_session IN ACCESS EXCLUSIVE MODE")
        try:
            assert await closed(socket) == consumers.ENDED
            assert time.monotonic() - begun < 4
        finally:
            if how == "says nothing":
                lock.close()

    run(test)


def test_sockets_leave_nothing_behind():
    session, _ = a_session()

    async def test():
        for _ in range(5):
            socket = talk(session)
            await socket.connect()
            await socket.send_json_to({"subscribe": ["tiles"], "resume": {"tiles": 5}})
            await said(socket)
            await socket.disconnect()
        assert not list(live.readers())
        names = {t.get_name() for t in asyncio.all_tasks()}
        assert not names & {"live-pump", "live-check"}

    run(test)
