"""The commands of `kvc` about moves: migrate, drain, cordon, prefetch; and pins, which keep blocks where they are."""

from typing import Annotated

import typer

from kvconsole.cli.commands import Limit, Node, Rehearse, given, many, node_place, one, place, post, remove

pins = typer.Typer(help="Pins: blocks that stay where they lie until a time.", no_args_is_help=True)
Throttle = Annotated[int | None, typer.Option(help="Bytes a second, of a tier and a link")]
Deadline = Annotated[str | None, typer.Option(help="RFC 3339; else within an hour")]
PIN_COLUMNS = "id namespace whole blocks until requested_by reason"


def migrate(
    context: typer.Context,
    from_tier: Annotated[str, typer.Option("--from", help="Tier")],
    to_tier: Annotated[str, typer.Option("--to", help="Tier")],
    to_node: Annotated[str | None, typer.Option(help="Name or id; else each node its own")] = None,
    tenant: Annotated[str | None, typer.Option(help="Its short name")] = None,
    namespace: Annotated[str | None, typer.Option(help="Id or digest")] = None,
    epoch: Annotated[str | None, typer.Option(help="model/number")] = None,
    subject: Annotated[str | None, typer.Option(help="Keyed digest, in hex")] = None,
    session: str | None = None, label: str | None = None,
    data_class: Annotated[str | None, typer.Option("--class", help="Data class")] = None,
    throttle: Throttle = None, deadline: Deadline = None, reason: str | None = None, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Move what is selected from one tier to another; readers see the old place or the new one."""
    selector = given(tenant=tenant, namespace=namespace, epoch=epoch, subject=subject, session=session, label=label)
    selector |= {"class": data_class} if data_class else {}
    more = given(to_node=to_node, throttle=throttle, deadline=deadline, reason=reason)
    post(context, "/migrations", {"selector": selector, "from_tier": from_tier, "to_tier": to_tier, **more},
         validate_only)  # fmt: skip


def drain(
    context: typer.Context, node: Node,
    recompute: Annotated[bool, typer.Option(help="What no other node has room for is let go")] = False,
    confirm_phrase: Annotated[str | None, typer.Option(help="With --recompute: recompute NODE'S-NAME")] = None,
    throttle: Throttle = None, deadline: Deadline = None, reason: str | None = None, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Move all blocks of a node to other nodes."""
    body = given(recompute=recompute or None, confirm_phrase=confirm_phrase, throttle=throttle, deadline=deadline,
                 reason=reason)  # fmt: skip
    post(context, f"{node_place(context, node)}:drain", body, validate_only)


def cordon(
    context: typer.Context, node: Node, reason: str | None = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Send nothing new to a node; what lies there is read as ever."""
    post(context, f"{node_place(context, node)}:cordon", given(reason=reason), validate_only)


def uncordon(
    context: typer.Context, node: Node, reason: str | None = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Let a node take what comes again, also one that was drained."""
    post(context, f"{node_place(context, node)}:uncordon", given(reason=reason), validate_only)


def prefetch(
    context: typer.Context,
    namespace: Annotated[str, typer.Option(help="Id or digest")],
    prefix: Annotated[list[str], typer.Option(help="Key of a block, in hex; may come several times")],
    to_node: Annotated[str, typer.Option(help="Name or id")],
    to_tier: Annotated[str, typer.Option("--to", help="Tier")],
    need_at: Annotated[str, typer.Option(help="RFC 3339: when it has to be there")],
    throttle: Throttle = None, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Copy a prefix to where it will be needed, if there is time for it."""
    body = {"namespace": namespace, "prefix": prefix, "to_node": to_node, "to_tier": to_tier, "need_at": need_at}
    post(context, "/prefetches", body | given(throttle=throttle), validate_only)


@pins.command("list")
def pins_list(
    context: typer.Context, namespace: Annotated[str | None, typer.Option(help="Only of this one (id)")] = None,
    limit: Limit = 500,
) -> None:  # fmt: skip
    """Pins, newest first."""
    many(context, "/pins", PIN_COLUMNS, limit, **given(namespace=namespace))


@pins.command("show")
def pins_show(context: typer.Context, pin: Annotated[str, typer.Argument(help="Its id")]) -> None:
    """One pin."""
    one(context, f"/pins/{place(pin)}")


@pins.command("create")
def pins_create(
    context: typer.Context, namespace: Annotated[str, typer.Argument(help="Id or digest")],
    until: Annotated[str, typer.Option(help="RFC 3339")],
    prefix: Annotated[list[str] | None, typer.Option(help="Key of a block, in hex; may come several times")] = None,
    reason: str | None = None, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Keep a namespace, or a prefix of it, where it lies."""
    body = {"namespace": namespace, "until": until, **given(prefix=prefix, reason=reason)}
    post(context, "/pins", body, validate_only)


@pins.command("remove")
def pins_remove(
    context: typer.Context, pin: Annotated[str, typer.Argument(help="Its id")], validate_only: Rehearse = False
) -> None:
    """Take a pin away."""
    remove(context, f"/pins/{place(pin)}", validate_only)


def add_to(app: typer.Typer) -> None:
    """The commands are part of `kvc`."""
    app.command("migrate")(migrate)
    app.command("drain")(drain)
    app.command("cordon")(cordon)
    app.command("uncordon")(uncordon)
    app.command("prefetch")(prefetch)
    app.add_typer(pins, name="pins")
