"""What tests stand on: a real PostgreSQL, a real Valkey, real processes, a real browser.

The database is migrated once a session into a template; everything else is a copy of it, made ahead of its use
(`copies`). Tests marked `django_db` run as kv_operator in a transaction that is rolled back; with `transaction=True`
it is put back row by row afterwards (`putback`), because kv_operator may not truncate.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kvconsole import reaper
from kvconsole.embedded import Postgres, Valkey
from kvconsole.serverprocess import as_root, clone_home, sweep_test_homes
from tests.copies import Copies
from tests.putback import PutBack
from tests.running import Console

CLONE = Path(__file__).resolve().parent.parent
TEMPLATE, TEST_DATABASE = "kvc_template", "kvc_test"
ALIASES = {"default": "operator", "tenant": "tenant"}
BEGAN = datetime.now(UTC) - timedelta(seconds=1)
DIED = pytest.StashKey[list[str]]()
"""Why every test of a process after some moment failed."""


@pytest.fixture(scope="session")
def service_base() -> Iterator[Path]:
    """A short directory for servers; it goes even when the session is killed."""
    sweep_test_homes(clone_home().glob("*") if as_root() else Path(tempfile.gettempdir()).glob("kvc-*/*"))
    base = Path(tempfile.mkdtemp(prefix="kvc-"))
    reaper.shared().remove(base)
    yield base
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(service_base: Path, pytestconfig: pytest.Config) -> Iterator[Postgres]:
    """PostgreSQL with our roles, and no database of ours yet."""
    server = Postgres(service_base / "pg", test=True)
    reaper.shared().remove(server.home)
    server.start()
    yield server
    if server.pid is None:
        end, log = server.process and server.process.returncode, server.log
        tail = log.read_text(errors="replace")[-6000:] if log.exists() else f"{server.home} is gone"
        pytestconfig.stash[DIED] = [f"PostgreSQL ended by itself ({end}); its log ends with:\n{tail}"]
    server.remove()


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """Name of the migrated database that others are copies of; nobody stays connected to it."""
    postgres.create_database(TEMPLATE)
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"], capture_output=True, text=True, cwd=CLONE,
        env=os.environ | postgres.env(TEMPLATE) | {"KVC_ENV": "test", "KVC_DB_ROLE": "migrate"},
    )  # fmt: skip
    if done.returncode:
        pytest.exit(f"the migrations failed:\n{done.stdout}{done.stderr}", returncode=1)
    return TEMPLATE


@pytest.fixture(scope="session")
def copies(postgres: Postgres, template: str) -> Iterator[Copies]:
    """Migrated databases to use up."""
    made = Copies(postgres, template)
    yield made
    made.close()


@pytest.fixture(scope="session")
def valkey(service_base: Path) -> Iterator[Valkey]:
    """Valkey; settings of this process point to it."""
    from channels.layers import channel_layers
    from django.conf import settings

    server = Valkey(service_base / "valkey", persist=False, test=True)
    reaper.shared().remove(server.home)
    server.start()
    settings.VALKEY_URL = settings.CELERY_BROKER_URL = server.url
    settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"] = [server.url]
    channel_layers.backends.clear()
    yield server
    server.remove()


def _point_settings(postgres: Postgres, name: str) -> None:
    """Django's connections, and those made from settings, reach this database."""
    from django.conf import settings
    from django.db import connections

    connections.close_all()
    settings.DB_HOST, settings.DB_PORT, settings.DB_NAME = "127.0.0.1", str(postgres.port), name
    settings.DB_PASSWORDS.update(postgres.passwords)
    for alias, role in ALIASES.items():
        place = {"HOST": "127.0.0.1", "PORT": str(postgres.port), "NAME": name, "USER": f"kv_{role}"}
        connections.settings[alias].update(place, PASSWORD=postgres.passwords[role])
        connections[alias].settings_dict.update(connections.settings[alias])


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment, django_db_blocker, postgres: Postgres, copies: Copies) -> Iterator[None]:
    """Replaces pytest-django's own: the test database is a copy of the template."""
    from django.db import connections
    from django.test import TransactionTestCase

    def put_back(*_: object) -> None:
        nonlocal kept
        connections.close_all()
        if not kept.done():
            copies.drop(TEST_DATABASE)
            copies.make(TEST_DATABASE)
            kept = PutBack(postgres.superuser_dsn(TEST_DATABASE))

    copies.make(TEST_DATABASE)
    kept = PutBack(postgres.superuser_dsn(TEST_DATABASE))
    TransactionTestCase._fixture_teardown = put_back
    with django_db_blocker.unblock():
        _point_settings(postgres, TEST_DATABASE)
    yield
    with django_db_blocker.unblock():
        connections.close_all()


