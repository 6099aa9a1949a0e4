"""Decides how many events a call leaves: one, however many things happened in it, and none if it was undone.

Without tables: what is recorded in a transaction that `gathered` has begun is kept, and handed over together just
before it ends to whoever writes events (`EVENTS_WRITER` in settings). A mark per event tells whether it survived: it
is bound to its savepoint, as everything else that waits for the commit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils.module_loading import import_string


class Mark:
    """One event of a call: done when its transaction has ended well."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def __call__(self) -> None:
        """The transaction has ended well."""
        self.done = True


@dataclass
class Call:
    """What one request has recorded so far."""

    audited: bool = False
    """Whether its route leaves an event: known when the route is."""
    kept: dict[str, list[tuple[Mark, Any]]] = field(default_factory=dict)
    """Connection → events of its transaction that are not written yet."""
    marks: list[tuple[str, Mark]] = field(default_factory=list)
    told: bool = False
    """Whether its event waits on disk for the database."""

    def mark(self, alias: str) -> Mark:
        """A mark for an event that is recorded now on this connection, in a transaction."""
        made = Mark()
        transaction.on_commit(made, using=alias)
        self.marks.append((alias, made))
        return made

    def left(self) -> bool:
        """Whether an event of the call is there, or will be when a transaction around the call ends."""
        return (
            self.told
            or any(mark.done for _, mark in self.marks)
            or any(mark in waiting(alias) for alias, mark in self.marks if connections[alias].in_atomic_block)
        )


_call: ContextVar[Call | None] = ContextVar("kvc_call", default=None)


@contextmanager
def call() -> Iterator[Call]:
    """One request; what is recorded in it belongs together."""
    made = Call()
    token = _call.set(made)
    try:
        yield made
    finally:
        _call.reset(token)


def audits(audited: bool) -> None:
    """The route of the current call is known: whether it leaves an event."""
    if (found := _call.get()) is not None:
        found.audited = audited


def told() -> None:
    """The event of the current call waits on disk for the database, or is counted."""
    if (found := _call.get()) is not None:
        found.told = True


def counts() -> None:
    """The current call is only counted although its route leaves an event: its body says that it is no intent."""
    if (found := _call.get()) is not None:
        found.audited, found.told = False, True


def current() -> Call | None:
    """The call whose events belong together; None: no request, or one that leaves no event."""
    found = _call.get()
    return found if found is not None and found.audited else None


def waiting(alias: str) -> list[Any]:
    """What waits for the commit on this connection; what was undone by a savepoint waits no more."""
    return [entry[1] for entry in connections[alias].run_on_commit]


@contextmanager
def gathered(alias: str) -> Iterator[None]:
    """What the call records on this connection is written together at the end, unless the transaction is undone."""
    found = _call.get()
    if found is None or alias in found.kept:
        yield
        return
    found.kept[alias] = []
    try:
        yield
        if found.kept[alias] and not connections[alias].needs_rollback:
            there = waiting(alias)
            kept = [event for mark, event in found.kept[alias] if mark in there]
            if kept:
                import_string(settings.EVENTS_WRITER)(alias, kept)
    finally:
        del found.kept[alias]


# --- calls that recorded nothing themselves ---------------------------------------------


@dataclass(frozen=True)
class Answered:
    """How a call of an audited route that changed nothing was answered."""

    route: str
    method: str
    status: int
    code: str
    """Of the refusal; "" = it was none."""
    why: str
    """Why nothing changed, where it was not refused: rehearsal, repeated or unchanged."""

    @property
    def refused(self) -> bool:
        """Whether it was refused: some pages say so with another status."""
        return self.status >= 400 or bool(self.code)


def answered(request: HttpRequest, route: str, response: HttpResponseBase) -> Answered:
    """How the call of this route was answered."""
    rehearsal = request.GET.get("validate_only", "false").lower() in ("true", "1")
    again = bool(response.headers.get("Idempotency-Replayed"))
    return Answered(
        route=route,
        method=request.method or "",
        status=response.status_code,
        code=getattr(response, "problem_code", ""),
        why="rehearsal" if rehearsal else "repeated" if again else "unchanged",
    )


def matched(request: HttpRequest) -> ResolverMatch | None:
    """The route of a request that was refused before it had one."""
    try:
        return resolve(request.path_info)
    except Resolver404:
        return None
