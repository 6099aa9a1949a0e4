"""Decides what the forms that register models, epochs and adapters do, and what a rehearsal shows.

As `acts`: each function takes the form as it was typed and answers what would be, or was, done; None = the form says
why not. Called by `register_views`.
"""

import json
from typing import Any, NamedTuple
from uuid import UUID

from django.http import QueryDict

from frontend.tenancy import forms
from frontend.tenancy.forms import Form
from kvconsole.infra.access import Principal
from kvconsole.infra.rest import Problem
from tenants import reading, selectors, services
from tenants.bodies import EpochIn, ModelIn
from tenants.bodies_reuse import AdapterIn
from tenants.constants import PLATFORM_TENANT

EPOCH_FIELDS = ("model", "weights_digest", "note", "seen")
ADAPTER_FIELDS = ("model", "name", "digest")
OPTIONAL = ("base", "kv_scales", "tokenizer_digest", "modality_digest")
MODEL_FIELDS = ("name", "config", "kv_dtype", "block_tokens", "tensor_parallel", *OPTIONAL)
USUAL = {"kv_dtype": "auto", "block_tokens": "16", "tensor_parallel": "1"}
SUGGESTED = 200
"""Models that a field suggests; any other can be typed."""


class NewEpoch(NamedTuple):
    """An epoch. `same`: earlier ones with the same weights; `shared`: a roll-out says what new requests get."""

    number: int
    weights_digest: str
    note: str
    same: list[int]
    shared: bool


class NewAdapter(NamedTuple):
    """An adapter. `known`: its content was registered before, then nothing changes."""

    model: str
    name: str
    digest: str
    epoch: int
    known: bool
    own: bool


class NewModel(NamedTuple):
    """A model and what a token of it takes on one rank."""

    name: str
    base: str
    family: str
    block_tokens: int
    bytes_per_token: int
    groups: list[dict[str, Any]]
    layout: dict[str, str]


def suggested() -> list[str]:
    """Names of models that fields suggest."""
    return [m.name for m in reading.models(limit=SUGGESTED)]


def _model(name: str, principal: Principal) -> Any:
    """The model that the caller means.

    Raises:
        Problem: there is none.
    """
    found = selectors.model_by_name(name[:200].replace("\0", ""), tenant_id=principal.tenant_id)
    if found is None:
        errors = [{"pointer": "/model", "code": "unknown-model", "detail": "There is no such model."}]
        raise Problem("validation-failed", errors=errors)
    return found


# --- epochs -----------------------------------------------------------------------------------------------------------


def epoch_form(data: QueryDict, model: Any) -> Form:
    """What was typed; `seen` is the newest epoch that the person saw."""
    form = forms.typed(data, *EPOCH_FIELDS)
    form.given["model"], form.given["seen"] = model.name, form.given["seen"] or str(_newest(model))
    return form


def _newest(model: Any) -> int:
    return max((e.epoch for e in reading.epochs_of(model)), default=0)


def epoch_make(form: Form, model: Any, actor: Principal, *, rehearse: bool = False) -> NewEpoch | None:
    """The model's next epoch, made or as it would be."""
    fields = forms.checked(EpochIn, form, {name: form.given[name] for name in ("weights_digest", "note")})

    def act() -> NewEpoch:
        made = services.epoch_create(model=model, **fields, actor=actor)
        if form.given["seen"] != str(made.epoch - 1):
            raise Problem("etag-mismatch")
        view = reading.epochs_of(model)[-1]
        shared = reading.rollout_of(model) is not None
        return NewEpoch(made.epoch, made.weights_digest, made.note, view.same_weights, shared)

    return forms.attempt(form, act, rehearse=rehearse)


# --- adapters ---------------------------------------------------------------------------------------------------------


def adapter_make(form: Form, actor: Principal, *, rehearse: bool = False) -> NewAdapter | None:
    """The adapter, known or as it would be; of the platform, or of the tenant whose administrator asks."""
    fields = forms.checked(AdapterIn, form, {name: form.given[name] for name in ADAPTER_FIELDS})
    tenant: UUID = actor.tenant_id or PLATFORM_TENANT

    def act() -> NewAdapter:
        model = _model(fields["model"], actor)
        known = reading.adapter_known(model, digest=fields["digest"], tenant_id=tenant)
        made = services.adapter_register(
            model=model, name=fields["name"], digest=fields["digest"], tenant_id=tenant, actor=actor
        )
        return NewAdapter(model.name, made.name, made.digest, made.epoch, known, tenant != PLATFORM_TENANT)

    return forms.attempt(form, act, rehearse=rehearse)


# --- models -----------------------------------------------------------------------------------------------------------


def model_form(data: QueryDict) -> Form:
    """What was typed; at first what is usual."""
    form = forms.typed(data, *MODEL_FIELDS)
    for name, value in USUAL.items():
        form.given[name] = form.given[name] or value
    return form


def model_make(form: Form, actor: Principal, *, rehearse: bool = False) -> NewModel | None:
    """The model, registered or as it would be."""
    given: dict[str, Any] = {name: form.given[name] for name in ("name", "kv_dtype", *OPTIONAL)}
    given |= {name: forms.whole(form, name) for name in ("block_tokens", "tensor_parallel")}
    given["config"] = _json(form, "config")
    fields = {} if form.code else forms.checked(ModelIn, form, given)

    def act() -> NewModel:
        made = services.model_register(**fields, actor=actor)
        return NewModel(
            made.name, made.base, made.family, made.block_tokens, made.bytes_per_token, made.per_group,
            {part: value for part, value in made.layout.items() if value},
        )  # fmt: skip

    return forms.attempt(form, act, rehearse=rehearse)


def _json(form: Form, name: str) -> dict[str, Any]:
    try:
        found = json.loads(form.given[name])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        form.wrong(name, "not-json" if form.given[name] else "required")
        return {}
    return found
