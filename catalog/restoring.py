"""Decides when the fences of this database are all there are: after a restore, once what lies outside it was replayed.

In each new life of the database (`tenants.whole`) it is compared with what no dump holds: the key store, which marks
the newest fence and knows every generation that was made or destroyed, and the signer, which knows how long the log
was. If either is ahead, every node is asked which fences its journal has. Until all of that is raised again nothing is
answered; a node that is off is waited for, unless somebody says otherwise, which is an event. Called by the web
process's own look and by `manage.py fences_replay`.
"""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from audit.signing import PublicKeys, public_keys
from audit.tree import tree_now
from catalog import agents
from catalog.models import Node
from kvconsole.infra.access import FLEET_PLANE, system
from kvconsole.infra.keystore import keystore
from kvconsole.infra.sql import uuid7
from kvcore.messages import PROTOCOL, Command
from tenants.services.replaying import comparing, fences_behind, fences_compared, fences_replay
from tenants.whole import fences_whole

ACTOR = system("restore")
PAGE, PAGES_MOST, THREADS = 5_000, 10_000, 16
SECONDS = 60.0


class Compared(NamedTuple):
    """What came of it: whether the fences are whole, and the nodes that still have to say what they know."""

    whole: bool
    behind: bool = False
    waiting: tuple[str, ...] = ()


class _Line(msgspec.Struct, frozen=True):
    ns: str
    min_gen: str


class _Told(msgspec.Struct, frozen=True):
    fences: list[_Line]
    more: bool


def fences_compare(*, now: datetime, without: Collection[str] = ()) -> Compared:
    """The fences are whole in this life of the database, or as far as they can be now.

    Args:
        now: aware.
        without: names of nodes that are not waited for.
    """
    if fences_whole():
        return Compared(True)
    at = comparing()
    behind = at.behind or fences_behind() or _signed_more()
    answered = set(at.answered)
    if behind:
        fences_replay(seen=keystore().generations(), actor=ACTOR, now=now)
        nodes = [node for node in _nodes() if str(node.id) not in answered]
        with ThreadPoolExecutor(THREADS, "fences") as pool:
            told = list(pool.map(lambda node: _journal(node, now), nodes))
        for node, fences in zip(nodes, told, strict=True):
            if fences is not None:
                fences_replay(seen=fences, actor=ACTOR, now=now)
                answered.add(str(node.id))
    waiting = [node.name for node in _nodes() if behind and str(node.id) not in answered]
    left = tuple(name for name in waiting if name not in without)
    passed = [name for name in waiting if name in without] if not left else []
    fences_compared(life=at.life, behind=behind, answered=answered, done=not left, without=passed, actor=ACTOR)
    return Compared(not left, behind, left)


def _nodes() -> list[Node]:
    """Nodes that can know of fences. Who was fenced is not heard again before it was wiped."""
    return list(Node.objects.using(FLEET_PLANE).exclude(enrolled_at=None).exclude(state="fenced").order_by("name"))


def _signed_more() -> bool:
    """Whether more was signed than the log has: it was cut, or the database is an older one. A signer that is away says
    nothing; the key store speaks for the fences then."""
    keys = public_keys()
    return isinstance(keys, PublicKeys) and keys.size > tree_now().size


def _journal(node: Node, now: datetime) -> dict[bytes, int] | None:
    """All fences that the node's journal has; None: it did not say all of them now."""
    found: dict[bytes, int] = {}
    for page in _pages(node, now):
        if page is None:
            return None
        for line in page.fences:
            digest, gen = bytes.fromhex(line.ns), int(line.min_gen)
            found[digest] = max(found.get(digest, 0), gen)
    return found


def _pages(node: Node, now: datetime) -> Iterator[_Told | None]:
    after = ""
    for _ in range(PAGES_MOST):
        page = _told(agents.call(node, _command(node, {"after": after, "limit": PAGE}, now)))
        yield page
        if page is None or not page.more or not page.fences:
            return
        after = page.fences[-1].ns


def _told(answer: object) -> _Told | None:
    if not isinstance(answer, agents.Answered) or answer.receipt.outcome != "done":
        return None
    try:
        return msgspec.convert(answer.receipt.detail, _Told)
    except msgspec.ValidationError:
        return None


def _command(node: Node, args: dict[str, Any], now: datetime) -> Command:
    at = now.timestamp()
    return Command(
        v=PROTOCOL, step=str(uuid7()), kind="fences", node=str(node.id), order_hash="", issued_at=at,
        expires_at=at + SECONDS, args=args,
    )  # fmt: skip