@pytest.fixture(autouse=True)
def _own_directories(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reaches the database has a key store of its own."""
    if "db" in request.fixturenames or request.node.get_closest_marker("django_db"):
        from django.conf import settings

        path = request.getfixturevalue("tmp_path") / "keys"
        path.mkdir(mode=0o700)
        monkeypatch.setattr(settings, "KEYSTORE_DIR", str(path))


@pytest.fixture(autouse=True, scope="module")
def _now() -> None:
    """What modules call `NOW` is now: they read the clock when tests were collected, which may be half an hour ago."""
    now = datetime.now(UTC).replace(microsecond=0)
    for module in [module for name, module in sys.modules.items() if name.startswith("tests.")]:
        for name in ("NOW", "TODAY"):
            read = getattr(module, name, None)
            if isinstance(read, datetime) and read.tzinfo and BEGAN.replace(microsecond=0) <= read <= now:
                setattr(module, name, now)


class Database(dict[str, str]):
    """A database of one test: the environment that processes need to reach it, and `dsn(role)`."""

    def __init__(self, postgres: Postgres, name: str) -> None:
        super().__init__(postgres.env(name))
        self.postgres, self.name = postgres, name

    def dsn(self, role: str) -> str:
        """Connection string as `kv_<role>`, or as the superuser for role `superuser`."""
        return self.postgres.superuser_dsn(self.name) if role == "superuser" else self.postgres.dsn(role, self.name)


@contextlib.contextmanager
def _a_database(postgres: Postgres, copies: Copies) -> Iterator[Database]:
    name = f"kvc_{uuid.uuid4().hex[:12]}"
    copies.make(name)
    yield Database(postgres, name)
    copies.drop(name)


@contextlib.contextmanager
def _a_console(database: Database, service_base: Path) -> Iterator[Console]:
    base = Path(tempfile.mkdtemp(prefix="console-", dir=service_base))
    broker = Valkey(base / "valkey", persist=False, test=True)
    reaper.shared().remove(broker.home)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base, ignore_errors=True)
        stack.callback(broker.remove)
        broker.start()
        running = Console(base / "site", database=database, broker=broker)
        stack.callback(running.stop)
        yield running


@pytest.fixture
def fresh_database(postgres: Postgres, copies: Copies) -> Iterator[Database]:
    """A migrated database of this test alone, dropped afterwards."""
    with _a_database(postgres, copies) as database:
        yield database


@pytest.fixture
def console(fresh_database: Database, service_base: Path) -> Iterator[Console]:
    """A console of real processes over `fresh_database` with a Valkey of its own; `start` what the test needs."""
    with _a_console(fresh_database, service_base) as running:
        yield running


@pytest.fixture(scope="module")
def shared_console(postgres: Postgres, copies: Copies, service_base: Path) -> Iterator[Console]:
    """As `console`, of all tests of the module: they leave it as the next one expects it."""
    with _a_database(postgres, copies) as database, _a_console(database, service_base) as running:
        yield running


# --- browser -------------------------------------------------------------


def browser_path() -> str | None:
    """The browser of this machine, None if there is none and none could be installed."""
    wanted = os.environ.get("KVC_BROWSER")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    mac = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
    found = wanted or next(filter(None, map(shutil.which, names)), None) or (str(mac) if mac.exists() else None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "kvc-browser.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the other side may be installing it
            found = shutil.which("chromium") or _installed_browser()
    return found


def _installed_browser() -> str | None:
    """Chromium from the system's packages; None if that could not be."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    apt = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, **quiet}
    subprocess.run(["apt-get", "update"], **apt)
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-noto-cjk"], **apt)
    return shutil.which("chromium")


def browser_flags() -> list[str]:
    """What the browser is started with: no graphics card, and no traffic of its own."""
    flags = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]
    return flags + (["--no-sandbox"] if os.geteuid() == 0 else [])


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """The system's browser, driven by Playwright; `chromium.new_context()` gives a clean one."""
    path = browser_path()
    if path is None:
        message = "no browser: install chromium or name one in KVC_BROWSER"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(f"not run, {message}")
    from playwright.sync_api import sync_playwright

    # Playwright's loop runs in this thread; Django must not take its own calls for calls from that loop.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, headless=True, args=browser_flags())
        yield browser
        browser.close()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Nothing that the session started is left running."""
    reaper.close_shared()


def pytest_sessionstart(session: pytest.Session) -> None:
    """On a machine of CI the browser is there before any test's clock runs."""
    if os.environ.get("CI") == "true" and not hasattr(session.config, "workerinput"):
        browser_path()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several that run tests side by side hands over why its tests failed."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["died"] = session.config.stash.get(DIED, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    """The other end of `pytest_sessionfinish`."""
    died = getattr(node, "workeroutput", {}).get("died", [])
    node.config.stash.setdefault(DIED, []).extend(died)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with browser tests come last: from the first one on Playwright's loop runs here, and none of a test can."""
    browser = {item.path for item in items if "chromium" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path in browser)


# --- the count -----------------------------------------------------------


def pytest_terminal_summary(terminalreporter, exitstatus: int) -> None:
    """Says how many tests ran, and how many could not."""
    stats = terminalreporter.stats
    ran = sum(len(stats.get(k, [])) for k in ("passed", "failed", "xfailed", "xpassed"))
    terminalreporter.write_line(f"{ran} tests ran, {len(stats.get('skipped', []))} not run")
    for line in terminalreporter.config.stash.get(DIED, []):
        terminalreporter.write_line(line)
    path = os.environ.get("KVC_FAILED")
    if path:
        names = sorted({r.nodeid for k in ("failed", "error") for r in stats.get(k, [])})
        Path(path).write_text("".join(f"{name}\n" for name in names))
