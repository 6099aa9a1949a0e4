"""The web process's own look: operations go on although Celery and Valkey are away.

A thread looks every quarter of a second; what a worker should have done and has not, it does. Another one sweeps: what
takes long there, or fails, keeps no operation waiting. Steps are leased, so nobody does anything twice. Called by
`kvconsole.asgi`.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Collection
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
from tenants.whole import fences_whole

LOOK_SECONDS = 0.25
LATE_SECONDS = 0.5
"""A worker that lives is quicker than this."""
REST_SECONDS = 1.0
"""After a look that failed."""
SWEEP_SECONDS = 5.0
SWEEPS: tuple[Callable[..., object], ...] = (supplements_due, holds_sweep, pins_sweep, rules_due)
THREADS = 2
_log = logging.getLogger("kvc.operations")
_lock = threading.Lock()
_running: set[UUID] = set()


def keep_reconciling(stop: threading.Event | None = None) -> list[threading.Thread]:
    """Both threads run, until the process ends or `stop` is set."""
    over = stop or threading.Event()
    threads = [
        threading.Thread(target=call, args=(over,), name=name, daemon=True)
        for name, call in (("operations", _run), ("operations-sweep", _keep_sweeping))
    ]
    for thread in threads:
        thread.start()
    return threads


def _run(stop: threading.Event) -> None:
    holder = f"{socket.gethostname()}/{os.getpid()}/look"
    with ThreadPoolExecutor(THREADS, "operation") as pool:
        while not stop.wait(LOOK_SECONDS):
            try:
                close_old_connections()
                if not fences_compare(now=datetime.now(UTC)).whole:  # nothing is known for sure yet
                    stop.wait(LOOK_SECONDS)
                    continue
                _look(pool, operations_due(now=datetime.now(UTC), late=LATE_SECONDS), holder)
            except DatabaseError:
                _log.warning("operations cannot be looked at now", exc_info=True)
                connections.close_all()
                stop.wait(REST_SECONDS)
            except Exception:
                _log.exception("operations could not be looked at")
                stop.wait(REST_SECONDS)


def _keep_sweeping(stop: threading.Event) -> None:
    while not stop.wait(SWEEP_SECONDS):
        _sweep(SWEEPS)


def _sweep(sweeps: Collection[Callable[..., object]]) -> None:
    """Each sweep was made once, unless fences are not whole; one that fails keeps no other from being made."""
    for sweep in sweeps:
        try:
            close_old_connections()
            if fences_whole():
                sweep(now=datetime.now(UTC))
        except DatabaseError:
            _log.warning("%s cannot be made now", sweep.__name__, exc_info=True)
            connections.close_all()
        except Exception:
            _log.exception("%s failed", sweep.__name__)


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
        _log.warning("the operation %s cannot go on now", operation, exc_info=True)
    except Exception:
        _log.exception("the operation %s could not go on", operation)
    finally:
        connections.close_all()
        with _lock:
            _running.discard(operation)
