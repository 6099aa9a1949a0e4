"""The commands of `kvc` that are about tenants and nodes, and what all commands have in common.

Each command is one call of the REST API, or the pages of one list. Others: `reuse`, `people`.
"""

import contextlib
import json
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from kvconsole.cli import output
from kvconsole.cli.client import REFUSED, UNKNOWN, USAGE, Client, Failure

MOST_NODES = 100_000
Node = Annotated[str, typer.Argument(help="Its name or id")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many")]
Rehearse = Annotated[bool, typer.Option("--validate-only", help="The whole check, no effect")]
Slug = Annotated[str, typer.Argument(help="Short name of the tenant")]


def client(context: typer.Context) -> Client:
    """The console of this command."""
    found: Client = context.obj.client()
    return found


def show(context: typer.Context, value: Any) -> None:
    """An answer, as it was asked for."""
    if context.obj.json:
        output.show_json(value)
    else:
        output.show_one(value)


def one(context: typer.Context, path: str, **params: Any) -> None:
    """One object of the API."""
    show(context, client(context).call("GET", path, params=params).json())


def many(context: typer.Context, path: str, columns: str, limit: int, **params: Any) -> None:
    """A list of the API."""
    rows(context, client(context).pages(path, limit=limit, params=params), columns)


def rows(context: typer.Context, found: Iterable[dict[str, Any]], columns: str) -> None:
    """Items of the API, as they were asked for."""
    if context.obj.json:
        output.show_json(list(found))
    else:
        output.show_table(found, columns.split())


def post(context: typer.Context, path: str, body: Any, rehearse: bool = False) -> None:
    """A POST, and its answer."""
    params = {"validate_only": "true" if rehearse else None}
    show(context, client(context).call("POST", path, body, params=params).json())


def start(context: typer.Context, path: str, body: Any, rehearse: bool = False) -> None:
    """A POST that starts an operation; what goes wrong says what was not done, or that nobody knows.

    Raises:
        Failure: as the call.
    """
    try:
        post(context, path, body, rehearse)
    except Failure as failure:
        undone = "Nothing was fenced and nothing was deleted."
        if failure.code not in (REFUSED, USAGE, UNKNOWN):
            undone = "Whether it was started is not known: kvc operations list --state open"
        raise Failure(failure.code, f"{failure.text}\n{undone}", failure.problem) from None


def remove(context: typer.Context, path: str, rehearse: bool = False) -> None:
    """A DELETE; it answers nothing."""
    client(context).call("DELETE", path, params={"validate_only": "true" if rehearse else None})


def change(context: typer.Context, method: str, path: str, body: dict[str, Any], rehearse: bool) -> None:
    """A PUT or PATCH of what is there now: if somebody changes it meanwhile, nothing is done."""
    if not body:
        raise Failure(USAGE, "Nothing to change was named.")
    console = client(context)
    tag = console.call("GET", path).headers["ETag"]
    params = {"validate_only": "true" if rehearse else None}
    show(context, console.call(method, path, body, match=tag, params=params).json())


def document(path: str) -> Any:
    """The JSON of a file, or of standard input for `-`.

    Raises:
        Failure: it is not there, or not JSON.
    """
    try:
        return json.loads(sys.stdin.read() if path == "-" else Path(path).read_text())
    except (OSError, ValueError) as e:
        raise Failure(USAGE, f"{path}: {e}") from None


def given(**fields: Any) -> dict[str, Any]:
    """The fields that were named."""
    return {name: value for name, value in fields.items() if value is not None}


def numbers(pairs: list[str] | None, shape: str) -> dict[str, int] | None:
    """`name=number` words as a dictionary, None where there are none.

    Raises:
        Failure: one is not of that `shape`, which the person is told.
    """
    if pairs is None:
        return None
    try:
        return {name: int(value) for name, value in (pair.split("=", 1) for pair in pairs)}
    except ValueError:
        raise Failure(USAGE, f"This is given as {shape}.") from None


def seconds(pairs: list[str] | None) -> dict[str, int] | None:
    """`class=seconds` words as a dictionary."""
    return numbers(pairs, "class=seconds")


def place(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


def node_place(context: typer.Context, node: str) -> str:
    """The path of a node that was called by its name or id: the API knows it by its id.

    Raises:
        Failure: there is no such node, or as the call.
    """
    with contextlib.suppress(ValueError):
        return f"/nodes/{uuid.UUID(node)}"
    for one in client(context).pages("/nodes", limit=MOST_NODES):
        if one["name"] == node:
            return f"/nodes/{place(one['id'])}"
    raise Failure(REFUSED, f"not-found: There is no node {node!r}.", {"code": "not-found", "status": 404})


# --- tenants --------------------------------------------------------------------------

tenants = typer.Typer(help="Tenants.", no_args_is_help=True)
Classes = Annotated[list[str] | None, typer.Option("--class", help="A data class; may come several times")]
Retention = Annotated[list[str] | None, typer.Option(help="class=seconds; may come several times")]
Isolation = Annotated[str | None, typer.Option(help="shared, arena or node")]
Erasure = Annotated[str | None, typer.Option(help="tenant, class, label, subject or session")]


@tenants.command("list")
def tenants_list(context: typer.Context, limit: Limit = 500) -> None:
    """The tenants that you may see."""
    many(context, "/tenants", "slug name state residency isolation erasure_scope created_at", limit)


@tenants.command("show")
def tenants_show(context: typer.Context, slug: Slug) -> None:
    """One tenant."""
    one(context, f"/tenants/{place(slug)}")


@tenants.command("create")
def tenants_create(
    context: typer.Context, slug: Slug, name: Annotated[str, typer.Option()], residency: str | None = None,
    isolation: Isolation = None, classes: Classes = None, erasure_scope: Erasure = None, retention: Retention = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Make a tenant."""
    body = given(slug=slug, name=name, residency=residency, isolation=isolation, classes=classes,
                 erasure_scope=erasure_scope, retention=seconds(retention))  # fmt: skip
    post(context, "/tenants", body, validate_only)


@tenants.command("set")
def tenants_set(
    context: typer.Context, slug: Slug, name: str | None = None, residency: str | None = None,
    isolation: Isolation = None, classes: Classes = None, erasure_scope: Erasure = None, retention: Retention = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Change a tenant; what is not named stays."""
    body = given(name=name, residency=residency, isolation=isolation, classes=classes, erasure_scope=erasure_scope,
                 retention=seconds(retention))  # fmt: skip
    change(context, "PATCH", f"/tenants/{place(slug)}", body, validate_only)


@tenants.command("close")
def tenants_close(
    context: typer.Context, slug: Slug, reason: Annotated[str | None, typer.Option()] = None,
    phrase: Annotated[str | None, typer.Option(help="As its plan asks, where something is cached of it")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Close a tenant; what is cached of it goes first. This cannot be taken back."""
    params = {"confirm_phrase": phrase, "reason": reason, "validate_only": "true" if validate_only else None}
    answer = client(context).call("DELETE", f"/tenants/{place(slug)}", params=params)
    if answer.content:
        show(context, answer.json())


# --- where a tenant's blocks may be -------------------------------------------------------

classes = typer.Typer(help="Where blocks of a tenant's data classes may be.", no_args_is_help=True)
own_nodes = typer.Typer(help="Nodes that serve one tenant alone.", no_args_is_help=True)
tenants.add_typer(classes, name="classes")
tenants.add_typer(own_nodes, name="nodes")


@classes.command("show")
def classes_show(context: typer.Context, slug: Slug) -> None:
    """The rule of each data class."""
    one(context, f"/tenants/{place(slug)}/classes")


@classes.command("set")
def classes_set(
    context: typer.Context, slug: Slug,
    file: Annotated[str, typer.Option(help='JSON, {"rules": {class: {tiers, regions, min_protection}}}; - = stdin')],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Replace the rules. Classes that are left out have the built-in ones."""
    change(context, "PUT", f"/tenants/{place(slug)}/classes", document(file), validate_only)


@own_nodes.command("show")
def own_nodes_show(context: typer.Context, slug: Slug) -> None:
    """The tenant's own nodes."""
    one(context, f"/tenants/{place(slug)}/nodes")


@own_nodes.command("set")
def own_nodes_set(
    context: typer.Context, slug: Slug,
    nodes: Annotated[list[str] | None, typer.Argument(help="Names of nodes; none = it has no own ones")] = None,
    evict: Annotated[bool, typer.Option(help="Blocks of others on them are meant to leave")] = False,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """The tenant's own nodes are these; those that are left out are everybody's again."""
    body = given(nodes=nodes or [], evict=evict)
    change(context, "PUT", f"/tenants/{place(slug)}/nodes", body, validate_only)


# --- quotas, usage, tokens, nodes ---------------------------------------------------------

quotas = typer.Typer(help="Quotas of a tenant.", no_args_is_help=True)
tokens = typer.Typer(help="Tokens of a tenant (`platform`: the fleet's own).", no_args_is_help=True)
nodes = typer.Typer(help="Cache nodes.", no_args_is_help=True)


@quotas.command("show")
def quotas_show(context: typer.Context, slug: Slug) -> None:
    """Limits and guarantees by tier, and what they come to."""
    one(context, f"/tenants/{place(slug)}/quotas")


@quotas.command("set")
def quotas_set(
    context: typer.Context, slug: Slug, file: Annotated[str, typer.Option(help="JSON; - = standard input")],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Replace the quotas."""
    change(context, "PUT", f"/tenants/{place(slug)}/quotas", document(file), validate_only)


def usage(
    context: typer.Context, slug: Slug, since: Annotated[str | None, typer.Option("--from", help="RFC 3339")] = None,
    until: Annotated[str | None, typer.Option("--to", help="RFC 3339")] = None,
) -> None:  # fmt: skip
    """What a tenant holds and what its hits saved."""
    one(context, f"/tenants/{place(slug)}/usage", **{"from": since, "to": until})


@tokens.command("list")
def tokens_list(context: typer.Context, slug: Slug, limit: Limit = 500) -> None:
    """The tokens of a tenant; never a secret."""
    path = f"/tenants/{place(slug)}/tokens"
    many(context, path, "id kind name owner_name roles state expires_at last_used_at", limit)


@tokens.command("create")
def tokens_create(
    context: typer.Context, slug: Slug, name: Annotated[str, typer.Option()],
    role: Annotated[list[str], typer.Option(help="May come several times")],
    owner: Annotated[str | None, typer.Option(help="Id of the person or service behind it; else yourself")] = None,
    kind: str | None = None, scope: Annotated[list[str] | None, typer.Option()] = None,
    cidr: str | None = None, expires_at: str | None = None, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Make a token. Its plaintext is shown once, now."""
    body = given(name=name, roles=role, owner=owner, kind=kind, scopes=scope, cidr=cidr, expires_at=expires_at)
    post(context, f"/tenants/{place(slug)}/tokens", body, validate_only)


@tokens.command("rotate")
def tokens_rotate(
    context: typer.Context, slug: Slug, token_id: Annotated[str, typer.Argument(help="Its id")],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Put another token in the place of one: same rights, shown once, now. The old one works for 24 hours more."""
    post(context, f"/tenants/{place(slug)}/tokens/{place(token_id)}:rotate", None, validate_only)


@tokens.command("revoke")
def tokens_revoke(
    context: typer.Context, slug: Slug, token_id: Annotated[str, typer.Argument(help="Its id")],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """A token is good for nothing from now on."""
    remove(context, f"/tenants/{place(slug)}/tokens/{place(token_id)}", validate_only)


@nodes.command("list")
def nodes_list(context: typer.Context, limit: Limit = 500) -> None:
    """The cache nodes."""
    many(context, "/nodes", "name region zone role state source_state blocks age_ms id", limit)


@nodes.command("show")
def nodes_show(context: typer.Context, node: Node) -> None:
    """One node with its tiers."""
    one(context, node_place(context, node))


def add_to(app: typer.Typer) -> None:
    """All groups are commands of `app`."""
    for name, group in {"tenants": tenants, "quotas": quotas, "tokens": tokens, "nodes": nodes}.items():
        app.add_typer(group, name=name)
    app.command()(usage)
