"""Decides how often a password or a code may be tried: by account (known or not) from an address, and by address.

The counters are rows of PostgreSQL, so all processes share them and no restart forgets them. An attempt counts as
failed before it is looked at, and is taken back when it was right: many at once are no way around. Behind a few free
failures each one doubles the wait, up to `MOST`; a quiet time forgets them. Who guesses makes the own address wait and
no other: what an account takes from all addresses together is high, and the wait behind it short, so that whoever knows
a name cannot keep its owner out. A log-in by passkey is not counted, as there is nothing to guess.
"""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connections

from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.addresses import neighbourhood
from kvconsole.infra.rest import Problem, add_codes, private
from kvconsole.infra.sql import named
from tenants.lookalikes import normal

add_codes({"too-many-attempts": (429, "Too many attempts; wait before the next one")})

FREE = {"account": 5, "factor": 5, "address": 40, "account anywhere": 200, "factor anywhere": 25}
"""Failures that cost no waiting: of an account from one address, of an address, of an account from all addresses. Many
people can share an address. Who guesses codes knows the password already, so of codes there are fewer."""
QUIET, MOST = timedelta(minutes=15), timedelta(minutes=15)
MOST_ANYWHERE = {"account": timedelta(seconds=20), "factor": MOST}


@dataclass(frozen=True)
class Attempt:
    """One attempt that has begun and counts as failed until `passed`."""

    keys: tuple[bytes, ...]
    free: tuple[int, ...]

    def passed(self) -> None:
        """It was right: the account's counter at this address is gone, the others have their attempt back."""
        with connections[FLEET_PLANE].cursor() as cursor:
            cursor.execute(named("tenants")["guess_passed"], (self.keys[0], list(self.keys[1:]), list(self.free[1:])))


def begin(*, account: str, address: str, kind: str = "account") -> Attempt:
    """The attempt may be made, and counts.

    Args:
        account: the name as it was typed, or the id of the person whose second factor it is.
        address: where it comes from.
        kind: account | factor.

    Raises:
        Problem: too-many-attempts, with the seconds to wait; the attempt was not looked at.
    """
    name, place = normal(account)[:200].casefold(), neighbourhood(address)
    keys = (
        private("guess", kind, name, place),
        private("guess", "address", place),
        private("guess", f"{kind} anywhere", name),
    )
    free = (FREE[kind], FREE["address"], FREE[f"{kind} anywhere"])
    with connections[FLEET_PLANE].cursor() as cursor:
        values: list[Any] = [list(keys), list(free), QUIET, [MOST, MOST, MOST_ANYWHERE[kind]]]
        cursor.execute(named("tenants")["guess_begin"], values)
        wait = float(cursor.fetchone()[0])
    if wait > 0:
        raise Problem("too-many-attempts", retry_after_seconds=math.ceil(wait))
    return Attempt(keys, free)
