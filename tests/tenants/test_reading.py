"""What pages and REST read of reuse: explanations, lineage, roll-outs."""

from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest

from kvconsole.infra.access import tenant_context
from tenants import reading, services
from tests.tenants.making import LLAMA, a_model, a_namespace, a_tenant, principal, some

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 9, 1, 12, 0, 30, tzinfo=UTC)
VARIANTS = {
    "position": {"config": {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4}}},
    "modality": {"modality_digest": "sha256:vision"},
    "kv-dtype": {"kv_dtype": "fp8"},
    "kv-scales": {"kv_scales": "sha256:scales"},
    "tokenizer": {"tokenizer_digest": "sha256:tok"},
    "block-size": {"block_tokens": 32},
}


def variants(tenant):
    """One namespace for each field that a model, its weights or an adapter decide, each differing in that field."""
    base = a_model()
    lora = services.adapter_register(model=base, name="l", digest="sha256:l")
    found = {"base": a_namespace(tenant, base), "adapter": a_namespace(tenant, base, adapter=lora)}
    for code, fields in VARIANTS.items():
        model = services.model_register(**{"name": some("v"), "config": LLAMA, "base": base.name, **fields})
        services.epoch_create(model=model, weights_digest="w0")
        found[code] = a_namespace(tenant, model)
    services.epoch_create(model=base, weights_digest="w1")
    found["weights-epoch"] = a_namespace(tenant, base)
    return found


def test_what_is_not_there_for_the_caller_explains_nothing():
    mine, other = a_namespace(), a_namespace()
    for a, b in ((str(mine.id), "x"), ("", str(mine.id)), ("0" * 64, str(mine.id)), (str(mine.id), str(mine.id)[:-1])):
        assert reading.explanation(a, b) is None
    assert reading.explanation(str(mine.id), str(other.id))


def test_every_pair_of_variants_is_told_apart_by_exactly_its_fields():
    found = variants(a_tenant())
    assert len({bytes(n.digest) for n in found.values()}) == len(found) == 9
    for one, two in combinations(found, 2):
        said = reading.explanation(str(found[one].id), bytes(found[two].digest).hex())
        assert {d.code for d in said.fields} == {one, two} - {"base"}
        assert not said.same


def test_tenants_are_named_and_the_same_is_the_same():
    model, one, two = a_model(), a_tenant(), a_tenant()
    a, b = a_namespace(one, model), a_namespace(two, model)
    (difference,) = reading.explanation(str(a.id), str(b.id)).fields
    assert (difference.code, difference.a, difference.b) == ("scope", f"tenant {one.slug}", f"tenant {two.slug}")
    said = reading.explanation(str(a.id), str(a.id))
    assert said.same
    assert said.fields == []


def test_lineage_knows_bases_variants_roll_backs_and_adapters():
    base = a_model(epochs=2)
    services.epoch_create(model=base, weights_digest="w0")
    awq = {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4}}
    small = services.model_register(name=some("q"), config=awq, base=base.name)
    smaller = services.model_register(name=some("q"), config=LLAMA, base=small.name, kv_dtype="fp8")
    services.adapter_register(model=base, name="l", digest="d1")
    services.adapter_register(model=base, name="l", digest="d2")
    of_base, of_smaller = reading.lineage(base), reading.lineage(smaller)
    assert [v.name for v in of_smaller.bases] == [small.name, base.name]
    assert {v.name for v in of_base.variants} == {small.name, smaller.name}
    assert next(v for v in of_base.variants if v.name == small.name).quantisation == "awq 4 bit"
    assert [(e.epoch, e.same_weights) for e in of_base.epochs] == [(1, []), (2, []), (3, [1])]
    assert [(a.name, a.epoch, a.digest) for a in of_base.adapters] == [("l", 2, "d2"), ("l", 1, "d1")]
    assert [m.name for m in reading.models() if m.family == base.name] == sorted([base.name, small.name, smaller.name])


def test_who_used_which_epoch_is_known_and_a_tenant_sees_its_own():
    model, one, two = a_model(), a_tenant(), a_tenant()
    a_namespace(one, model, now=NOW), a_namespace(two, model, now=NOW)
    services.epoch_create(model=model, weights_digest="new")
    a_namespace(one, model, now=NOW + timedelta(days=1))
    uses = reading.lineage(model).uses
    assert (uses[0].tenant, uses[0].epoch, uses[0].first_at) == (one.slug, 2, NOW + timedelta(days=1))
    assert {(u.tenant, u.epoch, u.days) for u in uses[1:]} == {(one.slug, 1, 1), (two.slug, 1, 1)}


def test_a_model_without_a_roll_out_gives_all_to_the_newest_open_epoch():
    model = a_model(epochs=3)
    view = reading.rollout(model, now=NOW)
    assert (view.version, view.shares, view.forecast, view.measured) == (0, {"3": 100}, [], [])
    assert [(e.epoch, e.share, e.size_bytes, e.stale_hit_tokens) for e in view.epochs] == [
        (1, 0, None, None), (2, 0, None, None), (3, 100, None, None),
    ]  # fmt: skip
    assert reading.rollout(a_model(epochs=0), now=NOW).shares == {}


def test_bytes_are_measured_against_what_was_expected():
    model = a_model(epochs=2)

    def told(at, *sizes):
        rows = [
            services.EpochHeld(model.tenant_id, model.id, e, size, size // 1024, 0) for e, size in enumerate(sizes, 1)
        ]
        services.epoch_bytes_put(rows=rows, now=at)

    services.rollout_set(model=model, shares={1: 100}, now=NOW - timedelta(hours=1))
    told(NOW - timedelta(seconds=20), 1000, 0)
    services.rollout_set(model=model, shares={2: 100}, horizon_seconds=600, now=NOW)
    told(NOW + timedelta(minutes=5), 500, 700), told(NOW + timedelta(minutes=10), 0, 1000)
    view = reading.rollout(model, now=NOW + timedelta(minutes=11))
    assert (view.shares, view.before) == ({"2": 100}, {"1": 100})
    assert [(p.old_bytes, p.all_bytes) for p in view.measured] == [(1000, 1000), (500, 1200), (0, 1000)]
    assert (view.peak_bytes, view.measured_peak_bytes) == (1250, 1200)
    assert view.forecast[-1].old_bytes == 0
    assert [(e.size_bytes, e.stale_hit_tokens) for e in view.epochs] == [(0, 0), (1000, 0)]


@pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
def test_a_tenant_explains_only_what_is_its_own():
    model, mine, other = a_model(), a_tenant(), a_tenant()
    own, own_x, foreign = a_namespace(mine, model), a_namespace(mine, model, label="x"), a_namespace(other, model)
    with tenant_context(principal(mine)):
        assert reading.explanation(str(own.id), str(own_x.id)).fields[0].code == "label"
        assert reading.explanation(str(own.id), str(foreign.id)) is None
        assert reading.explanation(bytes(foreign.digest).hex(), str(own.id)) is None
        assert {u.tenant for u in reading.lineage(model).uses} == {mine.slug}
