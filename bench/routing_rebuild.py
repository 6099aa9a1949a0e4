"""Rebuild of a router's index from the store's rows: `python -m bench.routing_rebuild`, in a process of its own.

The rows are as the writer leaves them: segments of 200 keys, five to a chain, two owners each. First a start from
nothing, then a rebuild after a gap in the ledger, while look-ups go on. One line of JSON.
"""

import json
import os
import threading
import time
import uuid
from typing import Any

import psycopg

from bench.routing_peer import resident

RUN, CHAIN, SPACES, OWNERS = 200, 5, 32, 16
TENANT = uuid.uuid5(uuid.NAMESPACE_DNS, "bench-routing")
DIGEST = [bytes([200 + i]) * 32 for i in range(SPACES)]
PLACES = "COPY catalog_placement (seg, born, owner, keyspace, tenant_id, n) FROM STDIN"
SEGMENTS = (
    "COPY catalog_segment (id, head, up, family, keyspace, up_off, tenant_id, parent, keys) FROM STDIN (FORMAT BINARY)"
)


def plant(cx: "psycopg.Connection[Any]", blocks: int) -> None:
    """The rows are there, and have been looked over as a running store's have."""
    for i in range(SPACES):
        cx.execute(
            "INSERT INTO catalog_keyspace VALUES (%s, 0, %s, NULL, %s, 1, 0, 16, 1, true)", (i + 1, TENANT, DIGEST[i])
        )
    for i in range(OWNERS):
        node = uuid.uuid5(TENANT, str(i))
        cx.execute(
            "INSERT INTO catalog_source (id, shard, node_id, name, dp_rank, boot, stream, seq, state, since)"
            " VALUES (%s, 0, %s, 'engine', 0, 'b', 's', 0, 'exact', now())",
            (i + 1, node),
        )
        cx.execute("INSERT INTO catalog_owner VALUES (%s, 0, %s, 'hbm', false, now())", (i + 1, i + 1))
    with cx.cursor().copy(SEGMENTS) as copy:
        copy.set_types(["int8", "int8", "int8", "int8", "int4", "int2", "uuid", "bytea", "bytea"])
        before = b""
        for number in range(blocks // RUN):
            keys, at = os.urandom(16 * RUN), number % CHAIN
            head = int.from_bytes(keys[:8], "little", signed=True)
            up = (number - 1, RUN - 1, before) if at else (None, None, None)
            copy.write_row((number, head, up[0], number - at, _space(number), up[1], TENANT, up[2], keys))
            before = keys[-16:]
    with cx.cursor().copy(PLACES) as copy:
        for number in range(blocks // RUN):
            for owner in (0, 5):
                who = (number // CHAIN + owner) % OWNERS + 1
                copy.write_row((number, "2026-01-01", who, _space(number), TENANT, RUN))
    cx.execute("ANALYZE catalog_segment, catalog_placement")


def _space(number: int) -> int:
    return number // CHAIN % SPACES + 1


def chains(cx: "psycopg.Connection[Any]", many: int) -> list[tuple[int, bytes]]:
    """(keyspace, fingerprints) of whole chains."""
    out = []
    for first in range(0, many * CHAIN, CHAIN):
        rows = cx.execute(
            "SELECT keys FROM catalog_segment WHERE keyspace = %s AND id BETWEEN %s AND %s ORDER BY id",
            (_space(first), first, first + CHAIN - 1),
        ).fetchall()
        keys = b"".join(row[0] for row in rows)
        out.append((_space(first), b"".join(keys[i : i + 8] for i in range(0, len(keys), 16))))
    return out


class Looker(threading.Thread):
    """Looks chains up all the time and keeps (when, mode, depth, seconds)."""

    def __init__(self, replica: Any, asked: list[tuple[int, bytes]]) -> None:
        super().__init__(daemon=True)
        self.replica, self.asked, self.stop, self.seen = replica, asked, threading.Event(), []  # type: ignore[var-annotated]

    def run(self) -> None:
        """Until it is stopped."""
        from routing.view import Space

        i = 0
        while not self.stop.is_set():
            keyspace, keys = self.asked[i % len(self.asked)]
            started = time.perf_counter()
            found = self.replica.lookup(Space(DIGEST[keyspace - 1], 1, 0), keys)
            self.seen.append(
                (started, found.mode, found.runs[-1][0] if found.runs else 0, time.perf_counter() - started)
            )
            i += 1
            time.sleep(0.001)


def main() -> dict[str, Any]:
    """Start, gap, rebuild."""
    import django

    django.setup()
    from kvconsole.infra import sql
    from routing.forms import best
    from routing.replica import Replica

    compiling = time.perf_counter()
    best()
    compiled = time.perf_counter() - compiling
    with sql.connect("operator") as cx:
        asked = chains(cx, 50)
    replica, before = Replica(role="operator", bytes_max=2**33), resident()
    looker, started = Looker(replica, asked), time.perf_counter()
    looker.start()
    replica.start()
    replica.fresh.wait(300)
    loaded = time.perf_counter() - started
    time.sleep(0.5)
    first = next(s for s in looker.seen if s[2])
    size = resident() - before
    out = {"compile_s": compiled, "load_s": loaded, "first_answer_s": looker.seen[0][0] + looker.seen[0][3] - started,
           "first_mode": looker.seen[0][1], "first_hit_s": first[0] + first[3] - started, "rss": size,
           "view_bytes": replica.view.size() if replica.view else 0, "form": replica.form,
           "sizes": replica.view.index.sizes() if replica.view else {}}  # fmt: skip
    replica.fresh.clear()
    with psycopg.connect(os.environ["BENCH_SUPERUSER"], autocommit=True) as cx:
        cx.execute("UPDATE catalog_shard SET seq = seq + 5, redo = redo + 5")  # rows that nobody has
    gap = time.perf_counter()
    replica.fresh.wait(300)
    out["rebuild_s"] = time.perf_counter() - gap
    time.sleep(0.2)
    looker.stop.set()
    looker.join()
    during = sorted(s[3] for s in looker.seen if s[1] == "rebuilding")
    out["during"] = {
        "answers": len(during),
        "with_hits": sum(s[1] == "rebuilding" and s[2] == RUN * CHAIN for s in looker.seen),
        "p50_us": during[len(during) // 2] * 1e6 if during else None,
        "p99_ms": during[len(during) * 99 // 100] * 1e3 if during else None,
    }
    out["modes"] = sorted({s[1] for s in looker.seen})
    replica.close()
    return out


if __name__ == "__main__":
    print(json.dumps(main()))
