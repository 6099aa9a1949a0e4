"""The commands of `kvc` that are about what may be reused: models, epochs, adapters, namespaces, share groups."""

from typing import Annotated, Any

import typer

from kvconsole.cli import output
from kvconsole.cli.client import REFUSED, USAGE, Failure
from kvconsole.cli.commands import (
    Limit,
    Rehearse,
    change,
    client,
    document,
    given,
    many,
    numbers,
    one,
    place,
    post,
    show,
    start,
)

models = typer.Typer(help="Models.", no_args_is_help=True)
rollout = typer.Typer(help="Shares of new requests by epoch.", no_args_is_help=True)
epochs = typer.Typer(help="Epochs: the sets of weights of a model.", no_args_is_help=True)
adapters = typer.Typer(help="Adapters, by the digest of their bytes.", no_args_is_help=True)
namespaces = typer.Typer(help="Namespaces: what shares blocks.", no_args_is_help=True)
groups = typer.Typer(help="Share groups: requests of several tenants that share blocks.", no_args_is_help=True)
approvals = typer.Typer(help="What waits for a second person.", no_args_is_help=True)
models.add_typer(rollout, name="rollout")
Model = Annotated[str, typer.Argument(help="Name of the model")]
Group = Annotated[str, typer.Argument(help="Its id")]
Reason = Annotated[str, typer.Option(help="For the trail")]
MOST = 500
"""Adapters of one digest that are looked at: one of each model that has it."""


# --- models, epochs, adapters -----------------------------------------------------------


@models.command("list")
def models_list(context: typer.Context, limit: Limit = 500) -> None:
    """Your models and the platform's."""
    many(context, "/models", "name base kv_dtype block_tokens tensor_parallel bytes_per_token", limit)


@models.command("show")
def models_show(context: typer.Context, name: Model) -> None:
    """One model."""
    one(context, f"/models/{place(name)}")


