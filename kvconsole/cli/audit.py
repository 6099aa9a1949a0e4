"""The commands of `kvc` that are about the audit log, its exports and verifications, and webhooks."""

import time
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from kvconsole.cli import output
from kvconsole.cli.client import UNREACHABLE, Failure, refusal
from kvconsole.cli.commands import Limit, Rehearse, change, client, given, many, one, place, post, remove, rows, show

audit = typer.Typer(help="The audit log: events, proofs, exports, verifications.", no_args_is_help=True)
webhooks = typer.Typer(help="Where others are told of what the log records.", no_args_is_help=True)
Epoch = Annotated[int | None, typer.Option(min=1, help="Number of the log; else the present one")]
EventId = Annotated[str, typer.Argument(help="Id of the event")]
JobId = Annotated[str, typer.Argument(help="Id of the export or verification")]
Hook = Annotated[str, typer.Argument(help="Id of the webhook")]
Actor = Annotated[str | None, typer.Option(help="Log-in name, id of a person, subject, or name in the log")]
Action = Annotated[str | None, typer.Option(help="A type, or the noun of several")]
Object = Annotated[str | None, typer.Option("--object", help="A kind, or kind:id")]
Tenant = Annotated[str | None, typer.Option(help="Slug or id; `platform`")]
Outcome = Annotated[str | None, typer.Option(help="success, failure, denied or unknown")]
Since = Annotated[str | None, typer.Option("--from", help="RFC 3339")]
Until = Annotated[str | None, typer.Option("--to", help="RFC 3339")]
REVIEW = (
    ("What cannot be taken back", "powers", "scope person roles calls"),
    ("People who can", "people", "username tenant roles suspended last_login"),
    ("Tokens that can", "tokens", "name id owner tenant scopes last_used_at expires_at"),
    ("Tokens that nobody uses", "unused_tokens", "name id owner tenant last_used_at expires_at"),
    ("Attempts to approve one's own request", "own_approvals", "time action actor id"),
)
Kinds = Annotated[list[str] | None, typer.Option("--event", help="Kind of message; may come several times")]


@audit.command("events")
def audit_events(
    context: typer.Context, actor: Actor = None, action: Action = None, object_: Object = None, tenant: Tenant = None,
    outcome: Outcome = None, request_id: str | None = None, since: Since = None, until: Until = None, limit: Limit = 50,
) -> None:  # fmt: skip
    """The events of the log, newest first. This search is an event too."""
    many(context, "/audit/events", "index time action outcome actor object request_id id", limit,
         **{"actor": actor, "action": action, "object": object_, "tenant": tenant, "outcome": outcome,
            "request_id": request_id, "from": since, "to": until})  # fmt: skip


@audit.command("show")
def audit_show(context: typer.Context, event: EventId) -> None:
    """One event."""
    one(context, f"/audit/events/{place(event)}")


@audit.command("checkpoint")
def audit_checkpoint(
    context: typer.Context, epoch: Epoch = None,
    note: Annotated[bool, typer.Option("--note", help="Only the signed note, to be kept in a file")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="Only the public keys, a line each: a keys.txt")] = False,
) -> None:  # fmt: skip
    """The newest signed checkpoint, and the keys to check it with."""
    found = client(context).call("GET", "/audit/checkpoint", params={"epoch": epoch}).json()
    if not (note or keys):
        show(context, found)
    elif note:
        print(found["note"], end="")
    else:
        print("".join(f"{key}\n" for key in found["keys"] or ()), end="")


@audit.command("consistency")
def audit_consistency(
    context: typer.Context, old: Annotated[int, typer.Argument(min=0, help="Entries of the checkpoint that was kept")],
    new: Annotated[int | None, typer.Option(min=0, help="Entries of the newer one; else the newest signed one")] = None,
    epoch: Epoch = None,
) -> None:  # fmt: skip
    """What shows that the log only grew, as a file for `kvc verify consistency OLD NEW --proof FILE`."""
    params = {"old": old, "new": new, "epoch": epoch}
    print(client(context).call("GET", "/audit/consistency", params=params, media="text/plain").text, end="")


@audit.command("proof")
def audit_proof(context: typer.Context, event: EventId) -> None:
    """The proof that an event is in the log, as a file for `kvc verify proof`."""
    print(client(context).call("GET", f"/audit/proofs/{place(event)}", media="text/plain").text, end="")


@audit.command("state")
def audit_state(context: typer.Context) -> None:
    """How the log stands: what waits, signer, witness, findings."""
    one(context, "/audit/state")


