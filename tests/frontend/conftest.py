"""Pages against a real database, and in a real browser against real processes."""

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from kvconsole import reaper
from kvconsole.embedded import Postgres, Valkey
from tests.conftest import TEST_DATABASE, Database
from tests.copies import Copies
from tests.frontend import plant, plant_audit, plant_operations, plant_tenancy
from tests.running import Console

WIDTHS = (320, 390, 1440, 3840)


@pytest.fixture(scope="module")
def planted(postgres: Postgres, copies: Copies, django_db_setup: None, django_db_blocker: Any) -> Iterator[datetime]:
    """The tests of this module find a fleet with an hour behind it; afterwards the database is a new copy."""
    yield plant.fleet(postgres.superuser_dsn(TEST_DATABASE))
    with django_db_blocker.unblock():
        connections.close_all()
    copies.drop(TEST_DATABASE)
    copies.make(TEST_DATABASE)


@pytest.fixture
def person(db: None) -> Callable[..., Client]:
    """A test client that is logged in with these roles."""

    def log_in(*roles: str, tenant: Any = None, name: str = "mira-okafor") -> Client:
        from kvconsole.infra.access import system, tenant_context
        from tenants.services import user_create

        with tenant_context(system("test")):
            user_create(
                username=name, password="a long enough password 1", email=f"{name}@example.invalid",
                roles=roles or ("viewer",), tenant=tenant,
            )  # fmt: skip
        client = Client(headers={"accept": "text/html"})
        assert client.login(username=name, password="a long enough password 1")
        return client

    return log_in


# --- browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def site(postgres: Postgres, copies: Copies, service_base: Path) -> Iterator[Console]:
    """One `web` process over a planted fleet, shared by all browser tests of pages; nobody writes to it."""
    name = f"kvc_pages_{uuid.uuid4().hex[:8]}"
    copies.make(name)
    base = Path(tempfile.mkdtemp(prefix="pages-", dir=service_base))
    broker = Valkey(base / "valkey", persist=False, test=True)
    reaper.shared().remove(broker.home)
    broker.start()
    running = Console(base / "site", database=Database(postgres, name), broker=broker)
    try:
        running.seed()
        plant.fleet(postgres.superuser_dsn(name))
        plant_tenancy.tenancy(postgres.superuser_dsn(name))
        plant_tenancy.alone(postgres.superuser_dsn(name))
        plant_audit.log(postgres.superuser_dsn(name))
        running.planted = plant_operations.operations(postgres.superuser_dsn(name))
        running.start("web")
        yield running
    finally:
        running.stop()
        broker.remove()
        copies.drop(name)
        shutil.rmtree(base, ignore_errors=True)


@dataclass
class Visit:
    """A page of a browser that notes what must not happen."""

    page: Any
    url: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """Console errors, uncaught exceptions and requests to other hosts are noted from now on."""
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: None if self._ours(r.url) else self.foreign.append(r.url))

    def _ours(self, url: str) -> bool:
        return url.startswith((self.url, self.url.replace("http", "ws", 1), "data:", "blob:"))

    def go(self, path: str) -> None:
        """The page is loaded and its scripts have begun."""
        self.page.goto(f"{self.url}{path}")
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def processor_time(self) -> Callable[[], float]:
        """What tells how many seconds of a processor the page has taken; others on the machine add nothing to it."""
        clock = self.page.context.new_cdp_session(self.page)
        clock.send("Performance.enable", {"timeDomain": "threadTicks"})

        def read() -> float:
            told = {m["name"]: m["value"] for m in clock.send("Performance.getMetrics")["metrics"]}
            return float(told["TaskDuration"])

        return read

    def wait(self, expression: str, seconds: float = 20.0) -> None:
        """Until the expression is true in the page. (Playwright's own waiting needs `eval`; our policy blocks it.)"""
        deadline = time.monotonic() + seconds
        while not self._holds(expression):
            if time.monotonic() > deadline:
                state = self.page.evaluate("JSON.stringify(document.documentElement.dataset)")
                raise AssertionError(f"not within {seconds} s: {expression}; {state}; {self.errors}")
            self.page.wait_for_timeout(50)

    def _holds(self, expression: str) -> bool:
        try:
            return bool(self.page.evaluate(expression))
        except Exception as error:
            if "Execution context was destroyed" not in str(error):
                raise
            return False  # the page is being loaded again, as after a log-in that could not be looked up


@pytest.fixture(scope="session")
def states(site: Console, chromium: Any) -> Callable[[str], dict[str, Any]]:
    """Cookies of a person of the demonstration, who logs in once."""
    kept: dict[str, dict[str, Any]] = {}

    def of(user: str) -> dict[str, Any]:
        if user not in kept:
            context = chromium.new_context()
            page = context.new_page()
            site.login(page, user)
            kept[user] = context.storage_state()
            context.close()
        return kept[user]

    return of


@pytest.fixture(scope="session")
def state(states: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Cookies of a logged-in operator."""
    return states("operator")


@contextlib.contextmanager
def opener(
    chromium: Any,
    url: str,
    state: dict[str, Any],
    states: Callable[[str], dict[str, Any]] | None = None,
    spare: list[Any] | None = None,
) -> Iterator[Callable[..., Visit]]:
    """Opens pages of the console at `url`: `visit(width=…, theme=…, language=…)`; nothing forbidden may happen there.

    `state` has the cookies of whoever is logged in; `user=False` opens the page as nobody, a name as that person.
    `spare` are contexts of the browser that are used, and used again: they know the console's scripts.
    """
    visits: list[Visit] = []
    again: list[Any] = []

    def open_page(
        width: int = 1440, theme: str = "light", language: str = "en", user: bool | str = True, **options: Any
    ) -> Visit:
        kept = states(user) if states and isinstance(user, str) else state if user else None
        if spare is None or options:
            context = chromium.new_context(storage_state=kept, **options)
        else:
            context = spare.pop() if spare else chromium.new_context()
            again.append(context)
            context.clear_cookies()
            context.add_cookies(kept["cookies"] if kept else [])
        chosen = {"kvc_theme": theme, "django_language": language}
        context.add_cookies([{"name": n, "value": v, "url": url} for n, v in chosen.items()])
        made = Visit(context.new_page(), url)
        made.page.set_viewport_size({"width": width, "height": 900})
        made.listen()
        visits.append(made)
        return made

    yield open_page
    for made in visits:
        context = made.page.context
        for opened in context.pages if context in again else ():
            opened.close()
        if context not in again:
            context.close()
    if spare is not None:
        spare += again
    assert not [e for v in visits for e in v.errors]
    assert not [f for v in visits for f in v.foreign]


@pytest.fixture(scope="session")
def spare(chromium: Any) -> list[Any]:
    """Contexts of the browser, for pages of the planted fleet, that nobody uses now."""
    return []


@pytest.fixture
def visit(
    site: Console, chromium: Any, states: Callable[[str], dict[str, Any]], spare: list[Any]
) -> Iterator[Callable[..., Visit]]:
    """`opener` over the planted fleet, as an operator. What a test leaves in a browser are files, and no cookies."""
    with opener(chromium, site.url, states("operator"), states, spare) as open_page:
        yield open_page


def axe_rules() -> str:
    """The rules of axe-core as a script, from its wheel."""
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


@pytest.fixture(scope="session")
def axe() -> str:
    """See `axe_rules`."""
    return axe_rules()


os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
