"""Decides what a tenant is told of the fleet and of others where an operation or a plan is shown: no names.

A node is named to a tenant by its id, as on certificates, which have nothing else: that tells copies apart, and says
nothing of sites, racks or counts in names. Of other tenants it is told that there are some, never which. The people of
the fleet are told everything. Called by `operation_views`, so pages, REST and command line agree.
"""

from collections.abc import Mapping
from typing import Any

from catalog.selectors import node_names
from kvconsole.infra.access import FLEET_PLANE, current_principal, plane


def veiled(found: dict[str, Any]) -> dict[str, Any]:
    """The view of an operation or a plan as the caller of now may have it."""
    return all_veiled([found])[0]


def all_veiled(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same of several; nodes are looked up once."""
    if plane() == FLEET_PLANE or not found:
        return found
    ids, own = node_names(), _own()
    return [_without_names(one, ids, own) for one in found]


def _own() -> str:
    who = current_principal()
    return who.tenant_slug if who else ""


def _without_names(found: dict[str, Any], ids: Mapping[str, str], own: str) -> dict[str, Any]:
    """Nodes by id; one that has no row any more is not named at all."""
    told = dict(found)
    if "cells" in told:
        told["cells"] = [_at(cell, ids) for cell in told["cells"]]
        told["blockers"] = [_at(one, ids) for one in told["blockers"]]
        told["unreachable"] = [ids.get(name, "") for name in told["unreachable"]]
        told["tenants"] = [slug for slug in told["tenants"] if slug == own]
        told["left_out"] = [{**one, "tenants": [s for s in one["tenants"] if s == own]} for one in told["left_out"]]
    if "progress" in told:
        told["progress"] = {**told["progress"], "cells": [_at(cell, ids) for cell in told["progress"]["cells"]]}
        told["conditions"] = [{**one, "message": ""} for one in told["conditions"]]
    return told


def _at(one: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    return {**one, "node": ids.get(one["node"], "")}
