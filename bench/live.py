"""Live road: frames to 200 sockets against Channels groups over Valkey, and the first paint of the heat map.

Both sides are real processes of the same server, the client is a third; they take turns. Nothing is capped: the hub's
two frames a second are switched off by publishing into its feed directly.
"""

import asyncio
import base64
import contextlib
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.live_server import PAYLOAD, frame

SOCKETS = 200
Figure = dict[str, Any]


def run(quick: bool) -> Iterator[Figure]:
    """Fan-out, then first paint."""
    yield from fan_out(quick)
    yield from first_paint(quick)


# --- fan-out ------------------------------------------------------------------


def fan_out(quick: bool) -> Iterator[Figure]:
    """Deliveries per second of both sides in turn; the ratio is the median of the pairs'."""
    from kvconsole.embedded import Valkey

    base = pathlib.Path(tempfile.mkdtemp(prefix="kvc-bench-"))
    valkey = Valkey(base / "valkey", persist=False)
    valkey.start()
    try:
        pairs = []
        for _ in range(1 if quick else 5):
            ours = measure("ours", valkey.url, 100 if quick else 400)
            theirs = measure("channels", valkey.url, 20 if quick else 80)
            pairs.append((ours, theirs))
    finally:
        valkey.remove()
        shutil.rmtree(base, ignore_errors=True)
    ratio = statistics.median(a / b for a, b in pairs)
    peer = {"channels pub/sub deliveries/s": round(statistics.median(b for _, b in pairs))}
    rate = statistics.median(a for a, _ in pairs)
    yield {
        "name": "live.deliveries_200_sockets",
        "value": round(rate),
        "unit": "1/s",
        "target": "-",
        "ok": True,
        "peer": peer,
    }
    yield {
        "name": "live.fan_out_ratio", "value": round(ratio, 2), "unit": "x", "target": ">= 5", "ok": ratio >= 5,
        "peer": {"pairs": [[round(a), round(b)] for a, b in pairs]},
    }  # fmt: skip


