"""REST: decisions are listed by keyset and scored again, a tenant's are its own; policies are rehearsed first."""

import uuid

import pytest

from kvconsole.infra import sql
from tests.routing.deciding import Stand, worker
from tests.tenants.conftest import caller  # noqa: F401
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.fixture
def stand():
    made = Stand(worker("a", load={"queue_ms": 0.0}), worker("b", load={"queue_ms": 9.0}))
    made.holds("a", 40)
    made.tenant = a_tenant()
    made.place.tenant_id = made.tenant.id
    return made


def write(stand, times=1):
    answers = [stand.route() for _ in range(times)]
    with sql.connect("router") as cx:
        stand.recorder.write(cx)
    return answers


def test_a_list_and_one_of_it(stand, caller):  # noqa: F811
    told = sorted(write(stand, 3), key=lambda answer: answer.decision_id)
    viewer = caller("viewer")
    page = viewer.get("/decisions?limit=2").json()
    assert [row["id"] for row in page["items"]] == [told[2].decision_id, told[1].decision_id]
    assert page["items"][0]["tenant"] == stand.tenant.slug
    assert page["items"][0]["measured_ms"] is None
    rest = viewer.get(f"/decisions?limit=2&cursor={page['next']}").json()
    assert [row["id"] for row in rest["items"]] == [told[0].decision_id]
    one = viewer.get(f"/decisions/{told[0].decision_id}").json()
    assert one["reproducible"] is True
    assert one["cards"][0]["node"] == "a"
    assert one["plan"][0]["source"] == "local"
    assert set(one["inputs"]) == {"ask", "candidates", "edges", "held", "policy"}
    assert not {"affinity", "seed"} & set(one["inputs"]["ask"])
    assert viewer.get("/decisions?answer=magic").status_code == 400
    assert viewer.get("/decisions?node=b").json()["items"] == []
    assert viewer.get("/decisions?tenant=nobody").json()["items"] == []
    assert len(viewer.get(f"/decisions?tenant={stand.tenant.slug}").json()["items"]) == 3


def test_a_tenant_sees_its_own_without_the_fleets_inputs_and_no_others(stand, caller):  # noqa: F811
    (answer,) = write(stand)
    url = f"/decisions/{answer.decision_id}"
    own, foreign = caller("tenant-member", tenant=stand.tenant), caller("tenant-member", tenant=a_tenant())
    assert own.get(url).json()["inputs"] is None
    assert own.get(url).json()["reproducible"] is True
    absent = foreign.get(f"/decisions/{uuid.uuid4()}")
    hidden = foreign.get(url)
    assert hidden.status_code == absent.status_code == 404
    assert {**hidden.json(), "request_id": ""} == {**absent.json(), "request_id": ""}
    assert foreign.get("/decisions").json()["items"] == []


def test_a_policy_is_replaced_by_who_has_read_it_and_rehearsed_before(stand, caller):  # noqa: F811
    write(stand, 2)
    operator = caller("operator")
    shown = operator.get("/policies/default")
    tag, body = shown.headers["ETag"], {"kind": "round_robin"}
    assert operator("PUT", "/policies/default", body).status_code == 428
    dry = operator("PUT", "/policies/default?validate_only=true", body, **{"If-Match": tag})
    assert dry.status_code == 200, dry.content
    assert [(c["kind"], c["requests"]) for c in dry.json()["dry_run"]] == [("predicted", 2), ("round_robin", 2)]
    assert operator.get("/policies/default").json()["version"] == 0
    done = operator("PUT", "/policies/default", body, **{"If-Match": tag})
    assert (done.status_code, done.json()["version"]) == (200, 1)
    assert operator("PUT", "/policies/default", body, **{"If-Match": tag}).status_code == 412
    wrong = operator("PUT", "/policies/default", {"kind": "magic"}, **{"If-Match": "*"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "policy-invalid")
    assert operator.get("/policies/nobody").status_code == 404
    assert caller("viewer")("PUT", "/policies/default", body, **{"If-Match": "*"}).status_code == 403
