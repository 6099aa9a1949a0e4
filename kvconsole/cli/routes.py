"""The commands of `kvc` about routing: decisions, policies, hits that were lost, and how far a tenant is believed."""

from typing import Annotated, Any

import typer

from kvconsole.cli.commands import Limit, Rehearse, Slug, change, document, many, one, place

decisions = typer.Typer(help="What routers decided.", no_args_is_help=True)
policies = typer.Typer(help="Policies that routers decide by.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the policy")]


@decisions.command("list")
def decisions_list(context: typer.Context, limit: Limit = 50) -> None:
    """Decisions, newest first."""
    many(context, "/decisions", "at id tenant model policy node overlap_tokens predicted_ms measured_ms", limit)


@decisions.command("show")
def decisions_show(
    context: typer.Context, decision: Annotated[str, typer.Argument(help="Its id")],
) -> None:  # fmt: skip
    """One decision with what it was made from, scored once more."""
    one(context, f"/decisions/{place(decision)}")


@policies.command("show")
def policies_show(context: typer.Context, name: Name) -> None:
    """A policy as it is in force."""
    one(context, f"/policies/{place(name)}")


@policies.command("set")
def policies_set(
    context: typer.Context, name: Name,
    file: Annotated[str, typer.Argument(help="JSON of the policy; - is standard input")],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Put a policy in force. With --validate-only: what it would change of the decisions on record."""
    change(context, "PUT", f"/policies/{place(name)}", document(file), validate_only)


def trust(context: typer.Context, slug: Slug) -> None:
    """How much of what a tenant announced came true, and so what its announcements may bring about."""
    one(context, f"/tenants/{place(slug)}/trust")


def lost_hits(
    context: typer.Context, tenant: Annotated[str | None, typer.Option(help="Only this tenant's")] = None,
    namespace: Annotated[str | None, typer.Option(help="Only this namespace's: its digest")] = None,
    since: Annotated[str | None, typer.Option("--from", help="RFC 3339; an hour ago if not said")] = None,
    until: Annotated[str | None, typer.Option("--to", help="RFC 3339; now if not said")] = None,
) -> None:  # fmt: skip
    """What could have been reused and was not, by cause."""
    said: dict[str, Any] = {"tenant": tenant, "namespace": namespace, "from": since, "to": until}
    one(context, "/lost-hits", **said)


def add_to(app: typer.Typer) -> None:
    """All groups are commands of `app`."""
    app.add_typer(decisions, name="decisions")
    app.add_typer(policies, name="policies")
    app.command()(trust)
    app.command("lost-hits")(lost_hits)
