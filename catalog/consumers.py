"""The socket `/ws/live`: who may hear which topic, and how a client may speak. Frames come from `infra.live`.

Close codes: 4400 malformed message · 4401 the session is over · 4403 not allowed · 1008 too many messages · 1009 a
message above 64 KiB.
"""

import asyncio
import logging
import time
from collections import deque
from typing import Any
from urllib.parse import urlsplit

import msgspec
from channels.generic.websocket import AsyncWebsocketConsumer  # type: ignore[import-untyped]
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from django.urls import re_path

import catalog.live  # noqa: F401  (registers the topics)
from kvconsole.infra.access import Principal
from kvconsole.infra.live import Feed, Reader, hub, resolve
from tenants.authentication import session_alive, user_principal

MESSAGE_BYTES_MAX = 64 * 1024
MESSAGES_PER_SECOND = 20
TOPICS_MAX = 32
CHECK_SECONDS = 20.0
"""Rights are promised to hold for no longer than 30 s: the rest is for the look-up and a slow loop."""
RETRY_SECONDS = 1.0
"""Between look-ups that failed."""
UNHEARD_SECONDS = 30.0
"""Since the last answer: whose rights cannot be looked up for so long has none."""
MALFORMED, ENDED, FORBIDDEN, TOO_MANY, TOO_LARGE = 4400, 4401, 4403, 1008, 1009

log = logging.getLogger(__name__)


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client may say."""

    subscribe: list[str] = []
    unsubscribe: list[str] = []
    resume: dict[str, int | None] = {}


_decode = msgspec.json.Decoder(Wish).decode


def session_principal(key: str | None) -> Principal | None:
    """Who the session is now; None once it is over, the person inactive or the password another."""
    if not key:
        return None
    request = HttpRequest()
    request.session = SessionStore(key)
    if not session_alive(request.session, time.time()):
        return None
    user = get_user(request)
    return user_principal(user, request.session) if user.is_authenticated else None


def same_origin(scope: dict[str, Any]) -> bool:
    """Whether a page of ours opened the socket: a browser always says which. None and "null" are refused."""
    headers = dict(scope.get("headers", []))
    origin = urlsplit(headers.get(b"origin", b"").decode("latin-1"))
    ours = {headers.get(b"host", b"").decode("latin-1"), urlsplit(settings.CONSOLE_URL).netloc}
    return origin.scheme in ("http", "https") and bool(origin.netloc) and origin.netloc in ours


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One socket. It holds no database connection and no queue; its principal is asked for again within 30 s."""

    channel_layer_alias = "none"  # frames come from the process's hub, not through a layer of channels per socket

    reader: Reader | None = None
    principal: Principal | None = None
    tasks: tuple[asyncio.Task[None], ...] = ()

    async def connect(self) -> None:
        """Accepted for people of the console that came from its pages."""
        self.session_key = getattr(self.scope.get("session"), "session_key", None)
        if not same_origin(self.scope):
            await self.close(FORBIDDEN)
            return
        self.principal = await self.who()
        if self.principal is None:
            await self.close(ENDED)
            return
        await self.accept()
        self.spoken: deque[float] = deque(maxlen=MESSAGES_PER_SECOND)
        self.reader = Reader(self.pass_on)
        pump = asyncio.create_task(self.reader.pump(), name="live-pump")
        check = asyncio.create_task(self.watch(), name="live-check")
        self.tasks = (pump, check)

    async def who(self) -> Principal | None:
        """The session's principal, read anew."""
        return await hub().read(session_principal, self.session_key)

    async def pass_on(self, text: str) -> None:
        """One frame to this socket; waits as long as the client does not read."""
        await self.base_send({"type": "websocket.send", "text": text})

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Subscriptions come and go."""
        if self.reader is None:
            return
        if len(text_data or bytes_data or "") > MESSAGE_BYTES_MAX:
            await self.close(TOO_LARGE)
            return
        now = time.monotonic()
        if len(self.spoken) == MESSAGES_PER_SECOND and now - self.spoken[0] < 1.0:
            await self.close(TOO_MANY)
            return
        self.spoken.append(now)
        try:
            wish = _decode(text_data or bytes_data or "")
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            await self.close(MALFORMED)
            return
        for topic in wish.unsubscribe:
            self.reader.leave(topic)
        for topic in wish.subscribe[: TOPICS_MAX * 2]:
            try:
                feed = self.feed(topic)
            except OverflowError:  # of the whole process: the socket keeps what it has
                await self.refuse(topic, "too-many-topics")
                continue
            if feed is None:
                await self.refuse(topic, "no-such-topic")
            elif topic not in self.reader.places and len(self.reader.places) >= TOPICS_MAX:
                await self.refuse(topic, "too-many-topics")
            else:
                self.reader.leave(topic)
                self.reader.join(feed, wish.resume.get(topic))

    def feed(self, topic: str) -> Feed | None:
        """The topic's feed, None where there is none for this principal: which of the two is not told."""
        return hub().feed(topic) if self.may(topic) else None

    def may(self, topic: str) -> bool:
        """Whether the principal may hear the topic: fleet topics are for staff of the fleet alone."""
        found, principal = resolve(topic), self.principal
        return (
            found is not None
            and principal is not None
            and principal.tenant_id is None
            and principal.may(*found[0].roles)
        )

    async def refuse(self, topic: str, code: str) -> None:
        """The client is told that this topic will not come."""
        await self.pass_on(msgspec.json.encode({"topic": topic[:200], "error": code}).decode())

    async def watch(self) -> None:
        """Rights are those of now: a topic that is no longer allowed ends, and so does the socket with its session."""
        heard, pause = time.monotonic(), CHECK_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(max(0.0, heard + UNHEARD_SECONDS - time.monotonic())):
                    self.principal = await self.who()
            except Exception as e:  # whatever it was: a task that ended by it would leave the socket unwatched for ever
                if time.monotonic() - heard < UNHEARD_SECONDS:
                    pause = RETRY_SECONDS
                    continue
                log.warning("a socket ends: its rights could not be looked up for %g s (%s)", UNHEARD_SECONDS, type(e))
                self.principal = None
            heard, pause = time.monotonic(), CHECK_SECONDS
            if self.principal is None:
                await self.end()
                return
            if self.reader is None:
                return
            for topic in [t for t in self.reader.places if not self.may(t)]:
                self.reader.leave(topic)
                await self.refuse(topic, "no-such-topic")

    async def end(self) -> None:
        """Nothing more is sent, whether or not the client hears that the session is over."""
        if self.reader:
            self.reader.close()
        await self.close(ENDED)

    async def disconnect(self, code: int) -> None:
        """Nothing of the socket remains."""
        for task in self.tasks:
            task.cancel()
        if self.reader:
            self.reader.close()


websocket_urlpatterns = [re_path(r"^ws/live$", LiveConsumer.as_asgi())]
