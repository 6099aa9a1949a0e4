"""Forms of data-class rules: what leaves is said before, what is wrong stands beside its field."""

import html
import re

import pytest

from frontend.tenancy import walls
from kvcore.residency import ANYWHERE
from tests.frontend.tenancy.test_views import exists, text_of

pytestmark = pytest.mark.django_db
PATH = "/tenants/acme-code/classes"


def posted(answer):
    """The fields of the form that a page would post; of some there are several."""
    form = re.search(r'<form method="post"[^>]*class="row"[^>]*>(.*?)</form>', answer.content.decode(), re.S)[1]
    found = {}
    for name, value in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form):
        found.setdefault(name, []).append(html.unescape(value))
    return found


def classed():
    from kvconsole.infra.access import system, tenant_context
    from tenants import services

    with tenant_context(system("test")):
        services.tenant_change(slug="acme-code", changes={"classes": ["internal", "restricted"]}, actor=system("test"))


def rules():
    from catalog.classes import class_rules_view

    return class_rules_view(tenant=walls.place_or_404(exists("acme-code")))


def test_rules_are_checked_without_effect_and_then_set(tenanted, person):
    classed()
    client = person("operator")
    assert f'href="{PATH}"' in client.get("/tenants/acme-code").content.decode()
    shown = client.get(PATH)
    given = shown.context["form"].given
    assert given["rule_restricted_kind"] == "built-in"
    assert given["rule_restricted_tiers"] == ["hbm", "pinned", "dram"]
    assert "Requests that name no class" in text_of(shown)
    fields = {
        **given, "check": "1", "rule_internal_kind": "own", "rule_internal_tiers": ["hbm", "dram"],
        "rule_internal_regions": "eu-fra, eu-ams", "rule_internal_min_protection": "encrypted",
    }  # fmt: skip
    checked = client.get(PATH, fields)
    assert "The rule of 1 class changes. Nothing was changed yet." in text_of(checked)
    assert [c.name for c in checked.context["plan"].changes] == ["internal"]
    assert checked.context["plan"].leaves == {}
    assert rules()["internal"].built_in
    assert client.post(PATH, posted(checked)).url == "/tenants/acme-code"
    after = rules()["internal"]
    assert (after.tiers, after.regions, after.min_protection) == (["hbm", "dram"], ["eu-ams", "eu-fra"], "encrypted")
    assert rules()["restricted"].built_in
    assert "This changes nothing." in text_of(
        client.get(PATH, {**client.get(PATH).context["form"].given, "check": "1"})
    )
    assert client.post(PATH, posted(checked)).status_code == 412, "somebody changed it meanwhile"
    back = client.get(PATH, {**client.get(PATH).context["form"].given, "check": "1", "rule_internal_kind": "built-in"})
    assert client.post(PATH, posted(back)).status_code == 302
    assert rules()["internal"].built_in


def test_nowhere_stays_nowhere(tenanted, person):
    """A rule with no region at all is not read back as any region."""
    classed()
    client = person("operator")
    given = client.get(PATH).context["form"].given
    fields = {
        **given,
        "check": "1",
        "rule_internal_kind": "own",
        "rule_internal_tiers": [],
        "rule_internal_regions": "–",
    }
    assert client.post(PATH, posted(client.get(PATH, fields))).status_code == 302
    assert (rules()["internal"].tiers, rules()["internal"].regions) == ([], [])
    again = client.get(PATH).context["form"].given
    assert (again["rule_internal_tiers"], again["rule_internal_regions"]) == ([], "–")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rule_internal_tiers": ["tape"]}, "rule_internal_tiers"),
        ({"rule_internal_regions": "not a region!"}, "rule_internal_regions"),
        ({"rule_internal_min_protection": "magic"}, "rule_internal_min_protection"),
    ],
)
def test_what_is_wrong_with_a_rule_stands_beside_its_field(tenanted, person, change, field):
    classed()
    client = person("operator")
    given = client.get(PATH).context["form"].given
    refused = client.get(PATH, {**given, "check": "1", "rule_internal_kind": "own", **change})
    assert field in refused.context["form"].errors
    assert "Nothing was changed." in text_of(refused)
    assert rules()["internal"].built_in


def test_only_operators_reach_it(tenanted, person):
    assert person("viewer").get(PATH).status_code == 403
    text = person("auditor", name="ann").get("/tenants/acme-code").content.decode()
    assert PATH not in text


def test_a_class_without_a_rule_has_the_built_in_one():
    assert walls.rule_lines(walls.Form(), ["x"])[0].built_in == ANYWHERE
