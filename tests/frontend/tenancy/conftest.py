"""Tenants with quotas, use, namespaces and people behind the pages."""

import time
from typing import Any

import pytest
from django.test import Client

from kvconsole.infra.access import system, tenant_context
from tests.conftest import TEST_DATABASE
from tests.frontend import plant_tenancy


@pytest.fixture(scope="module")
def tenanted(planted: Any, postgres: Any) -> Any:
    """`planted`, and what was counted of `acme-code`."""
    plant_tenancy.tenancy(postgres.superuser_dsn(TEST_DATABASE))
    return planted


def proved(client: Client) -> Client:
    """The person has just given a password."""
    session = client.session
    session["account_authentication_methods"] = [{"method": "password", "at": time.time()}]
    session.save()
    return client


@pytest.fixture
def model(db: None) -> Any:
    """A model with two epochs, and a label's namespace of acme-code at the first of them."""
    from tenants import services

    actor = system("test")
    config = {
        "model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 64, "hidden_size": 256,
    }  # fmt: skip
    with tenant_context(actor):
        made = services.model_register(name="lab/ref-1k", config=config, actor=actor)
        services.epoch_create(model=made, weights_digest="sha256:one", actor=actor)
        for label in ("tools", "contracts"):
            services.namespace_resolve(tenant="acme-code", model="lab/ref-1k", label=label, actor=actor)
        services.epoch_create(model=made, weights_digest="sha256:two", note="faster", actor=actor)
    return made
