"""Fixtures of the agent's tests."""

import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from nodeagent.config import Config, Home, Ingest, TierConfig
from nodeagent.join import draft_of, join
from nodeagent.keys import KeyRing, Lease
from tests.nodeagent.farside import FarSide

KIB = 1024
SMALL = {
    "hbm": TierConfig(capacity_bytes=256 * KIB),
    "pinned": TierConfig(capacity_bytes=256 * KIB),
    "dram": TierConfig(capacity_bytes=512 * KIB),
    "ssd": TierConfig(capacity_bytes=1024 * KIB),
}


@pytest.fixture
def far() -> Iterator[FarSide]:
    with FarSide() as side:
        yield side


@pytest.fixture
def joined(far: FarSide, tmp_path: Path) -> Callable[..., Home]:
    """Enrols an agent in a directory of its own."""

    def make(tiers: dict[str, TierConfig] | None = None, **more) -> Home:
        home = Home(tmp_path / f"agent-{secrets.token_hex(2)}")
        draft = draft_of(
            name="n1", listen="127.0.0.1:0", agent_url="", profile="ref-64", tiers=tiers or SMALL,
            remote_url=more.pop("remote_url", ""), **more,
        )  # fmt: skip
        with httpx.Client(trust_env=False) as client:
            join(home, console_url=far.url, token=far.enrolment_token, draft=draft, client=client)
        return home

    return make


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing()


def lease(ns: bytes | None = None, gen: int = 1, seconds: float = 300, **policy) -> Lease:
    return Lease(
        ns=ns or secrets.token_bytes(32), gen=gen, block_tokens=16, blk=secrets.token_bytes(32),
        enc=secrets.token_bytes(32), salt_tag=bytes(16), until=time.time() + seconds,
        **policy,
    )  # fmt: skip


def config(tiers: dict[str, TierConfig] | None = None, **more) -> Config:
    fields = dict(
        node="n1", name="n1", console_url="http://127.0.0.1:1", listen="127.0.0.1:1", agent_url="http://127.0.0.1:1",
        console_public_key="00" * 32, ingest=[Ingest(0, "http://127.0.0.1:1")], tiers=tiers or SMALL, profile="ref-64",
    )  # fmt: skip
    return Config(**fields | more)


def eventually(check: Callable[[], object], seconds: float = 10.0) -> None:
    """Passes once `check` is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return
        time.sleep(0.02)
    assert check()


class Loop:
    """An agent served in a thread of its own."""

    def __init__(self, home: Home, *, verify: ssl.SSLContext | bool = True) -> None:
        import asyncio

        from nodeagent.agent import Agent
        from nodeagent.server import serve

        self.home = home
        started = threading.Event()

        async def run() -> None:
            self.loop, self.stop = asyncio.get_running_loop(), asyncio.Event()
            self.agent = Agent(home)
            started.set()
            await serve(self.agent, self.stop)

        self.error: BaseException | None = None

        def main() -> None:
            try:
                asyncio.run(run())
            except BaseException as e:
                self.error = e
            finally:
                started.set()

        self.thread = threading.Thread(target=main, daemon=True)
        self.thread.start()
        started.wait(10)
        config = home.load()
        self.url = f"{'https' if config.tls_cert else 'http'}://{config.listen}"
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=10, verify=verify)
        eventually(self._answers)

    def _answers(self) -> bool:
        if self.error is not None:
            raise self.error
        try:
            return self.http.get("/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    def inventory(self) -> dict:
        token = self.home.read_secret("drive.token").decode()
        return self.http.get("/v1/inventory", headers={"authorization": f"Bearer {token}"}).json()

    def status(self) -> dict:
        return self.http.get("/v1/status").json()

    def end(self) -> None:
        self.http.close()
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(15)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error


@pytest.fixture
def running() -> Iterator[Callable[[Home], Loop]]:
    """Starts agents in threads; all are ended."""
    loops: list[Loop] = []

    def start(home: Home, **more) -> Loop:
        loops.append(Loop(home, **more))
        return loops[-1]

    yield start
    for loop in loops:
        if loop.thread.is_alive():
            loop.end()
