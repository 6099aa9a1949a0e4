"""Decides what the page of hot prefixes shows. Names of prefixes are made of their keys; no prompt is known here.

A tenant's own people see their own prefixes and those of groups they are in, without nodes. Called by `views`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from catalog.prefix_reads import PrefixView, hot_prefixes
from catalog.selectors import node_names
from frontend.routing import sentences
from frontend.routing.decisions import staff
from frontend.wording import TIERS
from kvconsole.infra.access import Principal
from tenants import reading
from tenants.directory import shared_digests

ROWS = 50


def page(now: datetime, principal: Principal | None) -> dict[str, Any]:
    """The page."""
    fleet = staff(principal)
    tenant = None if principal is None else principal.tenant_id
    shared = shared_digests(tenant_id=tenant, now=now) if tenant else []
    found = hot_prefixes(now=now, limit=ROWS, tenant=tenant, shared=shared)
    names = {pk: name for name, pk in node_names().items()} if fleet else {}
    rights = readers(found, now) if fleet else {}
    return {
        "lines": [line(one, names, rights) for one in found],
        "tiers": TIERS,
        "fleet": fleet,
        "answer": sentences.prefixes(found),
        "as_of": now,
    }


def line(one: PrefixView, names: dict[str, str], rights: dict[str, list[str]]) -> dict[str, Any]:
    """One prefix."""
    return {
        "one": one,
        "cells": [(tier, one.tiers.get(tier, 0)) for tier in TIERS],
        "nodes": [names.get(node, node) for node in one.nodes] if names else [],
        "rights": rights.get(one.digest) or ([one.tenant] if one.tenant else []),
    }


def readers(found: Sequence[PrefixView], now: datetime) -> dict[str, list[str]]:
    """Namespace → the tenants with a right to it, where a group shares it; else it is its tenant's alone."""
    groups = reading.groups_of_namespaces([bytes.fromhex(one.digest) for one in found])
    views = {view.id: view for view in reading.share_groups(now=now) if view.state == "approved"} if groups else {}
    out: dict[str, list[str]] = {}
    for digest, group in groups.items():
        view = views.get(group)
        out[digest.hex()] = list(dict.fromkeys([view.owner, *view.audience])) if view else []
    return out
