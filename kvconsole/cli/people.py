"""The commands of `kvc` that are about people and service accounts."""

from typing import Annotated

import typer

from kvconsole.cli.client import USAGE, Failure
from kvconsole.cli.commands import Limit, Rehearse, change, given, many, one, place, post, remove

people = typer.Typer(help="People and service accounts.", no_args_is_help=True)
Person = Annotated[str, typer.Argument(help="Its id")]
Roles = Annotated[list[str] | None, typer.Option("--role", help="May come several times")]


@people.command("list")
def people_list(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Slug; `platform` = staff of the fleet")] = None,
    kind: Annotated[str | None, typer.Option(help="person or service")] = None, limit: Limit = 500,
) -> None:  # fmt: skip
    """The people and service accounts that you may see."""
    many(context, "/people", "id username kind roles tenant state last_login", limit, tenant=tenant, kind=kind)


@people.command("show")
def people_show(context: typer.Context, person: Person) -> None:
    """One person or service account."""
    one(context, f"/people/{place(person)}")


@people.command("create")
def people_create(
    context: typer.Context, username: Annotated[str, typer.Argument(help="Log-in name")], role: Roles = None,
    tenant: Annotated[str | None, typer.Option(help="Slug; else the fleet, or your own tenant")] = None,
    kind: Annotated[str | None, typer.Option(help="person or service; else person")] = None,
    email: str | None = None,
    how: Annotated[str | None, typer.Option(help="link, password or none; else link, none for a service")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Make a person or service account. Invitation or password is shown once, now."""
    body = given(username=username, roles=role, tenant=tenant, kind=kind, email=email, how=how)
    post(context, "/people", body, validate_only)


@people.command("change")
def people_change(
    context: typer.Context, person: Person, role: Roles = None,
    no_roles: Annotated[bool, typer.Option("--no-roles", help="All roles are taken")] = False,
    email: str | None = None,
    suspended: Annotated[bool | None, typer.Option("--suspended/--active", help="May not, or may act")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Change roles, address or suspension: at once, for all sessions and tokens. What is not named stays."""
    if role and no_roles:
        raise Failure(USAGE, "--role and --no-roles say different things.")
    body = given(roles=[] if no_roles else role or None, email=email, suspended=suspended)
    change(context, "PATCH", f"/people/{place(person)}", body, validate_only)


@people.command("remove")
def people_remove(context: typer.Context, person: Person, validate_only: Rehearse = False) -> None:
    """Name, address, factors, sessions and tokens are gone. This cannot be taken back."""
    remove(context, f"/people/{place(person)}", validate_only)


@people.command("shred")
def people_shred(context: typer.Context, person: Person, validate_only: Rehearse = False) -> None:
    """What the trail knows of the person cannot be read again, in no copy. Removes them too."""
    post(context, f"/people/{place(person)}:shred", None, validate_only)


@people.command("invite")
def people_invite(context: typer.Context, person: Person, validate_only: Rehearse = False) -> None:
    """A new invitation, shown once, now; earlier ones are void."""
    post(context, f"/people/{place(person)}:invite", None, validate_only)


def add_to(app: typer.Typer) -> None:
    """The group is a command of `app`."""
    app.add_typer(people, name="people")
