"""The web process's own look: operations go on although Celery and Valkey are away.

A thread looks every quarter of a second, and at once when it is woken; what a worker should have done and has not, it
does. Steps are leased, so nobody does anything twice. Called by `kvconsole.asgi`.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import UUID

from django.db import DatabaseError, close_old_connections, connections

from catalog.holds import holds_sweep
from catalog.operations.engine import operations_due, reconcile
from catalog.operations.supplements import supplements_due
from catalog.pins import pins_sweep
from catalog.restoring import fences_compare
from catalog.rules.due import rules_due

LOOK_SECONDS = 0.25
LATE_SECONDS = 0.5
"""A worker that lives is quicker than this."""
SUPPLEMENTS_SECONDS = 5.0
THREADS = 2
_log = logging.getLogger("kvc.operations")
_lock = threading.Lock()
_running: set[UUID] = set()


def keep_reconciling() -> None:
    """The thread runs, until the process ends."""
    threading.Thread(target=_run, name="operations", daemon=True).start()


def _run() -> None:
    holder = f"{socket.gethostname()}/{os.getpid()}/look"
    supplemented = 0.0
    with ThreadPoolExecutor(THREADS, "operation") as pool:
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                close_old_connections()
                if not fences_compare(now=datetime.now(UTC)).whole:  # nothing is known for sure yet
                    time.sleep(LOOK_SECONDS)
                    continue
                if time.monotonic() - supplemented >= SUPPLEMENTS_SECONDS:
                    supplements_due(now=datetime.now(UTC))
                    holds_sweep(now=datetime.now(UTC))
                    pins_sweep(now=datetime.now(UTC))
                    rules_due(now=datetime.now(UTC))
                    supplemented = time.monotonic()
                _look(pool, operations_due(now=datetime.now(UTC), late=LATE_SECONDS), holder)
            except DatabaseError:
                connections.close_all()
                time.sleep(1.0)
            except Exception:
                _log.exception("operations could not be looked at")
                time.sleep(1.0)


def _look(pool: ThreadPoolExecutor, due: Collection[UUID], holder: str) -> None:
    for operation in due:
        with _lock:
            if operation in _running or len(_running) >= THREADS:
                continue
            _running.add(operation)
        pool.submit(_one, operation, holder)


def _one(operation: UUID, holder: str) -> None:
    try:
        close_old_connections()
        reconcile(operation_id=operation, holder=f"{holder}/{threading.get_ident()}")
    except DatabaseError:
        connections.close_all()
    except Exception:
        _log.exception("the operation %s could not go on", operation)
    finally:
        connections.close_all()
        with _lock:
            _running.discard(operation)
