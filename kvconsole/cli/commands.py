"""The commands of `kvc` by group; each is one call of the REST API, or the pages of one list."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from kvconsole.cli import output
from kvconsole.cli.client import USAGE, Client, Failure

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
    rows = client(context).pages(path, limit=limit, params=params)
    if context.obj.json:
        output.show_json(list(rows))
    else:
        output.show_table(rows, columns.split())


def post(context: typer.Context, path: str, body: Any, rehearse: bool = False, **params: Any) -> None:
    """A POST, and its answer."""
    params["validate_only"] = "true" if rehearse else None
    show(context, client(context).call("POST", path, body, params=params).json())


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


def seconds(pairs: list[str] | None) -> dict[str, int] | None:
    """`class=seconds` words as a dictionary."""
    if pairs is None:
        return None
    try:
        return {name: int(value) for name, value in (pair.split("=", 1) for pair in pairs)}
    except ValueError:
        raise Failure(USAGE, "Retention is given as class=seconds.") from None


def place(text: str) -> str:
    """A name as one segment of a path."""
    return quote(text, safe="")


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


# --- models, epochs, namespaces ---------------------------------------------------------

models = typer.Typer(help="Models.", no_args_is_help=True)
epochs = typer.Typer(help="Epochs: the sets of weights of a model.", no_args_is_help=True)
namespaces = typer.Typer(help="Namespaces: what shares blocks.", no_args_is_help=True)
Model = Annotated[str, typer.Argument(help="Name of the model")]


@models.command("list")
def models_list(context: typer.Context, limit: Limit = 500) -> None:
    """Your models and the platform's."""
    many(context, "/models", "name kv_dtype block_tokens tensor_parallel bytes_per_token", limit)


@models.command("show")
def models_show(context: typer.Context, name: Model) -> None:
    """One model."""
    one(context, f"/models/{place(name)}")


@models.command("create")
def models_create(
    context: typer.Context, name: Model, config: Annotated[str, typer.Option(help="config.json; - = standard input")],
    kv_dtype: str | None = None, block_tokens: int | None = None, tensor_parallel: int | None = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Register a model by its `config.json`."""
    body = given(name=name, config=document(config), kv_dtype=kv_dtype, block_tokens=block_tokens,
                 tensor_parallel=tensor_parallel)  # fmt: skip
    post(context, "/models", body, validate_only)


@epochs.command("list")
def epochs_list(context: typer.Context, model: Model, limit: Limit = 500) -> None:
    """The epochs of a model."""
    many(context, f"/models/{place(model)}/epochs", "epoch state weights_digest note created_at", limit)


@epochs.command("create")
def epochs_create(
    context: typer.Context, model: Model, weights_digest: Annotated[str, typer.Option()], note: str | None = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """The next epoch of a model: new weights, or old ones again."""
    post(context, f"/models/{place(model)}/epochs", given(weights_digest=weights_digest, note=note), validate_only)


@namespaces.command("resolve")
def namespaces_resolve(
    context: typer.Context, tenant: Annotated[str, typer.Option()], model: Annotated[str, typer.Option()],
    adapter: str | None = None, data_class: str | None = None, share_group: str | None = None,
    label: str | None = None, subject: str | None = None, session: str | None = None, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """The namespace of such requests, made if this is the first."""
    body = given(tenant=tenant, model=model, adapter=adapter, data_class=data_class, share_group=share_group,
                 label=label, subject=subject, session=session)  # fmt: skip
    post(context, "/namespaces:resolve", body, validate_only)


# --- quotas, usage, tokens, share groups, nodes ------------------------------------------

quotas = typer.Typer(help="Quotas of a tenant.", no_args_is_help=True)
tokens = typer.Typer(help="Tokens of a tenant (`platform`: the fleet's own).", no_args_is_help=True)
groups = typer.Typer(help="Share groups: requests of several tenants that share blocks.", no_args_is_help=True)
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


@tokens.command("revoke")
def tokens_revoke(context: typer.Context, slug: Slug, token_id: Annotated[str, typer.Argument(help="Its id")]) -> None:
    """A token is good for nothing from now on."""
    client(context).call("DELETE", f"/tenants/{place(slug)}/tokens/{place(token_id)}")


@groups.command("list")
def groups_list(context: typer.Context, limit: Limit = 500) -> None:
    """The share groups that concern you."""
    many(context, "/share-groups", "id name owner audience state expires_at", limit)


@groups.command("show")
def groups_show(context: typer.Context, group: str) -> None:
    """One share group."""
    one(context, f"/share-groups/{place(group)}")


@groups.command("create")
def groups_create(
    context: typer.Context, name: str, owner: Annotated[str, typer.Option(help="Slug of the owning tenant")],
    audience: Annotated[list[str], typer.Option(help="Slug of a member; may come several times")],
    expires_at: Annotated[str, typer.Option(help="RFC 3339")], reason: Annotated[str, typer.Option()],
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Ask for a share group; somebody else must approve it."""
    body = given(name=name, owner_tenant=owner, audience=audience, expires_at=expires_at, reason=reason)
    post(context, "/share-groups", body, validate_only)


@groups.command("approve")
def groups_approve(context: typer.Context, group: str) -> None:
    """Approve what somebody else asked for."""
    post(context, f"/share-groups/{place(group)}:approve", None)


@groups.command("revoke")
def groups_revoke(context: typer.Context, group: str, reason: Annotated[str, typer.Option()]) -> None:
    """End the sharing: the group's namespaces are fenced."""
    post(context, f"/share-groups/{place(group)}:revoke", {"reason": reason})


@nodes.command("list")
def nodes_list(context: typer.Context, limit: Limit = 500) -> None:
    """The cache nodes."""
    many(context, "/nodes", "name region zone role state source_state blocks age_ms id", limit)


@nodes.command("show")
def nodes_show(context: typer.Context, node: Annotated[str, typer.Argument(help="Its id")]) -> None:
    """One node with its tiers."""
    one(context, f"/nodes/{place(node)}")


def add_to(app: typer.Typer) -> None:
    """All groups are commands of `app`."""
    named = {"tenants": tenants, "models": models, "epochs": epochs, "namespaces": namespaces, "quotas": quotas,
             "tokens": tokens, "share-groups": groups, "nodes": nodes}  # fmt: skip
    for name, group in named.items():
        app.add_typer(group, name=name)
    app.command()(usage)
