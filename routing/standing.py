"""Keeps what a router decides from: workers, namespaces, policies, ticket keys; read in one thread, used in memory.

Each part is read at its own pace and stays as it was last read while PostgreSQL is away. Called by `hot` (begin, end)
and `deciding` (reads).
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from django.db import Error, close_old_connections, connections

from catalog.workers import Worker, workers
from kvconsole.infra.keystore import KeyMissing, KeyStoreUnavailable
from kvcore.policies import Policy, built_in, policy_of
from routing.candidates import Fleet
from routing.namespaces import Namespaces
from routing.selectors import policies
from tenants.services.key_lease import ticket_keys
from tenants.whole import fences_whole

TICK_SECONDS = 0.25
NAMES_SECONDS, POLICIES_SECONDS, TICKETS_SECONDS = 1.0, 1.0, 5.0
DEFAULT = "default"
"""Name of the policy of all models that have none of their own."""
_log = logging.getLogger(__name__)


class Standing:
    """What is known, and the thread that keeps it so."""

    def __init__(self, hand_over: Callable[[Callable[[], None]], None] | None = None) -> None:
        """`hand_over` runs a function where the router decides, in its event loop; by default at once."""
        self.fleet, self.namespaces = Fleet(), Namespaces()
        self.workers: dict[str, Worker] = {}
        """Node's id → one of its workers, for its key and address."""
        self.tickets: dict[str, bytes] = {}
        self.by_model: dict[str, Policy] = {}
        self.default: Policy = built_in()
        self.by_name: dict[str, Policy] = {}
        self.whole = False
        self.away_until = 0.0
        self.ready = threading.Event()
        self._hand_over = hand_over or (lambda act: act())
        self._due = dict.fromkeys(("names", "policies", "tickets"), 0.0)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def away(self) -> bool:
        """Whether PostgreSQL failed us a moment ago: nothing new can be learned now."""
        return time.monotonic() < self.away_until

    def policy(self, model: str) -> Policy:
        """The policy that decides this model's requests."""
        return self.by_model.get(model, self.default)

    def start(self) -> None:
        """The thread runs."""
        self._thread = threading.Thread(target=self._run, name="routing-standing", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The thread has ended."""
        self._stop.set()
        if self._thread:
            self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                close_old_connections()
                self.read()
                self.ready.set()
            except (Error, OSError):
                self.away_until = time.monotonic() + 4 * TICK_SECONDS
                _log.warning("PostgreSQL is away; decisions go on with what is known", exc_info=True)
                connections.close_all()
            except Exception:
                _log.exception("what routers decide from was not read")
                self._stop.wait(1.0)
            self._stop.wait(TICK_SECONDS)
        connections.close_all()

    def read(self) -> None:
        """Everything that is due is as the database says now.

        Raises:
            Error: the database is away.
        """
        now = time.monotonic()
        found = workers()
        self._hand_over(lambda: self._take(found))
        if self._is_due("names", NAMES_SECONDS, now):
            self.whole = fences_whole()
            self.namespaces.again()
        if self._is_due("policies", POLICIES_SECONDS, now):
            self._policies()
        new = any(w.state != "fenced" and str(w.node) not in self.tickets for w in found)
        if self._is_due("tickets", TICKETS_SECONDS, now) or new:
            self._tickets(found)

    def _is_due(self, part: str, every: float, now: float) -> bool:
        if now < self._due[part]:
            return False
        self._due[part] = now + every
        return True

    def _take(self, found: list[Worker]) -> None:
        self.fleet.take(found)
        self.workers = {str(w.node): w for w in found}

    def _policies(self) -> None:
        by_model: dict[str, Policy] = {}
        by_name: dict[str, Policy] = {}
        for row in policies():
            read = policy_of({**row.document, "name": row.name, "version": row.version, "model": row.model or None})
            if isinstance(read, list):
                _log.error("policy %s, version %s, cannot be read: %s", row.name, row.version, read[0].code)
                continue
            by_name[row.name] = read
            if row.model:
                by_model[row.model] = read
        self.by_model, self.by_name, self.default = by_model, by_name, by_name.get(DEFAULT, built_in())

    def _tickets(self, found: list[Worker]) -> None:
        nodes = sorted({str(w.node) for w in found if w.state != "fenced"})
        try:
            self.tickets = ticket_keys(nodes, datetime.now(UTC))
        except (KeyMissing, KeyStoreUnavailable) as e:
            _log.error("no new ticket keys: %s", type(e).__name__)
