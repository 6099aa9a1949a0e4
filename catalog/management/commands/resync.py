"""`manage.py resync`: nodes list what they hold, and the catalog is repaired from what they list."""

import time
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from catalog import fleet
from catalog.models import Node, NodeCommand, Source
from catalog.services import inventory_request
from kvconsole.infra import arguments
from kvconsole.infra.access import system

LOOK_S = 0.2
ACTOR = "resync"


class Command(BaseCommand):
    """Orders an inventory of each node and waits until the writer has applied it."""

    help = "Ask nodes for their inventories and wait until the catalog has been verified against them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which nodes, which source, how long."""
        parser.add_argument("nodes", nargs="*", help="names; none = all enrolled nodes that are heard")
        parser.add_argument("--source", default="", help="only this source of the nodes")
        wait = arguments.number(0, 86_400)
        parser.add_argument("--wait", type=wait, default=30.0, help="seconds to wait (default 30; 0 = only order)")

    def handle(self, *args: Any, **options: Any) -> None:
        """One line per node; the exit code says whether all were verified."""
        since, nodes = datetime.now(UTC), self._nodes(options["nodes"])
        if not nodes:
            raise CommandError("no enrolled node is heard: there is nobody to ask")
        if source := options["source"]:
            known = set(Source.objects.filter(name=source).values_list("node_id", flat=True))
            if without := sorted(node.name for node in nodes if node.id not in known and options["nodes"]):
                raise CommandError(f"no source {source!r} was heard of: {', '.join(without)}; nobody was asked")
            nodes = [node for node in nodes if node.id in known]
            if not nodes:
                raise CommandError(f"no node has a source {source!r}; nobody was asked")
        orders = {node: self._order(node, source) for node in nodes}
        deadline = time.monotonic() + options["wait"]
        missing = dict(orders)
        while missing:
            for node in list(missing):
                if self._verified(node, options["source"], since):
                    self.stdout.write(f"{node.name}: verified")
                    del missing[node]
            if not missing or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_S)
        for node, order in missing.items():
            state = NodeCommand.objects.get(step=order.step).state
            self.stdout.write(f"{node.name}: order {state}, not verified yet")
        if missing and options["wait"]:
            raise CommandError(f"{len(missing)} of {len(orders)} nodes were not verified in {options['wait']:g} s")

    def _nodes(self, names: list[str]) -> list[Node]:
        known = Node.objects.filter(enrolled_at__isnull=False).order_by("name")
        if not names:
            return list(known.exclude(state__in=("lost", "fenced", "joining")))
        found = {n.name: n for n in known.filter(name__in=names)}
        if unknown := sorted(set(names) - found.keys()):
            raise CommandError(f"not an enrolled node: {', '.join(unknown)}")
        return list(found.values())

    def _order(self, node: Node, source: str) -> NodeCommand:
        """The order is written; it is sent at once, and if that fails, by the worker."""
        order = inventory_request(node=node, source=source, actor=system(ACTOR))
        fleet.command_send(step=order.step, holder=ACTOR, now=datetime.now(UTC))
        return order

    def _verified(self, node: Node, source: str, since: datetime) -> bool:
        rows = Source.objects.filter(node_id=node.id, can_list=True, boot__gt="")
        if source:
            rows = rows.filter(name=source)
        checked = list(rows.values_list("last_verified_at", flat=True))
        return bool(checked) and all(at is not None and at >= since for at in checked)
