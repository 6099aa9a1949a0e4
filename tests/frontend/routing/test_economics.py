"""Calculators: figures to the digit, errors by field, and values of the own fleet that say where they come from."""

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from tests.frontend.routing.test_decision import text
from tests.tenants.making import a_model

pytestmark = pytest.mark.django_db


def results(answer):
    return {r.code: r.text for c in answer.context["calculators"] for r in c.results}


def test_examples_give_the_published_figures(person):
    found = results(person("viewer").get("/economics"))
    wanted = {
        "layer_token": "2,048 B = 2 KiB",
        "token": "163,840 B = 160 KiB",
        "block": "2,621,440 B = 2.50 MiB",
        "context": "21,474,836,480 B = 20 GiB",
        "recompute": "$0.00208333",
        "storage": "$0.00173611",
        "hit_share": "49.329 %",
        "interval": "61.632 s",
        "surge_linear": "10.000 ×",
        "surge_square": "5.263 ×",
        "surge_model": "7.030 ×",
        "load_after": "600.0 %",
        "shed_share": "83.33 %",
        "link_count": "500.0",
        "demand": "25,000.0 GB/s",
    }
    assert {name: found[name] for name in wanted} == wanted
    assert 36_380 <= float(found["crossover_tokens"].replace(",", "")) <= 36_480


@pytest.mark.parametrize(("query", "code", "wanted"), [
    ("gpus=8", "hit_share", "9.590 %"), ("gpus=8", "interval", "565.632 s"),
    ("price_gb_month=0.10", "interval", "30.816 min"), 
    ("object_bytes=20+GiB&transfer_cost=0.000257698", "hit_share", "44.960 %"),
    ("object_bytes=20+GiB&transfer_cost=0.000257698", "interval", "73.451 s"),
    ("hit_rate=94.2", "surge_linear", "17.241 ×"), ("hit_rate=94.2", "surge_model", "11.954 ×"),
    ("lost_share=25", "surge_linear", "3.250 ×"), ("session_bytes=20+GiB", "link_count", "429.5"),
    ("bandwidth=25&latency_ms=2&fetch_tokens=32768", "compute_ms", "417.10 ms"),
    ("fetch_tokens=131072", "compute_ms", "3.000 s"), ("fetch_tokens=131072", "even_bandwidth", "7.16 GB/s"),
    ("linear_us=0&square_ns=0", "crossover_tokens", "never"), ("prefill_s=0", "hit_share", "never"),
    ("price_gb_month=0", "interval", "any, keeping costs nothing"), ("load_surge=1", "shed_share", "0.00 %"),
    ("surge_linear_us=0&surge_square_ns=0", "surge_square", "5.263 ×"),
])  # fmt: skip
def test_what_is_typed_is_calculated(person, query, code, wanted):
    assert str(results(person("viewer").get(f"/economics?{query}"))[code]) == wanted


@pytest.mark.parametrize(("query", "name"), [
    ("layers=", "layers"), ("layers=1.5", "layers"), ("layers=abc", "layers"), ("hit_rate=100", "hit_rate"),
    ("hit_rate=NaN", "hit_rate"), ("hit_rate=-1", "hit_rate"), ("object_bytes=20+parsecs", "object_bytes"),
    ("bandwidth=0", "bandwidth"), ("bandwidth=inf", "bandwidth"), ("gpus=1e99", "gpus"),
    ("token_bytes=0", "token_bytes"),
    ("prefill_s=" + "9" * 60, "prefill_s"),
])  # fmt: skip
def test_what_cannot_be_read_is_said_beside_its_field_and_hides_its_panel_alone(person, query, name):
    answer = person("viewer").get(f"/economics?{query}")
    form, calculators = answer.context["form"], answer.context["calculators"]
    assert answer.status_code == 200
    assert list(form.errors) == [name]
    empty = [c.name for c in calculators if not c.results]
    assert len(empty) == 1
    assert len([c for c in calculators if c.results]) == len(calculators) - 1
    markup = answer.content.decode()
    assert 'aria-invalid="true"' in markup
    assert "No result: a field above cannot be read." in text(answer)


def test_what_was_typed_stays_and_is_escaped(person):
    markup = person("viewer").get("/economics?layers=%3Cb%3E").content.decode()
    assert 'value="&lt;b&gt;"' in markup


def origins(answer):
    return {f["name"]: f["own"].origin for c in answer.context["calculators"] for f in c.fields if f["own"]}


MEASURED = {"linear_us", "square_ns", "surge_linear_us", "surge_square_ns", "bandwidth", "latency_ms", "hit_rate"}


def test_what_the_fleet_measured_stands_in_the_fields_and_says_so(person, loads):
    who = person("viewer")
    answer = who.get("/economics")
    given = answer.context["form"].given
    assert (given["linear_us"], given["square_ns"]) == ("20", "0.2")
    assert (given["bandwidth"], given["latency_ms"]) == ("2.5", "0.3")
    assert {name for name, origin in origins(answer).items() if origin == "measured"} == MEASURED
    assert answer.content.decode().count('data-origin="measured"') == len(MEASURED)
    typed = who.get("/economics?linear_us=7")
    assert {name for name, origin in origins(typed).items() if origin == "measured"} == MEASURED - {"linear_us"}


def test_a_tenant_is_told_nothing_of_the_fleet(loads, rf):
    from datetime import UTC, datetime

    from frontend.routing import own
    from tenants.selectors import tenant_by_slug
    from tests.tenants.making import principal

    known = own.known(datetime.now(UTC), "", [], principal(tenant_by_slug("acme-code")))
    assert known == {}


def test_a_registered_model_gives_its_bytes(person):
    model = a_model()
    answer = person("viewer").get("/economics")
    assert answer.context["form"].given["token_bytes"] == str(model.bytes_per_token)
    markup = answer.content.decode()
    assert 'data-origin="calculated"' in markup
    assert model.name in markup


def test_the_page_stays_in_its_budget_of_queries(person):
    a_model()
    who = person("viewer")
    who.get("/economics")
    with CaptureQueriesContext(connections["default"]) as spent:
        assert who.get("/economics").status_code == 200
    assert len(spent) <= 26, "\n".join(q["sql"][:110] for q in spent)
