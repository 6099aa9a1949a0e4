"""Foundation, seen from outside: on a fresh machine `make up` serves a moving map."""

import contextlib
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.accept.fleet import say
from tests.accept.test_foundation_road import LONG
from tests.freshclone import FreshClone
from tests.frontend.conftest import Visit, opener
from tests.running import log_in, read_logins

pytestmark = [pytest.mark.accept, pytest.mark.walk, pytest.mark.browser]
TEXTS = """[...document.querySelectorAll('[data-node] [data-blocks], [data-node] [data-share]')]
    .map((e) => e.textContent).join()"""


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[FreshClone]:
    """Nobody has run anything in it. In the short form it has our packages, in the long one it installs its own."""
    made = FreshClone(tmp_path)
    try:
        if not LONG:
            made.share_packages()
        yield made
    finally:
        made.remove()


@contextlib.contextmanager
def person(chromium: Any, clone: FreshClone, url: str) -> Iterator[Any]:
    """Pages of somebody who read the log-ins' file."""
    logins = read_logins(clone.root / ".dev/logins")
    context = chromium.new_context()
    log_in(context.new_page(), url, "operator", logins["operator"])
    state = context.storage_state()
    context.close()
    with opener(chromium, url, state) as open_page:
        yield open_page


def moves(visit: Visit, path: str, value: str, seconds: float) -> float:
    """Seconds until what the page shows has changed by itself: the same document, nothing loaded again."""
    visit.go(path)
    visit.wait(f"document.documentElement.dataset.socket === 'on' && !!({value})", seconds)
    visit.page.evaluate("globalThis.sameDocument = true")
    before, begin = visit.page.evaluate(value), time.monotonic()
    while visit.page.evaluate(value) == before:
        assert time.monotonic() - begin < seconds, f"{path}: {before!r} did not change within {seconds} s"
        visit.page.wait_for_timeout(50)
    assert visit.page.evaluate("globalThis.sameDocument === true")
    return round(time.monotonic() - begin, 1)


@pytest.mark.timeout(600)
def test_make_up_serves_a_moving_map_on_a_fresh_machine(clone: FreshClone, chromium: Any) -> None:
    """From `git clone` to a tile and a heat map that move; one copy only; nothing is left after kill -9 or Ctrl-C."""
    begin = time.monotonic()
    process = clone.up()
    url = clone.served(process, 300)
    first = time.monotonic() - begin
    with person(chromium, clone, url) as visit:
        tile = moves(visit(), "/", TEXTS, 60)
        page = visit()
        page.go("/map")  # the writer's first column is whole 10 s after its birth; until then the picture is empty
        _reload_until_drawn(page)
        column = moves(page, "/map", "globalThis.kvcHeat?.matrix?.times.at(-1)", 60)
    assert f"already running from this directory: {url}" in clone.refused()

    killed = second = None
    if LONG:
        clone.supervisor(process).kill()
        begin = time.monotonic()
        while clone.running():
            assert time.monotonic() - begin < 30, clone.running()
            time.sleep(0.1)
        killed = round(time.monotonic() - begin, 1)
        process.wait(30)
        begin = time.monotonic()
        process = clone.up()
        assert clone.served(process, 60) == url, "ports are kept"
        second = round(time.monotonic() - begin, 1)
        with urllib.request.urlopen(f"{url}/login", timeout=30) as answer:
            assert answer.status == 200
        with person(chromium, clone, url) as visit:
            moves(visit(), "/", TEXTS, 60)
    ended = clone.interrupt(process, 15)
    say("up", own_packages=LONG, clone_seconds=round(clone.clone_seconds, 1), first_page_seconds=round(first, 1),
        tile_moved_after=tile, heat_moved_after=column, gone_after_kill_9=killed, second_start_seconds=second,
        gone_after_ctrl_c=round(ended, 1))  # fmt: skip


def _reload_until_drawn(visit: Visit) -> None:
    """The first column may not be there yet, which the page says; a person comes back."""
    deadline = time.monotonic() + 90
    while True:
        visit.wait("['ready', 'empty', 'error'].includes(document.documentElement.dataset.heat)")
        state = visit.page.evaluate("document.documentElement.dataset.heat")
        if state == "ready":
            return
        assert state == "empty", state
        assert time.monotonic() < deadline, "the heat map stayed empty"
        visit.page.wait_for_timeout(2000)
        visit.go("/map")
