"""Operations of every state over a planted fleet."""

from typing import Any
from uuid import UUID

import pytest

from tests.conftest import TEST_DATABASE
from tests.frontend import plant_operations
from tests.tenants.making import a_model, a_namespace, a_tenant


@pytest.fixture(scope="module")
def made(planted: Any, postgres: Any) -> dict[str, UUID]:
    """Ids of one of each."""
    return plant_operations.operations(postgres.superuser_dsn(TEST_DATABASE))


@pytest.fixture
def nobody(settings: Any) -> None:
    """Tasks are sent to nobody."""
    settings.TASK_SENDER = "tests.audit.sealed.nobody"


@pytest.fixture
def acme(db: None) -> tuple[Any, list[Any]]:
    """A tenant that is deleted by label, and its namespaces of two labels."""
    tenant, model = a_tenant(erasure_scope="label"), a_model()
    return tenant, [a_namespace(tenant, model, label=name) for name in ("contracts", "tools")]
