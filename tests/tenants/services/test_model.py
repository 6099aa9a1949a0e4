"""Models: what is refused, what they cost to the byte, families and their twins."""

import pytest

from kvconsole.infra.rest import Problem
from tenants import services
from tests.tenants.making import LLAMA, a_model, a_namespace, a_tenant, some

pytestmark = pytest.mark.django_db


def gqa(layers, kv, dim, **more):
    return {"num_hidden_layers": layers, "num_attention_heads": 64, "num_key_value_heads": kv, "head_dim": dim,
            "torch_dtype": "bfloat16", **more}  # fmt: skip


def refused(code, call, **fields):
    with pytest.raises(Problem) as caught:
        call(**fields)
    assert caught.value.code == code
    return caught.value


@pytest.mark.parametrize("name", ["", "a/", "/a", "a/rollout", "epochs", "x/uses", "..", "ｆull", "a\0", "a" * 201])
def test_names_that_cannot_be_addresses(name):
    refused("validation-failed", services.model_register, name=name, config=LLAMA)


@pytest.mark.parametrize("alike", ["Meta/LLaMA-3.1", "meta/llama_3.1", "metа/llama-3.1", "meta/l1ama-3.1"])
def test_names_that_look_alike_collide(alike):
    services.model_register(name="meta/llama-3.1", config=LLAMA)
    problem = refused("model-name-alike", services.model_register, name=alike, config=LLAMA)
    assert "meta/llama-3.1" in problem.text
    refused("model-taken", services.model_register, name="meta/llama-3.1", config=LLAMA)
    services.model_register(name="meta/llama-3.2", config=LLAMA)


def test_bases_and_digests_must_be_something():
    refused("model-unknown-base", services.model_register, name=some(), config=LLAMA, base="nothing")
    for field in ("kv_scales", "tokenizer_digest", "modality_digest"):
        refused("validation-failed", services.model_register, name=some(), config=LLAMA, **{field: "a b"})
    model = a_model()
    refused("validation-failed", services.adapter_register, model=model, name="l", digest="")
    refused("validation-failed", services.adapter_register, model=model, name="l", digest="a b")
    refused("validation-failed", services.adapter_register, model=model, name="", digest="d")


@pytest.mark.parametrize(
    ("config", "dtype", "per_token", "fixed"),
    [
        (gqa(80, 8, 128), "fp8", 163_840, 0),
        (gqa(80, 8, 128), "auto", 327_680, 0),
        (gqa(32, 8, 128), "auto", 131_072, 0),
        (gqa(94, 4, 128), "auto", 192_512, 0),
        (gqa(61, 128, 128, kv_lora_rank=512, qk_rope_head_dim=64), "auto", 70_272, 0),
        (gqa(36, 8, 64, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 18), "auto",
         36_864, 4_718_592),
    ],
)  # fmt: skip
def test_known_models_cost_what_they_cost(config, dtype, per_token, fixed):
    model = services.model_register(name=some("m"), config=config, kv_dtype=dtype)
    assert model.bytes_per_token == per_token
    windows = sum(g["bytes_per_token"] * g["window"] for g in model.per_group if g["window"])
    assert windows == fixed


def test_a_variant_never_stands_for_the_same_namespace_as_its_base():
    base = a_model()
    copy = services.model_register(name=some("c"), config=LLAMA, base=base.name)
    assert copy.family == base.name
    problem = refused("epoch-twin", services.epoch_create, model=copy, weights_digest="w0")
    assert base.name in problem.text
    services.epoch_create(model=copy, weights_digest="other")
    tenant = a_tenant()
    assert a_namespace(tenant, copy).digest != a_namespace(tenant, base).digest


def test_the_same_name_with_new_bytes_is_a_new_adapter_epoch_and_a_new_namespace():
    tenant, model = a_tenant(), a_model()
    one, two = (services.adapter_register(model=model, name="lora", digest=d) for d in ("d1", "d2"))
    again = services.adapter_register(model=model, name="renamed", digest="d1")
    assert (one.epoch, two.epoch, again.id) == (1, 2, one.id)
    digests = {bytes(a_namespace(tenant, model, adapter=d).digest) for d in ("d1", "d2", "d1")}
    assert len(digests) == 2


def test_another_tenants_adapter_is_not_there():
    model, mine, other = a_model(), a_tenant(), a_tenant()
    services.adapter_register(model=model, name="l", digest="d", tenant_id=other.id)
    refused("not-found", services.namespace_resolve, tenant=mine, model=model, adapter="d")
