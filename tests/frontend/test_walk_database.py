"""PostgreSQL goes away under the pages: each answers at once and says so, and so does a page that is open."""

import contextlib
import re
import selectors
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import Database
from tests.frontend.conftest import opener
from tests.running import Console

pytestmark = [pytest.mark.walk, pytest.mark.browser, pytest.mark.timeout(300)]
PAGES = (
    *("/", "/map", "/nodes", "/nodes/fra-p2", "/docs/ui", "/docs/problems", "/docs/problems/queue-full", "/nothing"),
    *("/audit", "/audit/state", "/audit/access", "/audit/webhooks", "/audit/webhooks/new", "/audit/retention"),
    *("/audit/events/00000000-0000-7000-8000-000000000001", "/verify"),
)
OF_AUDITORS = ("/audit/jobs", "/audit/exports/new", "/audit/exports/new?check=1", "/audit/checkpoint")
SECONDS_MOST = 2.0
OLD = "'old' in document.documentElement.dataset"


class Line:
    """A way to PostgreSQL that a test can cut: what goes in at `port` comes out at the server."""

    def __init__(self, target: int) -> None:
        self.target, self.port = target, 0
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.restore()

    def restore(self) -> None:
        """Connections are taken again, at the same port."""
        self.ears = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.port = self.ears.getsockname()[1]
        threading.Thread(target=self._take, args=(self.ears,), daemon=True).start()

    def cut(self) -> None:
        """Every connection is reset, and none is taken."""
        with contextlib.suppress(OSError):
            self.ears.shutdown(socket.SHUT_RDWR)
        self.ears.close()
        for pair in self.pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self.pairs.clear()

    def _take(self, ears: socket.socket) -> None:
        while True:
            try:
                near, _ = ears.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            self.pairs.append((near, far))
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    @staticmethod
    def _carry(near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with selectors.DefaultSelector() as ready, near, far:
            for end in other:
                ready.register(end, selectors.EVENT_READ)
            with contextlib.suppress(OSError):
                while True:
                    for key, _ in ready.select():
                        data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                        if not data:
                            return
                        other[key.fileobj].sendall(data)  # type: ignore[index]


@pytest.fixture
def line(site: Console) -> Iterator[tuple[Line, Console]]:
    """Another `web` over the planted fleet, that reaches its database through a line."""
    database = Database(site.database.postgres, site.database.name)
    made = Line(int(database["KVC_DB_PORT"]))
    database["KVC_DB_PORT"] = str(made.port)
    running = Console(site.state.parent / "cut", database=database, broker=site.broker)
    running.__dict__["logins"] = site.seed()
    try:
        running.start("web")
        yield made, running
    finally:
        running.stop()
        made.cut()


def logged_in(console: Console, chromium: Any, user: str = "operator") -> dict[str, Any]:
    """What the browser of somebody keeps."""
    context = chromium.new_context()
    console.login(context.new_page(), user)
    kept = context.storage_state()
    context.close()
    return kept


def cookies_of(state: dict[str, Any]) -> dict[str, str]:
    """Name → value."""
    return {c["name"]: c["value"] for c in state["cookies"]}


def asked(url: str, cookies: dict[str, str]) -> tuple[int, str, float]:
    """Status, page, and seconds."""
    headers = {"Accept": "text/html", "Cookie": "; ".join(f"{k}={v}" for k, v in cookies.items())}
    began = time.monotonic()
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.read().decode(), time.monotonic() - began


def lived(console: Console, ago: float) -> None:
    """The writer last showed life so many seconds ago."""
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
        cx.execute("UPDATE catalog_shard SET seen_at = now() - make_interval(secs => %s)", (ago,))
        cx.execute("UPDATE catalog_pulse SET at = now() - make_interval(secs => %s)", (ago,))


def test_without_its_database_every_page_says_so_at_once_and_the_open_one_too(line, chromium):
    cable, console = line
    state, auditor = logged_in(console, chromium), logged_in(console, chromium, "auditor")
    cookies = cookies_of(state)
    asks = [*((page, cookies) for page in PAGES), *((page, cookies_of(auditor)) for page in OF_AUDITORS)]
    with opener(chromium, console.url, state) as visit:
        one = visit()
        one.go("/")
        one.wait("document.querySelector('[data-live]').dataset.state === 'live'", 30)
        for page, who in asks:
            assert asked(f"{console.url}{page}", who)[0] in (200, 404)
        lived(console, 3)
        one.wait("!document.querySelector('[data-live-lag]').textContent.startsWith('0.0')")
        cable.cut()
        slow = {}
        for page, who in asks:
            for language, words in (("en", "A part of the console is away"), ("zh-hans", "控制台")):
                status, text, seconds = asked(f"{console.url}{page}", who | {"django_language": language})
                assert (status, words in text) == (503, True), (page, language, text[:300])
                slow[page, language] = seconds
        assert not {page: s for page, s in slow.items() if s > SECONDS_MOST}
        one.wait(OLD, 30)
        one.wait("document.querySelector('[data-live-away]').textContent.includes('Nothing has come from')", 30)
        assert re.search(r"since \d\d:\d\d:\d\d UTC", one.page.inner_text("[data-live-away]"))
        cable.restore()
        lived(console, -3600)
        one.wait(f"!({OLD})", 30)
        assert asked(f"{console.url}/", cookies)[0] == 200
        one.errors.clear()  # the browser reports the answers of 503
