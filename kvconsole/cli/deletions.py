"""The commands of `kvc` about deletions and other operations: plan, apply, wait, verify; pause, resume, stop."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from kvconsole.cli import output
from kvconsole.cli.client import REFUSED, Failure
from kvconsole.cli.commands import (
    Limit,
    Rehearse,
    change,
    client,
    document,
    given,
    many,
    one,
    place,
    post,
    show,
    start,
)

delete = typer.Typer(help="Deletions: plan, apply, wait, verify.", no_args_is_help=True)
operations = typer.Typer(help="Operations: deletions, retired epochs.", no_args_is_help=True)
holds = typer.Typer(help="Legal holds.", no_args_is_help=True)
Operation = Annotated[str, typer.Argument(help="Its id")]
POLL_SECONDS = 0.5
PLAN_COLUMNS = ["node", "source", "tier", "blocks", "bytes", "reachable"]
CELL_COLUMNS = ["node", "source", "tier", "state", "class", "done_bytes", "total_bytes"]


@delete.command("plan")
def delete_plan(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Its short name")] = None,
    namespace: Annotated[str | None, typer.Option(help="Id or digest")] = None,
    epoch: Annotated[str | None, typer.Option(help="model/number")] = None,
    subject: Annotated[str | None, typer.Option(help="Keyed digest, in hex")] = None,
    session: str | None = None, label: str | None = None,
    data_class: Annotated[str | None, typer.Option("--class", help="Data class")] = None,
    prefix: Annotated[list[str] | None, typer.Option(help="Key of a block, or half of it, in hex; repeatable")] = None,
    older_than: Annotated[str | None, typer.Option(help="RFC 3339: what was there before")] = None,
    collateral: Annotated[
        str | None,
        typer.Option(help="Of prefix and older-than: none (these blocks and all that continue them) or namespace"),
    ] = None,
    share_group: Annotated[list[str] | None, typer.Option(help="Goes too; may come several times")] = None,
    crypto_erase: Annotated[bool, typer.Option(help="Keys first, at once")] = False,
    override_pins: Annotated[bool, typer.Option(help="What is pinned goes too")] = False,
) -> None:  # fmt: skip
    """Freeze a plan of what would go. Nothing is deleted."""
    selector = given(tenant=tenant, namespace=namespace, epoch=epoch, subject=subject, session=session, label=label,
                     prefix=prefix, older_than=older_than)  # fmt: skip
    selector |= {"class": data_class} if data_class else {}
    options = given(collateral=collateral, share_groups=share_group, crypto_erase=crypto_erase or None,
                    override_pins=override_pins or None)  # fmt: skip
    body = {"selector": selector, **({"options": options} if options else {})}
    plan: dict[str, Any] = client(context).call("POST", "/deletion-plans", body).json()
    if context.obj.json:
        output.show_json(plan)
        return
    output.show_table(plan["cells"], PLAN_COLUMNS)
    print(f"{plan['blocks']} blocks, {plan['bytes']} bytes in {plan['namespaces']} namespaces; risk {plan['risk']}"
          f" ({', '.join(plan['reasons']) or 'none'})")  # fmt: skip
    for blocker in plan["blockers"]:
        print(f"in the way: {in_the_way(blocker)}")
    if plan["left_out"]:
        print(f"left out: {len(plan['left_out'])} namespaces that others read (--share-group)")
    phrase = f' --phrase "{plan["confirm_phrase"]}"' if plan["friction"]["phrase"] else ""
    reason = " --reason …" if plan["friction"]["reason"] else ""
    print(f"kvc delete apply {plan['id']} --hash {plan['plan_hash']}{reason}{phrase}")


def in_the_way(blocker: dict[str, Any]) -> str:
    """A blocker in words. Of a lease `ref` is the kind of its holders, `reason` how many they are."""
    kind, ref, reason = (output.printable(blocker[name]) for name in ("kind", "ref", "reason"))
    if blocker["kind"] != "key_lease":
        return f"{kind} {reason}"
    return (f"lease of the key of namespace {output.printable(blocker['ns'])}, holders: {reason} ({ref});"
            " that the key is gone is said once all are over")  # fmt: skip


@delete.command("apply")
def delete_apply(
    context: typer.Context, plan: Annotated[str, typer.Argument(help="Its id")],
    hash_: Annotated[str, typer.Option("--hash", help="As `kvc delete plan` said it")],
    reason: str | None = None, phrase: Annotated[str | None, typer.Option(help="What the plan asks to type")] = None,
    grace_seconds: Annotated[float | None, typer.Option(help="Between fence and erasing")] = None,
    throttle: Annotated[int | None, typer.Option(help="Bytes a second and node")] = None,
    pass_windows: Annotated[bool, typer.Option(help="In a deny window too; a second person must agree")] = False,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Start a plan: what it reaches is fenced at once, and then erased."""
    body = given(plan_id=plan, plan_hash=hash_, reason=reason, confirm_phrase=phrase, grace_seconds=grace_seconds,
                 throttle=throttle, pass_windows=pass_windows or None)  # fmt: skip
    start(context, "/deletions", body, validate_only)