def measure(side: str, valkey_url: str, frames: int) -> float:
    """Deliveries per second of one side, all of them counted."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "kvconsole.settings.test", "KVC_VALKEY_URL": valkey_url}
    server = subprocess.Popen([sys.executable, "-m", "bench.live_server", side, str(port)], env=env)
    try:
        return asyncio.run(client(port, frames))
    finally:
        server.terminate()
        server.wait(10)


class Far(asyncio.Protocol):
    """A browser's end that counts bytes and decodes nothing."""

    def __init__(self) -> None:
        self.got, self.buffer = 0, b""
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is sent."""
        self.transport = transport
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(  # type: ignore[attr-defined]
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        """Bytes behind the handshake count."""
        if self.open.done():
            self.got += len(data)
            return
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end >= 0:
            self.got = len(self.buffer) - end - 4
            self.open.set_result(None)

    def say(self, text: str) -> None:
        """One masked text frame."""
        mask, body = os.urandom(4), text.encode()
        masked = bytes(c ^ mask[i % 4] for i, c in enumerate(body))
        self.transport.write(bytes([0x81, 0x80 | len(body)]) + mask + masked)  # type: ignore[attr-defined]


async def client(port: int, frames: int) -> float:
    """Deliveries per second to all sockets."""
    loop, far = asyncio.get_running_loop(), []
    deadline = time.monotonic() + 30
    for _ in range(SOCKETS):
        while True:
            try:
                _, one = await loop.create_connection(Far, "127.0.0.1", port)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
        await asyncio.wait_for(one.open, 10)
        far.append(one)
    await asyncio.sleep(0.5)
    before = sum(f.got for f in far)
    # a frame has a header of 4 bytes; ours alternates between two lengths so that each is a change
    mean = len(frame(0)) + 4 + (0.0 if before == 0 else 0.5)
    wanted = before + int(frames * SOCKETS * mean) - SOCKETS
    started = last = time.perf_counter()
    far[0].say(f"go {frames}")
    seen = before
    while seen < wanted:
        await asyncio.sleep(0.005)
        now = sum(f.got for f in far)
        if now != seen:
            seen, last = now, time.perf_counter()
        elif time.perf_counter() - last > 10:
            raise RuntimeError(f"only {seen - before} of {wanted - before} bytes came")
    for one in far:
        one.transport.close()
    return frames * SOCKETS / (last - started)


# --- first paint ----------------------------------------------------------------


def first_paint(quick: bool) -> Iterator[Figure]:
    """Server side of the heat map at its largest: 1,536 rows by 360 columns, cold and warm, no segment touched."""
    from bench.store_sides import Cluster

    cluster = Cluster()
    try:
        with cluster.database() as name:
            _settings(cluster, name)
            now = fill_heat(cluster, name)
            cold, warm = _paint(now, 3 if quick else 20)
    finally:
        cluster.close()
    for what, times in (("cold", cold), ("warm", warm)):
        p95 = sorted(wall for wall, _ in times)[int(0.95 * (len(times) - 1))] * 1000
        cpu = statistics.median(cpu for _, cpu in times) * 1000
        name, target = f"live.heat_{what}_p95", "<= 400 of the 800 to first paint"
        yield {"name": name, "value": round(p95, 1), "unit": "ms", "target": target, "ok": p95 <= 400,
               "peer": {"median CPU ms": round(cpu, 1)}}  # fmt: skip


def _settings(cluster: Any, name: str) -> None:
    os.environ.update(
        cluster.postgres.env(name), KVC_DB_ROLE="operator", DJANGO_SETTINGS_MODULE="kvconsole.settings.test"
    )
    import django

    django.setup()
    from django.db import connections

    connections.close_all()
    place = {"HOST": "127.0.0.1", "PORT": str(cluster.postgres.port), "NAME": name, "USER": "kv_operator"}
    place["PASSWORD"] = cluster.postgres.passwords["operator"]
    connections.settings["default"].update(place)
    connections["default"].settings_dict.update(place)


def fill_heat(cluster: Any, name: str) -> datetime:
    """An hour of a fleet with 1,500 busy families in 60 groups."""
    from uuid import UUID

    import psycopg

    from catalog.ingest.pictures import Pictures

    pictures = Pictures()
    begin = int(time.time()) // 10 * 10 - 3600
    pictures.resident([])
    for keyspace in range(1, 61):
        pictures.keyspace(keyspace, tenant_id=UUID(int=keyspace % 12 + 1), group=f"m·{keyspace}")
    with psycopg.connect(cluster.dsn(name), autocommit=True) as cx:
        for column in range(361):
            now = datetime.fromtimestamp(begin + 10 * column, UTC)
            pictures.seen(1, now)
            for family in range(1500):
                if not column or (family + column) % 3 == 0:
                    pictures.added(family % 60 + 1, family, 1 + family % 7, source=1, tier="hbm")
            with cx.transaction():
                for sql, params in pictures.rows(now):
                    cx.execute(sql, params)
            pictures.committed()
    return datetime.fromtimestamp(begin + 3600, UTC)


def _paint(now: datetime, times: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    from catalog import heat
    from catalog.map_api import header_of
    from catalog.selectors import heat as heat_of
    from catalog.selectors.columns import forget

    def once() -> tuple[float, float]:
        started, cpu = time.perf_counter(), time.process_time()
        matrix = heat_of(metric="stores", since=now - timedelta(hours=1), until=now, rows=1_536, now=now)
        heat.file(header_of(matrix), matrix.levels)
        return time.perf_counter() - started, time.process_time() - cpu

    cold, warm = [], []
    for _ in range(times):
        forget()
        cold.append(once())
        warm.append(once())
    with contextlib.suppress(Exception):
        from django.db import connections

        connections.close_all()
    return cold, warm


assert len(PAYLOAD) == 140
