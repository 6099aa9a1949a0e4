"""Decides who an actor of the trail is: a person by name while their key lives, nobody known after.

The log names actors by a keyed hash of each 90-day period. Whoever has the keys can make the names of all people again
and compare; of whom the key was destroyed, nobody can.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from audit.disclosure import actor_refs
from kvconsole.infra.keystore import PERIOD_SECONDS
from kvcore.leaf import NOBODY
from tenants.models import User

MOST_PEOPLE = 20_000


class ActorName(NamedTuple):
    """A person of the trail."""

    id: str
    name: str
    """The log-in name of now; "" = the person was removed, and can still be told from others."""


def actor_names(acts: Iterable[tuple[bytes, int]]) -> dict[bytes, ActorName]:
    """The people behind these names of the log; who is not in it is no person, or one whose key is gone.

    On the plane of the caller: a tenant's own people are all that a tenant finds.

    Args:
        acts: (actor_ref, time_us) of events whose actor is a person or a person's token.
    """
    wanted: dict[int, set[bytes]] = {}
    for ref, time_us in acts:
        if bytes(ref) != NOBODY:
            wanted.setdefault(int(time_us / 1e6 // PERIOD_SECONDS), set()).add(bytes(ref))
    found: dict[bytes, ActorName] = {}
    if not wanted:
        return found
    people = User.objects.order_by("id").values_list("id", "username", "removed_at")[:MOST_PEOPLE]
    for user_id, username, removed_at in people:
        for period, refs in wanted.items():
            at = datetime.fromtimestamp(period * PERIOD_SECONDS, UTC)
            for ref in actor_refs(f"user:{user_id}", at, at):
                if ref in refs:
                    found[ref] = ActorName(str(user_id), "" if removed_at else username)
    return found
