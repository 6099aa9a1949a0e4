"""REST of hints about sessions: who serves a session says that it has ended, and what was cached of it goes."""

import pytest

from catalog.models import Operation
from tests.catalog.test_api_operations import codes
from tests.tenants.conftest import caller  # noqa: F401
from tests.tenants.making import a_namespace, a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
END = {"event": "end"}


@pytest.fixture
def tenant(settings, transactional_db):
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    made = a_tenant(erasure_scope="session")
    a_namespace(made, session="s1")
    return made


@pytest.mark.parametrize("own", [True, False])
def test_a_session_ends_once_however_often_it_is_said(caller, tenant, own):  # noqa: F811
    of = {"tenant": tenant} if own else {}
    gateway = caller("gateway", scopes=("sessions:write",), kind="gateway", holder="g1", **of)
    body = END if own else {**END, "tenant": tenant.slug}
    first = gateway("POST", "/sessions/s1/hints", body)
    assert first.status_code == 202, first.content
    assert gateway("POST", "/sessions/s1/hints", body).json() == first.json()
    operation = Operation.objects.get()
    assert (str(operation.id), operation.trigger) == (first.json()["operation"], "session_end")
    assert operation.fenced_at is not None
    assert gateway("POST", "/sessions/never/hints", body).json() == {"operation": None}


def test_refusals(caller, tenant):  # noqa: F811
    other = a_tenant(erasure_scope="label")
    staff = caller("operator", scopes=("sessions:write",))
    assert codes(staff("POST", "/sessions/s1/hints", END)) == (400, "validation-failed")
    assert codes(staff("POST", "/sessions/s1/hints", {**END, "tenant": other.slug})) == (422, "not-separable")
    assert codes(staff("POST", "/sessions/s1/hints", {**END, "tenant": "nobody-here"})) == (404, "not-found")
    theirs = caller("tenant-admin", tenant=other, scopes=("sessions:write",))
    assert codes(theirs("POST", "/sessions/s1/hints", {**END, "tenant": tenant.slug})) == (404, "not-found")
    assert codes(caller("viewer")("POST", "/sessions/s1/hints", END)) == (403, "forbidden")
    assert not Operation.objects.exists()