@audit.command("findings")
def audit_findings(
    context: typer.Context, state: Annotated[str | None, typer.Option(help="open or closed; else both")] = None,
    limit: Limit = 50,
) -> None:  # fmt: skip
    """What was found amiss in the log, newest first."""
    columns = "id kind index first_seen last_seen closed_at acknowledged about"
    many(context, "/audit/findings", columns, limit, state=state)


@audit.command("finding")
def audit_finding(context: typer.Context, finding: Annotated[int, typer.Argument(min=0, help="Its id")]) -> None:
    """One finding. That it was looked into an auditor says in the browser; nobody can close it."""
    one(context, f"/audit/findings/{finding}")


@audit.command("logs")
def audit_logs(context: typer.Context) -> None:
    """The logs that went on after each other, the present one last."""
    found = client(context).call("GET", "/audit/epochs").json()
    if context.obj.json:
        output.show_json(found)
        return
    output.show_table(found["items"], ["number", "origin", "size", "ended", "began_at", "reason", "lost", "approval"])
    if found["asked"]:
        print("\nRequests that the present one ends:")
        output.show_table(found["asked"], ["id", "state", "requested_at", "expires_at", "what"])


@audit.command("end-log")
def audit_end_log(
    context: typer.Context, reason: Annotated[str, typer.Option(help="restore, key-stolen or key-replaced")],
    note: Annotated[str, typer.Option(help="In your own words; it is sealed")] = "", validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Ask that the log ends and another one goes on after it. Another person decides, in the browser."""
    post(context, "/audit/epochs", {"reason": reason, "note": note}, validate_only)


@audit.command("order")
def audit_order(
    context: typer.Context, approval: Annotated[str, typer.Argument(help="Id of the approved request")]
) -> None:
    """The order of a new log, for a file that is brought to the signer: `manage.py signer --new-epoch FILE`."""
    output.show_json(client(context).call("GET", f"/audit/epochs/{place(approval)}/order").json())


@audit.command("retentions")
def audit_retentions(context: typer.Context) -> None:
    """Of which classes and months the bodies went."""
    found = client(context).call("GET", "/audit/retentions").json()["items"]
    rows(context, found, "month class events first_index last_index at approval")


@audit.command("retire")
def audit_retire(
    context: typer.Context, month: Annotated[str, typer.Argument(help="In UTC, like 2025-01")],
    class_: Annotated[int, typer.Option("--class", help="The high byte of the types: 1 identity … 8 break-glass")],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Ask that the bodies of a class of events and a month go. Another person decides, in the browser."""
    post(context, "/audit/retentions", {"class": class_, "month": month}, validate_only)


@audit.command("access-review")
def audit_access_review(context: typer.Context) -> None:
    """Who can delete what today, tokens that nobody uses, and attempts to approve one's own wishes."""
    found = client(context).call("GET", "/audit/access-review").json()
    if context.obj.json:
        output.show_json(found)
        return
    for title, name, columns in REVIEW:
        print(f"{title}:")
        output.show_table(found[name], columns.split())
        print()
    print("Complete: " + output.printable(found["complete"]) + ", as of " + output.printable(found["as_of"]))


@audit.command("export")
def audit_export(
    context: typer.Context, actor: Actor = None, action: Action = None, object_: Object = None, tenant: Tenant = None,
    outcome: Outcome = None, request_id: str | None = None, since: Since = None, until: Until = None,
    format_: Annotated[str | None, typer.Option("--format", help="jsonl, csv, ocsf or parquet")] = None,
    proofs: Annotated[bool, typer.Option(help="A signed bundle; else only the rendering")] = True,
    personal_data: Annotated[bool, typer.Option("--personal-data", help="Disclosed; for people only")] = False,
    size: Annotated[int | None, typer.Option(help="Under the checkpoint of this size; else the newest")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is made")] = False, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Ask for an export of events."""
    filters = given(actor=actor, action=action, object=object_, tenant=tenant, outcome=outcome, request_id=request_id)
    body = given(format=format_, size=size, filters=filters or None)
    body |= given(**{"from": since, "to": until}) | {"proofs": proofs, "personal_data": personal_data}
    if not wait or validate_only:
        post(context, "/audit/exports", body, validate_only)
        return
    _wait(context, client(context).call("POST", "/audit/exports", body).json())


@audit.command("verify")
def audit_verify(
    context: typer.Context, wait: Annotated[bool, typer.Option("--wait", help="Until the verdict is there")] = False,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Ask the console to hash all of the log again."""
    if not wait or validate_only:
        post(context, "/audit:verify", None, validate_only)
        return
    _wait(context, client(context).call("POST", "/audit:verify").json())


@audit.command("jobs")
def audit_jobs(
    context: typer.Context, kind: Annotated[str | None, typer.Option(help="export or verify")] = None,
    limit: Limit = 50,
) -> None:  # fmt: skip
    """Exports and verifications, newest first."""
    many(context, "/audit/jobs", "id kind state progress waits_for created_at expires_at", limit, kind=kind)


@audit.command("job")
def audit_job(context: typer.Context, job: JobId) -> None:
    """One of them: how far it is, and what came of it."""
    one(context, f"/audit/jobs/{place(job)}")


@audit.command("cancel")
def audit_cancel(context: typer.Context, job: JobId, validate_only: Rehearse = False) -> None:
    """End one that nobody wants any more."""
    post(context, f"/audit/jobs/{place(job)}:cancel", None, validate_only)


@audit.command("download")
def audit_download(
    context: typer.Context, job: JobId,
    to: Annotated[Path, typer.Option("--to", help="The file; what is there of it already is gone on with")],
) -> None:  # fmt: skip
    """Take an export away. It may be cut off and called again."""
    console, part = client(context), to.with_name(f"{to.name}.part")
    start = part.stat().st_size if part.exists() else 0
    headers = {"Authorization": f"Bearer {console.token}"} | ({"Range": f"bytes={start}-"} if start else {})
    url = f"{console.url}/api/v1/audit/jobs/{place(job)}/download"
    try:
        with httpx.stream("GET", url, headers=headers, timeout=30.0, follow_redirects=False) as answer:
            if answer.status_code >= 300:
                answer.read()
                raise refusal(answer)
            with part.open("ab" if answer.status_code == 206 else "wb") as file:
                for piece in answer.iter_bytes():
                    file.write(piece)
    except httpx.HTTPError as e:
        raise Failure(UNREACHABLE, f"{console.url} stopped answering: {type(e).__name__}; call it again.") from None
    part.replace(to)
    print(f"{output.printable(to)}: {to.stat().st_size} bytes")


def _wait(context: typer.Context, job: dict[str, Any]) -> None:
    """The job once it has ended, shown."""
    while job["state"] in ("queued", "running"):
        time.sleep(1)
        job = client(context).call("GET", f"/audit/jobs/{place(job['id'])}").json()
    show(context, job)


# --- webhooks ------------------------------------------------------------------------


@webhooks.command("list")
def webhooks_list(context: typer.Context, limit: Limit = 500) -> None:
    """The webhooks."""
    many(context, "/webhooks", "id name url events state reason failing_since", limit)


@webhooks.command("show")
def webhooks_show(context: typer.Context, webhook: Hook) -> None:
    """One webhook."""
    one(context, f"/webhooks/{place(webhook)}")


@webhooks.command("create")
def webhooks_create(
    context: typer.Context, url: str, events: Kinds = None, name: str | None = None, validate_only: Rehearse = False
) -> None:
    """Make a webhook. Its secret is shown once, now."""
    post(context, "/webhooks", given(url=url, events=events, name=name), validate_only)


@webhooks.command("change")
def webhooks_change(
    context: typer.Context, webhook: Hook, url: str | None = None, events: Kinds = None, name: str | None = None,
    state: Annotated[str | None, typer.Option(help="active or paused")] = None, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Change a webhook; what is not named stays."""
    body = given(url=url, events=events or None, name=name, state=state)
    change(context, "PATCH", f"/webhooks/{place(webhook)}", body, validate_only)


@webhooks.command("rotate")
def webhooks_rotate(context: typer.Context, webhook: Hook, validate_only: Rehearse = False) -> None:
    """Give a webhook another secret, shown once, now; the old one signs for 24 hours more."""
    post(context, f"/webhooks/{place(webhook)}:rotate", None, validate_only)


@webhooks.command("test")
def webhooks_test(context: typer.Context, webhook: Hook, validate_only: Rehearse = False) -> None:
    """Send a message that says nothing."""
    post(context, f"/webhooks/{place(webhook)}:test", None, validate_only)


@webhooks.command("deliveries")
def webhooks_deliveries(context: typer.Context, webhook: Hook, limit: Limit = 50) -> None:
    """What was sent to a webhook, newest first."""
    columns = "id kind state attempts status problem created_at last_at next_at"
    many(context, f"/webhooks/{place(webhook)}/deliveries", columns, limit)


@webhooks.command("remove")
def webhooks_remove(context: typer.Context, webhook: Hook, validate_only: Rehearse = False) -> None:
    """A webhook is gone, with its secret and what was on its way."""
    remove(context, f"/webhooks/{place(webhook)}", validate_only)


def add_to(app: typer.Typer) -> None:
    """The groups are commands of `app`."""
    app.add_typer(audit, name="audit")
    app.add_typer(webhooks, name="webhooks")
