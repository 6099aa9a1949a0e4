"""Invites a person from the command line of the server: the first one of a console, or one when nobody else can."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from kvconsole.infra.access import system, tenant_context
from kvconsole.infra.rest import Problem
from tenants import selectors, services


class Command(BaseCommand):
    """`person_create NAME --role operator --role approver [--tenant SLUG]`."""

    help = "Invite a person; prints a link that works once, within three days."

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        parser.add_argument("username")
        parser.add_argument("--role", action="append", default=[], dest="roles")
        parser.add_argument("--tenant", default="", help="slug; without it the person is staff of the fleet")
        parser.add_argument("--email", default="")

    def handle(self, *args: Any, **options: Any) -> None:
        """The person is invited.

        Raises:
            CommandError: the person was not made; says why.
        """
        actor = system("person_create")
        with tenant_context(actor):
            tenant = selectors.tenant_by_slug(options["tenant"]) if options["tenant"] else None
            if options["tenant"] and tenant is None:
                raise CommandError(f"there is no tenant {options['tenant']!r}")
            try:
                given = {name: options[name] for name in ("username", "roles", "email")}
                _, secret = services.person_create(**given, tenant=tenant, actor=actor)
            except Problem as problem:
                raise CommandError("; ".join([problem.text, *(e["detail"] for e in problem.errors)])) from problem
        self.stdout.write(f"{settings.CONSOLE_URL}{reverse('page-invitation')}#{secret}")
