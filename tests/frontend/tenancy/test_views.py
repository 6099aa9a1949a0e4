"""Forms of tenants, quotas and roll-outs: checked without effect, then done; refusals stand beside their field."""

import html
import re

import pytest

from tests.frontend.tenancy.conftest import proved

pytestmark = pytest.mark.django_db
TENANT = {
    "slug": "delta-clinic", "name": "Delta Clinic", "isolation": "arena", "erasure_scope": "subject",
    "classes": "a, b", "residency": "eu-fra", "retention": "a: 60",
}  # fmt: skip


def text_of(answer):
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode())))


def hidden(answer):
    """The fields of the form that a page would post."""
    form = re.search(r'<form method="post" class="row">(.*?)</form>', answer.content.decode(), re.S)[1]
    return {n: html.unescape(v) for n, v in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)}


def exists(slug):
    from tenants.directory import tenant_view

    return tenant_view(slug)


def test_a_tenant_is_checked_without_effect_and_then_made(tenanted, person):
    client = person("operator")
    checked = client.get("/new-tenant", {**TENANT, "check": "1"})
    assert "delta-clinic can be made. Nothing was made yet." in text_of(checked)
    assert exists("delta-clinic") is None
    made = client.post("/new-tenant", hidden(checked))
    assert made.url == "/tenants/delta-clinic"
    view = exists("delta-clinic")
    assert (view.classes, view.retention, view.residency) == (["a", "b"], {"a": 60}, "eu-fra")


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"slug": "acme-code"}, "slug", "slug-taken"),
        ({"slug": "Acme-Code"}, "slug", "slug-lookalike"),
        ({"slug": "acme code!"}, "slug", "validation-failed"),
        ({"isolation": "moon"}, "isolation", "validation-failed"),
        ({"name": ""}, "name", "validation-failed"),
        ({"retention": "a: soon"}, "retention", "validation-failed"),
        ({"retention": "a: -1"}, "retention", "validation-failed"),
    ],
)
def test_what_is_wrong_with_a_tenant_stands_beside_its_field(tenanted, person, change, field, code):
    client = person("operator")
    answer = client.get("/new-tenant", {**TENANT, **change, "check": "1"})
    form = answer.context["form"]
    assert answer.status_code == 200
    assert form.code == code
    assert field in form.errors or code.startswith("slug-")
    assert "Nothing was changed." in text_of(answer)
    posted = client.post("/new-tenant", {**TENANT, **change})
    assert posted.status_code >= 400
    assert exists("delta-clinic") is None


def test_a_change_that_somebody_overtook_is_refused(tenanted, person):
    client = person("operator")
    client.post("/new-tenant", TENANT)
    seen = hidden(client.get("/tenants/delta-clinic/change", {**TENANT, "name": "Other", "seen": "", "check": "1"}))
    shown = client.get("/tenants/delta-clinic/change").context["form"].given["seen"]
    assert client.post("/tenants/delta-clinic/change", {**seen, "seen": shown}).status_code == 302
    assert exists("delta-clinic").name == "Other"
    assert client.post("/tenants/delta-clinic/change", {**seen, "name": "Third", "seen": shown}).status_code == 412


def quota_fields(client, **change):
    page = client.get("/tenants/acme-code/quotas")
    return {**page.context["form"].given, **change, "check": "1"}


def test_quotas_say_what_they_mean_before_they_are_set(tenanted, person):
    from django.utils import timezone

    from catalog.quotas import quota_view

    client = person("operator")
    assert client.get("/tenants/acme-code/quotas").context["form"].given["hbm_limit"] == "64 MiB"
    checked = client.get("/tenants/acme-code/quotas", quota_fields(client, hbm_limit="32 MiB", remote_limit="1 TiB"))
    text = text_of(checked)
    assert "32 MiB of its blocks would leave" in text
    assert "Set the quotas and evict 32 MiB" in text
    now = quota_view(tenant=exists("acme-code").id, now=timezone.now())
    assert now.tiers["hbm"].limit_bytes == 64 << 20, "a check changes nothing"
    fields = hidden(checked)
    refused = client.post(
        "/tenants/acme-code/quotas/evict", fields, headers={"referer": "http://testserver/tenants/acme-code/quotas?x=1"}
    )
    assert refused.url.startswith("/account/confirm?next=%2Ftenants%2Facme-code%2Fquotas") or "next=" in refused.url
    assert client.post("/tenants/acme-code/quotas", {**fields, "seen": "stale"}).status_code == 412
    done = proved(client).post("/tenants/acme-code/quotas/evict", fields)
    assert done.url == "/tenants/acme-code"
    after = quota_view(tenant=exists("acme-code").id, now=timezone.now())
    assert (after.tiers["hbm"].limit_bytes, after.tiers["remote"].limit_bytes) == (32 << 20, 1 << 40)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hbm_limit": "-1"}, "hbm_limit"),
        ({"hbm_limit": "9999999 TiB"}, "hbm_limit"),
        ({"hbm_limit": "1.5"}, "hbm_limit"),
        ({"hbm_limit": "nan GiB"}, "hbm_limit"),
        ({"hbm_limit": "1 MiB", "hbm_guaranteed": "2 MiB"}, "hbm_guaranteed"),
        ({"requests_per_second": "9999999"}, "requests_per_second"),
        ({"deletions_per_hour": "many"}, "deletions_per_hour"),
    ],
)
def test_what_is_wrong_with_a_quota_stands_beside_its_field(tenanted, person, change, field):
    client = person("operator")
    answer = client.get("/tenants/acme-code/quotas", quota_fields(client, **change))
    assert field in answer.context["form"].errors


def test_who_holds_bytes_cannot_be_closed(tenanted, person, model):
    client = person("destructive-operator", "operator")
    client.post("/new-tenant", TENANT)
    assert "can be closed" in text_of(client.get("/tenants/delta-clinic/close"))
    assert "confirm" in client.post("/tenants/delta-clinic/close").url
    assert proved(client).post("/tenants/delta-clinic/close").url == "/tenants"
    assert exists("delta-clinic").state == "closed"


# --- epochs -----------------------------------------------------------------------------------------------------------


def test_shares_are_forecast_before_they_are_set(tenanted, person, model):
    from django.utils import timezone

    from tenants import reading

    client = person("operator")
    text = text_of(client.get("/epochs?model=lab/ref-1k"))
    assert "All new requests of lab/ref-1k go to epoch 2." in text
    assert "There was no roll-out of this model" in text
    form = client.get("/epochs/rollout?model=lab/ref-1k")
    quick = dict(form.context["quick"])
    assert list(quick) == [0, 10, 50, 100]
    checked = client.get(quick[10])
    assert [tuple(m) for m in checked.context["means"]] == [(2, 100, 10), (1, 0, 90)]
    assert reading.rollout(model, now=timezone.now()).version == 0
    assert client.post("/epochs/rollout", hidden(checked)).url == "/epochs?model=lab%2Fref-1k"
    assert reading.rollout(model, now=timezone.now()).shares == {"1": 90, "2": 10}
    assert "10 % to epoch 2 and 90 % to epoch 1" in text_of(client.get("/epochs?model=lab/ref-1k"))
    wrong = client.post("/epochs/rollout", {**hidden(checked), "share_2": "11"})
    assert wrong.status_code == 412, "somebody changed it meanwhile"
    seen = client.get("/epochs/rollout?model=lab/ref-1k").context["form"].given["seen"]
    sums = client.post("/epochs/rollout", {**hidden(checked), "share_2": "11", "seen": seen})
    assert (sums.status_code, sums.context["code"]) == (422, "rollout-shares")
