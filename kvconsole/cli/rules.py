"""The commands of `kvc` about rules: deny windows, and the end of sessions."""

from typing import Annotated

import typer

from kvconsole.cli.commands import Limit, Rehearse, given, many, one, place, post, remove

windows = typer.Typer(help="Deny windows: when nothing destructive starts.", no_args_is_help=True)
sessions = typer.Typer(help="Sessions of a tenant.", no_args_is_help=True)
Window = Annotated[str, typer.Argument(help="Its id")]


@windows.command("list")
def windows_list(context: typer.Context, limit: Limit = 500) -> None:
    """Deny windows, newest first; `open_until` says which is open now."""
    many(context, "/deny-windows", "id cron minutes from_risk open_until reason", limit)


@windows.command("show")
def windows_show(context: typer.Context, window: Window) -> None:
    """One deny window."""
    one(context, f"/deny-windows/{place(window)}")


@windows.command("create")
def windows_create(
    context: typer.Context, cron: Annotated[str, typer.Argument(help="Five fields, UTC: when it begins")],
    minutes: Annotated[int, typer.Option(min=1, help="How long it lasts")],
    reason: Annotated[str, typer.Option(help="For the trail")],
    from_risk: Annotated[str | None, typer.Option(help="R1, R2 or R3: from which risk on; else R1")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only for this tenant's matters")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Keep operations from starting at certain times. What runs goes on; what rules ask for waits."""
    body = given(cron=cron, minutes=minutes, from_risk=from_risk, reason=reason, tenant=tenant)
    post(context, "/deny-windows", body, validate_only)


@windows.command("remove")
def windows_remove(context: typer.Context, window: Window, validate_only: Rehearse = False) -> None:
    """Take a deny window away: what it held back may start."""
    remove(context, f"/deny-windows/{place(window)}", validate_only)


@sessions.command("end")
def sessions_end(
    context: typer.Context, session: Annotated[str, typer.Argument(help="As requests name it")],
    tenant: Annotated[str | None, typer.Option(help="Whose it is; a tenant's own token means its own")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Say that a session has ended: what is cached of it goes."""
    post(context, f"/sessions/{place(session)}/hints", {"event": "end", **given(tenant=tenant)}, validate_only)


def add_to(app: typer.Typer) -> None:
    """All groups are commands of `app`."""
    app.add_typer(windows, name="windows")
    app.add_typer(sessions, name="sessions")
