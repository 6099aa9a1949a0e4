"""Who may see which page of routing."""

import pytest

from frontend.routing.urls import urlpatterns
from kvconsole.infra.access import Evidence, rule_for

TENANT = {"tenant-admin", "tenant-member"}


def test_a_tenant_s_own_people_see_what_the_database_can_narrow_for_them():
    seen = {p.name for p in urlpatterns if rule_for(p.name, "GET").roles >= TENANT}
    assert seen == {"page-routing", "page-decision", "page-prefixes", "page-economics"}


def test_a_look_is_counted_and_only_a_policy_is_changed():
    assert {rule_for(p.name, "GET").evidence for p in urlpatterns} == {Evidence.COUNTED}
    assert [p.name for p in urlpatterns if rule_for(p.name, "POST")] == ["page-policy"]
    rule, call = rule_for("page-policy", "POST"), rule_for("policy-api", "PUT")
    assert (rule.roles, rule.scope, rule.evidence) == (call.roles, call.scope, Evidence.AUDITED)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/routing", "/prefixes", "/economics", "/topology", "/routing/compare"])
def test_strangers_are_sent_to_the_log_in(client, path):
    assert client.get(path, headers={"accept": "text/html"}).url.startswith("/login?next=")
