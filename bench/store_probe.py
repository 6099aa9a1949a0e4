"""`python -m bench.store_probe DSN`: load a shard in a process of its own; print seconds, resident bytes and blocks."""

import gc
import json
import sys
import time

import psutil

from bench.store_sides import TENANT
from catalog.index.memory import Memory
from catalog.index.steps import Touched, Work
from catalog.store import Store


def main(dsn: str) -> None:
    """The shard is loaded once, everything compiled before."""
    gc.disable()
    small = Memory()
    ks = small.keyspace(bytes(32), 1, 0, Touched(), tenant_id=TENANT).id
    small.apply([Work("add", 1, "hbm", ks, bytes(range(64)))])
    small.reserve(5000, 5000)
    process = psutil.Process()
    before, start, cpu = process.memory_info().rss, time.perf_counter(), time.process_time()
    store = Store(dsn)
    seconds, rss = time.perf_counter() - start, process.memory_info().rss - before
    cpu = time.process_time() - cpu
    m = store.memory
    digest = sum(h[1] for by_ks in m.holding.values() for h in by_ks.values()) % 2**64
    told = {"seconds": seconds, "cpu": cpu, "rss": rss, "arrays": m.nbytes(), "blocks": m.blocks(), "digest": digest}
    print(json.dumps(told))
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