@models.command("create")
def models_create(
    context: typer.Context, name: Model, config: Annotated[str, typer.Option(help="config.json; - = standard input")],
    kv_dtype: Annotated[str | None, typer.Option(help="Number format of the cache; else the model's")] = None,
    block_tokens: Annotated[int | None, typer.Option(help="Tokens in a block; else 16")] = None,
    tensor_parallel: Annotated[int | None, typer.Option(help="Ranks that share the heads; else 1")] = None,
    base: Annotated[str | None, typer.Option(help="The model that it is a variant of")] = None,
    kv_scales: Annotated[str | None, typer.Option(help="Digest of the scales of the cache")] = None,
    tokenizer_digest: Annotated[str | None, typer.Option(help="Digest of another tokenizer")] = None,
    modality_digest: Annotated[str | None, typer.Option(help="Digest of encoders of pictures and sound")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Register a model by its `config.json`."""
    body = given(name=name, config=document(config), kv_dtype=kv_dtype, block_tokens=block_tokens,
                 tensor_parallel=tensor_parallel, base=base, kv_scales=kv_scales, tokenizer_digest=tokenizer_digest,
                 modality_digest=modality_digest)  # fmt: skip
    post(context, "/models", body, validate_only)


@models.command("lineage")
def models_lineage(context: typer.Context, name: Model) -> None:
    """What a model was made from, its variants, epochs and adapters, and who used what."""
    one(context, f"/models/{place(name)}/lineage")


@models.command("uses")
def models_uses(context: typer.Context, name: Model, limit: Limit = 500) -> None:
    """Who used which epoch on which day, oldest first."""
    many(context, f"/models/{place(name)}/uses", "day tenant epoch adapter first_at last_at", limit)


@rollout.command("show")
def rollout_show(context: typer.Context, name: Model) -> None:
    """Shares, what is held of each epoch, what was expected of it and what came."""
    one(context, f"/models/{place(name)}/rollout")


@rollout.command("set")
def rollout_set(
    context: typer.Context, name: Model,
    share: Annotated[list[str], typer.Option(help="epoch=per cent; may come several times, together 100")],
    horizon_seconds: Annotated[int | None, typer.Option(help="Until old blocks are gone; for the forecast")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """New requests are shared like this from now on; epochs that are not named get nothing."""
    body = given(shares=numbers(share, "epoch=per cent"), horizon_seconds=horizon_seconds)
    change(context, "PUT", f"/models/{place(name)}/rollout", body, validate_only)


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


@epochs.command("retire")
def epochs_retire(
    context: typer.Context, model: Model, epoch: Annotated[int, typer.Argument(min=1)], reason: Reason,
    policy: Annotated[str | None, typer.Option(help="immediate or drain; else immediate")] = None,
    drain_seconds: Annotated[int | None, typer.Option(min=30, help="How long it stays readable at most")] = None,
    throttle: Annotated[int | None, typer.Option(help="Bytes a second and node")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """End an epoch: nothing is resolved for it any more, and what is cached of it goes, at once or once drained."""
    body = given(reason=reason, policy=policy, drain_seconds=drain_seconds, throttle=throttle)
    start(context, f"/epochs/{place(model)}/{epoch}:retire", body, validate_only)


@adapters.command("list")
def adapters_list(context: typer.Context, limit: Limit = 500) -> None:
    """Your adapters and the platform's, oldest first."""
    many(context, "/adapters", "model name adapter_epoch digest shared created_at", limit)


@adapters.command("show")
def adapters_show(
    context: typer.Context, digest: Annotated[str, typer.Argument(help="Of its bytes")],
    model: Annotated[str | None, typer.Option(help="Where several models have it")] = None,
) -> None:  # fmt: skip
    """One adapter."""
    known = client(context).pages("/adapters", limit=MOST, params={"digest": digest})
    found = [one for one in known if model in (None, one["model"])]
    if not found:
        raise Failure(REFUSED, "not-found: No adapter that you may see has this digest.")
    if len(found) > 1:
        named = ", ".join(sorted({str(one["model"]) for one in found}))
        raise Failure(USAGE, f"Several adapters have this digest: say --model, one of {output.printable(named)}.")
    show(context, found[0])


@adapters.command("create")
def adapters_create(
    context: typer.Context, name: Annotated[str, typer.Argument(help="For people")],
    model: Annotated[str, typer.Option(help="What it adapts")],
    digest: Annotated[str, typer.Option(help="Of its bytes: this is what it is")], validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Register an adapter. Bytes that are known stay what they are; a known name with new bytes is a new epoch."""
    post(context, "/adapters", given(model=model, name=name, digest=digest), validate_only)


# --- namespaces -------------------------------------------------------------------------


@namespaces.command("resolve")
def namespaces_resolve(
    context: typer.Context, tenant: Annotated[str, typer.Option()], model: Annotated[str, typer.Option()],
    adapter: Annotated[str | None, typer.Option(help="Its digest")] = None, data_class: str | None = None,
    share_group: Annotated[str | None, typer.Option(help="Id or name")] = None, label: str | None = None,
    subject: str | None = None, session: str | None = None,
    request: Annotated[str | None, typer.Option(help="Keeps a request without a session at its epoch")] = None,
    validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """The namespace of such requests, made if this is the first."""
    body = given(tenant=tenant, model=model, adapter=adapter, data_class=data_class, share_group=share_group,
                 label=label, subject=subject, session=session, request=request)  # fmt: skip
    post(context, "/namespaces:resolve", body, validate_only)


def explain_reuse(
    context: typer.Context, a: Annotated[str, typer.Argument(help="Id or digest of a namespace")],
    b: Annotated[str, typer.Argument(help="Id or digest of another")],
) -> None:  # fmt: skip
    """Why two namespaces share nothing: every field in which they differ."""
    found = client(context).call("GET", "/explain-reuse", params={"a": a, "b": b}).json()
    if context.obj.json:
        output.show_json(found)
    else:
        output.show_table(found["fields"], ["code", "a", "b"])
        print(output.printable(found["words"]))


# --- share groups and approvals -----------------------------------------------------------


@groups.command("list")
def groups_list(context: typer.Context, limit: Limit = 500) -> None:
    """The share groups that concern you."""
    many(context, "/share-groups", "id name owner audience state expires_at", limit)


@groups.command("show")
def groups_show(context: typer.Context, group: Group) -> None:
    """One share group."""
    one(context, f"/share-groups/{place(group)}")


@groups.command("create")
def groups_create(
    context: typer.Context, name: str, owner: Annotated[str, typer.Option(help="Slug of the owning tenant")],
    audience: Annotated[list[str], typer.Option(help="Slug of a member; may come several times")],
    expires_at: Annotated[str, typer.Option(help="RFC 3339")], reason: Reason, validate_only: Rehearse = False,
) -> None:  # fmt: skip
    """Ask for a share group; somebody else must approve it."""
    body = given(owner_tenant=owner, name=name, audience=audience, expires_at=expires_at, reason=reason)
    post(context, "/share-groups", body, validate_only)


@groups.command("approve")
def groups_approve(context: typer.Context, group: Group, validate_only: Rehearse = False) -> None:
    """Approve what somebody else asked for."""
    post(context, f"/share-groups/{place(group)}:approve", None, validate_only)


@groups.command("deny")
def groups_deny(
    context: typer.Context, group: Group, reason: Reason = "", validate_only: Rehearse = False
) -> None:  # fmt: skip
    """Deny what somebody else asked for, for good."""
    found: dict[str, Any] = client(context).call("GET", f"/share-groups/{place(group)}").json()
    approval = found["approval"]
    if not approval:
        raise Failure(REFUSED, "not-found: You see no approval that this group waits for.")
    post(context, f"/approvals/{place(approval)}:deny", given(reason=reason), validate_only)


@groups.command("revoke")
def groups_revoke(context: typer.Context, group: Group, reason: Reason, validate_only: Rehearse = False) -> None:
    """End the sharing: the group's namespaces are fenced."""
    post(context, f"/share-groups/{place(group)}:revoke", given(reason=reason), validate_only)


@approvals.command("list")
def approvals_list(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="open, approved, denied or withdrawn")] = None, limit: Limit = 500,
) -> None:  # fmt: skip
    """What waits for a second person, or waited."""
    many(context, "/approvals", "id kind object_id risk state requested_by requested_at expires_at", limit, state=state)


@approvals.command("show")
def approvals_show(context: typer.Context, approval: Group) -> None:
    """One of them."""
    one(context, f"/approvals/{place(approval)}")


@approvals.command("approve")
def approvals_approve(
    context: typer.Context, approval: Group, reason: Reason = "", validate_only: Rehearse = False
) -> None:  # fmt: skip
    """Approve what somebody else asked for."""
    post(context, f"/approvals/{place(approval)}:approve", given(reason=reason), validate_only)


@approvals.command("deny")
def approvals_deny(
    context: typer.Context, approval: Group, reason: Reason = "", validate_only: Rehearse = False
) -> None:  # fmt: skip
    """Deny what somebody else asked for, for good."""
    post(context, f"/approvals/{place(approval)}:deny", given(reason=reason), validate_only)


def add_to(app: typer.Typer) -> None:
    """All groups are commands of `app`."""
    named = {"models": models, "epochs": epochs, "adapters": adapters, "namespaces": namespaces,
             "share-groups": groups, "approvals": approvals}  # fmt: skip
    for name, group in named.items():
        app.add_typer(group, name=name)
    app.add_typer(epochs, name="epoch", hidden=True)
    app.command("explain-reuse")(explain_reuse)
