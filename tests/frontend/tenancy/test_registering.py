"""Forms that register models, epochs and adapters: checked without effect, then done; refusals stand in the form."""

import json

import pytest

from tests.frontend.tenancy.test_views import text_of
from tests.frontend.tenancy.test_walls import posted

pytestmark = pytest.mark.django_db
CONFIG = {
    "model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 64, "hidden_size": 256,
}  # fmt: skip
MODEL = {"name": "lab/new", "config": json.dumps(CONFIG), "block_tokens": "32", "tokenizer_digest": "sha256:tok"}


def named(name):
    from tenants import selectors

    return selectors.model_by_name(name)


def newest(model):
    from tenants import reading

    return reading.epochs_of(model)[-1]


def test_a_model_is_measured_before_it_is_registered(tenanted, person):
    client = person("operator")
    page = client.get("/epochs")
    assert 'href="/models/new"' in page.content.decode()
    assert client.get("/models/new").context["form"].given["kv_dtype"] == "auto"
    checked = client.post("/models/new/check", MODEL)
    text = text_of(checked)
    assert "A token of lab/new takes 1,024 bytes on one rank. Nothing was registered yet." in text
    assert "sha256:tok" in text
    assert named("lab/new") is None
    assert client.post("/models/new", posted(checked)).url == "/epochs?model=lab%2Fnew"
    made = named("lab/new")
    assert (made.block_tokens, made.layout["tokenizer"]) == (32, "sha256:tok")
    variant = client.post("/models/new/check", {**MODEL, "name": "lab/new-fp8", "base": "lab/new", "kv_dtype": "fp8"})
    assert "variant of lab/new" in text_of(variant)


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"config": "{"}, "config", "validation-failed"),
        ({"config": "[1]"}, "config", "validation-failed"),
        ({"config": ""}, "config", "validation-failed"),
        ({"config": '{"model_type": "x"}'}, "config", "config-unusable"),
        ({"block_tokens": "many"}, "block_tokens", "validation-failed"),
        ({"block_tokens": "0"}, "block_tokens", "validation-failed"),
        ({"base": "nobody"}, "", "model-unknown-base"),
        ({"name": "lab/ref-1k"}, "", "model-taken"),
        ({"name": ""}, "name", "validation-failed"),
    ],
)
def test_what_is_wrong_with_a_model_stands_in_the_form(tenanted, person, model, change, field, code):
    client = person("operator")
    for path in ("/models/new/check", "/models/new"):
        refused = client.post(path, {**MODEL, **change})
        assert refused.status_code >= 400
        assert refused.context["code"] == code
        assert not field or field in refused.context["form"].errors
        assert refused.context["form"].given["tokenizer_digest"] == "sha256:tok", "what was typed stays"
    assert named("lab/new") is None


def test_an_epoch_says_which_number_it_gets_and_who_uses_it(tenanted, person, model):
    client = person("operator")
    path = "/epochs/new?model=lab%2Fref-1k"
    assert f'href="{path}"' in client.get("/epochs?model=lab/ref-1k").content.decode()
    checked = client.get(f"{path}&check=1&weights_digest=sha256:one&note=back")
    text = text_of(checked)
    assert "This would be epoch 3. Nothing was made yet." in text
    assert "same weights as 1" in text
    assert "All new requests are of it at once and begin cold" in text
    assert newest(model).epoch == 2
    assert client.post("/epochs/new", posted(checked)).url == "/epochs?model=lab%2Fref-1k"
    assert (newest(model).epoch, newest(model).note) == (3, "back")
    assert client.post("/epochs/new", posted(checked)).status_code == 412, "sent twice it is made once"
    assert newest(model).epoch == 3
    assert "weights_digest" in client.get(f"{path}&check=1").context["form"].errors
    assert client.get("/epochs/new?model=none").status_code == 404


def test_an_epoch_of_a_model_with_a_roll_out_waits_for_its_share(tenanted, person, model):
    from tenants import services
    from tests.tenants.making import principal

    services.rollout_set(model=model, shares={1: 50, 2: 50}, actor=principal(None, "operator"))
    text = text_of(person("operator").get("/epochs/new?model=lab/ref-1k&check=1&weights_digest=w9"))
    assert "It gets no requests until the shares say so." in text


def test_an_adapter_is_known_by_its_bytes(tenanted, person, model):
    client = person("operator")
    given = {"check": "1", "model": "lab/ref-1k", "name": "legal", "digest": "sha256:abc"}
    checked = client.get("/adapters/new", given)
    assert "This can be registered. Nothing was made yet." in text_of(checked)
    assert client.post("/adapters/new", posted(checked)).url == "/epochs?model=lab%2Fref-1k#adapters"
    assert "legal" in text_of(client.get("/epochs?model=lab/ref-1k"))
    again = text_of(client.get("/adapters/new", given))
    assert "This adapter is known already." in again
    assert "Register legal" not in again
    other = client.get("/adapters/new", {**given, "digest": "sha256:other"})
    assert "the name is known with other bytes" in text_of(other)
    wrong = client.get("/adapters/new", {**given, "model": "nobody"})
    assert "model" in wrong.context["form"].errors
    assert "digest" in client.get("/adapters/new", {**given, "digest": "two words"}).context["form"].errors


@pytest.mark.parametrize("path", ["/models/new", "/epochs/new?model=lab/ref-1k", "/adapters/new"])
def test_only_who_may_register_is_offered_it(tenanted, person, model, path):
    client = person("viewer")
    assert client.get(path).status_code == 403
    assert path.split("?")[0] not in client.get("/epochs").content.decode()
