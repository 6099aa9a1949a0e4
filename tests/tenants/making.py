"""Small tenants, models and namespaces for tests, made by the services that make them in production."""

import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.apps import apps
from django.db import transaction

from audit.services import record
from kvconsole.infra.access import Principal, system
from tenants import services

LLAMA = {
    "model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 64, "hidden_size": 256,
}  # fmt: skip


@contextmanager
def unrecorded():
    """A change that no service offers, with an event so that it can commit."""
    with transaction.atomic():
        yield
        record(
            event_type="log.note", outcome="success", actor=system("test"), tenant_id=None, object_kind="test",
            object_id="", body={"note": "made by a test"},
        )  # fmt: skip


NODE = "00000000-0000-7000-8000-0000000000a1"


def a_node(*, node_id=NODE, enrolled=True, **fields):
    """A node of the catalog, of which this room knows only that it holds keys."""
    at = datetime.now(UTC)
    place = {"name": some("n"), "region": "eu", "state": "ready", "state_since": at, "created_at": at}
    with unrecorded():
        apps.get_model("catalog", "Node").objects.create(
            id=node_id, enrolled_at=at if enrolled else None, **place | fields
        )
    return node_id


def some(prefix="x"):
    return f"{prefix}{uuid.uuid4().hex[:10]}"


def a_tenant(**fields):
    return services.tenant_create(**{"slug": some("t"), "name": "T", "actor": system("test"), **fields})


def a_model(*, epochs=1, **fields):
    model = services.model_register(**{"name": some("m"), "config": LLAMA, "actor": system("test"), **fields})
    for i in range(epochs):
        services.epoch_create(model=model, weights_digest=f"w{i}")
    return model


def a_namespace(tenant=None, model=None, **fields):
    return services.namespace_resolve(tenant=tenant or a_tenant(), model=model or a_model(), **fields)


def a_user(**fields):
    return services.user_create(**{"username": some("u"), "password": "correct horse", "roles": ["viewer"], **fields})


def principal(tenant=None, *roles, at=None):
    """A person who has proved themselves a moment ago (`at`: another time)."""
    return Principal(
        kind="user", id=str(uuid.uuid4()), roles=frozenset(roles or ("tenant-admin",)),
        proved_at=(at or datetime.now(UTC) - timedelta(seconds=30)).timestamp(),
        tenant_id=tenant.id if tenant else None, tenant_slug=tenant.slug if tenant else "",
    )  # fmt: skip
