"""`kvc decisions`, `kvc policies`, `kvc trust` and `kvc lost-hits` against a real console."""

import json

import pytest

from kvconsole.infra import sql
from tenants import services
from tests.routing.deciding import Stand, worker
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_decisions_policies_trust_and_lost_hits(kvc, tmp_path):
    stand = Stand(worker("a", load={"queue_ms": 0.0}), worker("b", load={"queue_ms": 9.0}))
    stand.holds("a", 40)
    stand.tenant = a_tenant(slug="acme")
    stand.place.tenant_id = stand.tenant.id
    answer = stand.route()
    with sql.connect("router") as cx:
        stand.recorder.write(cx)
    token = services.token_issue("service", roles=["operator", "viewer"])[1]
    assert answer.decision_id in kvc("decisions", "list", token=token)[1]
    shown = kvc("--json", "decisions", "show", answer.decision_id, token=token)
    assert json.loads(shown[1])["reproducible"] is True, shown
    policy = json.loads(kvc("--json", "policies", "show", "predicted", token=token)[1])
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"kind": "least_loaded"}))
    rehearsed = kvc("--json", "policies", "set", "predicted", str(file), "--validate-only", token=token)
    assert rehearsed[0] == 0, rehearsed
    assert json.loads(kvc("--json", "policies", "show", "predicted", token=token)[1]) == policy
    put = kvc("--json", "policies", "set", "predicted", str(file), token=token)
    assert (put[0], json.loads(put[1])["version"]) == (0, policy["version"] + 1), put
    trust = kvc("--json", "trust", "acme", token=token)
    assert trust[0] == 0, trust
    lost = kvc("--json", "lost-hits", "--tenant", "acme", token=token)
    assert json.loads(lost[1])["total"]["decisions"] == 0, lost
    assert kvc("lost-hits", "--tenant", "nobody", token=token)[0] != 0
