import pytest

from kvconsole.infra.rest import Problem
from tenants import services
from tenants.models import Model
from tenants.services.routable import routable, routable_digest
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db
FINE = {"adapter": "", "data_class": "", "label": "", "subject": "", "session": "", "group": None}


@pytest.fixture
def known():
    tenant = a_tenant(erasure_scope="label", classes=["internal"])
    model = Model.objects.get(id=a_namespace(tenant=tenant).model_id)
    return tenant, model, routable(tenant=tenant.slug, model=model.name, adapter="")


@pytest.mark.parametrize("fields", [{}, {"label": "x"}, {"data_class": "internal"}, {"session": "s", "subject": "u"}])
def test_what_is_derived_in_memory_is_what_is_resolved(known, fields):
    tenant, model, found = known
    row = services.namespace_resolve(tenant=tenant, model=model, **fields)
    assert routable_digest(found, **{**FINE, **fields}) == (tenant.id, bytes(row.digest))


def test_what_would_be_refused_is_refused(known):
    tenant, model, found = known
    with pytest.raises(Problem) as e:
        routable_digest(found, **{**FINE, "data_class": "nobody's"})
    assert e.value.code == "validation-failed"
    with pytest.raises(Problem) as e:
        routable(tenant="nobody", model=model.name, adapter="")
    assert e.value.code == "not-found"
    with pytest.raises(Problem) as e:
        routable(tenant=tenant.slug, model="nothing", adapter="")
    assert e.value.code == "unknown-model"


def test_a_vocabulary_is_what_the_config_says(known):
    _, model, found = known
    assert found.vocabulary == model.config.get("vocab_size")
    assert found.bytes_per_token == model.bytes_per_token