@delete.command("subject")
def delete_subject(
    context: typer.Context, tenant: Annotated[str, typer.Argument(help="Its short name")],
    digest: Annotated[str, typer.Argument(help="Keyed digest of the subject, in hex")],
    reason: Annotated[str | None, typer.Option()] = None,
    phrase: Annotated[str | None, typer.Option(help="What its plan asks to type")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Plan and start in one call what is cached of one subject, where its risk is small."""
    path = f"/tenants/{place(tenant)}/subjects/{place(digest)}"
    params = {"confirm_phrase": phrase, "reason": reason, "validate_only": "true" if validate_only else None}
    show(context, client(context).call("DELETE", path, params=params).json())


@delete.command("wait")
def delete_wait(
    context: typer.Context, operation: Operation,
    seconds: Annotated[float, typer.Option(min=0, help="At most so long")] = 600.0,
) -> None:  # fmt: skip
    """Wait until an operation has ended; exit code 1 if it ended without a certificate, or did not end in time."""
    deadline, console = time.monotonic() + seconds, client(context)
    while True:
        found: dict[str, Any] = console.call("GET", f"/operations/{place(operation)}").json()
        if found["done"] or time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    if context.obj.json:
        output.show_json(found)
    else:
        output.show_table(found["progress"]["cells"], CELL_COLUMNS)
        far = found["progress"]["percent"]
        print(f"{output.printable(found['state'])}, {'progress unknown' if far is None else f'{far} %'}")
    if not found["certificate"] and found["state"] != "completed":  # a move has none
        raise Failure(REFUSED, f"The operation is {output.printable(found['state'])}: there is no certificate.")


@delete.command("verify")
def delete_verify(
    context: typer.Context, operation: Operation,
    out: Annotated[Path | None, typer.Option(help="Where the certificate is kept")] = None,
) -> None:  # fmt: skip
    """Take the certificate of an operation, and ask the console whether it issued it. `kvc verify` checks it alone."""
    console = client(context)
    found: dict[str, Any] = console.call("GET", f"/operations/{place(operation)}").json()
    if not found["certificate"]:
        raise Failure(REFUSED, f"The operation is {output.printable(found['state'])}: there is no certificate.")
    answer = console.call("GET", f"/certificates/{place(found['certificate'])}.json")
    if out is not None:
        out.write_bytes(answer.content)
    verdict: dict[str, Any] = console.call("POST", "/certificates:verify", {"certificate": answer.json()}).json()
    show(context, verdict)
    if not verdict["valid"]:
        raise Failure(REFUSED, "The certificate is not good.")


@operations.command("list")
def operations_list(
    context: typer.Context, state: Annotated[str | None, typer.Option(help="open, or how it ended")] = None,
    limit: Limit = 500,
) -> None:  # fmt: skip
    """Operations, newest first."""
    many(context, "/operations", "id kind state risk requested_by created_at certificate", limit, state=state)


@operations.command("show")
def operations_show(context: typer.Context, operation: Operation) -> None:
    """One operation."""
    one(context, f"/operations/{place(operation)}")


@operations.command("pause")
def operations_pause(context: typer.Context, operation: Operation, validate_only: Rehearse = False) -> None:
    """Nothing more is sent; the fence stays."""
    post(context, f"/operations/{place(operation)}:pause", None, validate_only)


@operations.command("resume")
def operations_resume(context: typer.Context, operation: Operation, validate_only: Rehearse = False) -> None:
    """Go on."""
    post(context, f"/operations/{place(operation)}:resume", None, validate_only)


@operations.command("stop")
def operations_stop(context: typer.Context, operation: Operation, validate_only: Rehearse = False) -> None:
    """End it where it is. What was fenced stays unreachable."""
    post(context, f"/operations/{place(operation)}:stop", None, validate_only)


@operations.command("throttle")
def operations_throttle(
    context: typer.Context, operation: Operation,
    throttle: Annotated[int, typer.Argument(min=0, help="Bytes a second and node; 0 = none")],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Set how fast each node may erase."""
    change(context, "PATCH", f"/operations/{place(operation)}", {"throttle": throttle or None}, validate_only)


@holds.command("list")
def holds_list(context: typer.Context, limit: Limit = 500) -> None:
    """Legal holds, newest first."""
    many(context, "/holds", "id state authority namespaces review_at requested_by", limit)


@holds.command("show")
def holds_show(context: typer.Context, hold: Operation) -> None:
    """One hold."""
    one(context, f"/holds/{place(hold)}")


@holds.command("create")
def holds_create(
    context: typer.Context,
    selector: Annotated[str, typer.Argument(help="JSON file with what it covers; - = standard input")],
    authority: Annotated[str, typer.Option(help="Who demands it")],
    reason: Annotated[str, typer.Option(help="For the trail")],
    review_at: Annotated[str, typer.Option(help="RFC 3339: when somebody looks at it again")],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Ask for a hold; somebody else must approve it. A person's own session is needed: no token does this."""
    body = given(selector=document(selector), authority=authority, reason=reason, review_at=review_at)
    post(context, "/holds", body, validate_only)


@holds.command("release")
def holds_release(
    context: typer.Context, hold: Operation, reason: Annotated[str, typer.Option(help="For the trail")],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Ask for the end of a hold; somebody else must approve it."""
    post(context, f"/holds/{place(hold)}:release", given(reason=reason), validate_only)


def add_to(app: typer.Typer) -> None:
    """All groups are commands of `app`."""
    app.add_typer(delete, name="delete")
    app.add_typer(operations, name="operations")
    app.add_typer(holds, name="holds")
