"""Decides whether the fences in the database are all there are: they may not be after a restore.

A database that was restored believes in generations that were fenced since its dump. So fences count only in the life
of the database in which somebody has compared them with what lies outside of it (`catalog.restoring`): a restore, a
copy or a restart of PostgreSQL begins another life. Until then nothing is looked up, leased, resolved or taken in.
Asked by whoever answers one of these; any process can, with no more than its own log-in.
"""

import time

from django.conf import settings
from django.db import connections

from kvconsole.infra.access import FLEET_PLANE
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import named

add_codes({"fences-replaying": (503, "Fences are being brought up to date after a restore")})
FRESH_SECONDS = 0.5
_known = {"until": 0.0}


def life() -> str:
    """Names the present life of the fence log: another one after a restore or a copy of any kind and a restart."""
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(named("tenants", "operations.sql")["fence_life"])
        return str(cursor.fetchone()[0])


def fences_whole() -> bool:
    """Whether the fences were compared in this life; half a second old at most."""
    if not settings.FENCES_COMPARED or lately_whole():
        return True
    with connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute(named("tenants", "operations.sql")["fences_whole"])
        whole = bool(cursor.fetchone()[0])
    _known["until"] = time.monotonic() + FRESH_SECONDS if whole else 0.0
    return whole


def lately_whole() -> bool:
    """Whether they were whole a moment ago; asks nobody."""
    return not settings.FENCES_COMPARED or time.monotonic() < _known["until"]


def need_fences() -> None:
    """Passes where the fences are whole.

    Raises:
        Problem: fences-replaying.
    """
    if not fences_whole():
        raise Problem("fences-replaying", "It goes on by itself once every node was asked what it knows of fences.")


def forget() -> None:
    """The next question is asked of the database."""
    _known["until"] = 0.0
