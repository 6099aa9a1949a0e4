"""What of a config makes caches differ, and what does not."""

import pytest

from kvcore.layout import Layout, layout_of
from kvcore.sizes import ConfigError, cache_dtype

TEXT = {"num_hidden_layers": 2, "torch_dtype": "bfloat16", "rope_theta": 10000.0, "max_position_embeddings": 4096}


def test_unusable_configs_are_refused() -> None:
    with pytest.raises(ConfigError, match="kv-dtype"):
        layout_of(TEXT, kv_dtype="int3")
    with pytest.raises(ConfigError, match="canonical"):
        layout_of({**TEXT, "rope_theta": float("nan")})
    with pytest.raises(ConfigError, match="canonical"):
        layout_of({**TEXT, "rope_scaling": {"factor": 2**60}})


def test_a_plain_model() -> None:
    assert layout_of(TEXT) == Layout(position='{"rope_theta":10000}')
    assert layout_of({"num_hidden_layers": 2}) == Layout()


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"rope_theta": 500000.0}, "position"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "position"),
        ({"partial_rotary_factor": 0.5}, "position"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 64}}, "position"),
        ({"vision_config": {"hidden_size": 1152}}, "modality"),
        ({"audio_config": {"hidden_size": 1}}, "modality"),
        ({"torch_dtype": "float16"}, "kv_dtype"),
        ({"tokenizer_digest": "sha256:t"}, "tokenizer"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantisation"),
    ],
)
def test_each_part_of_the_config_is_one_field(more: dict[str, object], field: str) -> None:
    one, two = layout_of(TEXT), layout_of({**TEXT, **more})
    assert [f for f in Layout.__struct_fields__ if getattr(one, f) != getattr(two, f)] == [field]


def test_what_is_said_beside_the_config_counts_too() -> None:
    said = layout_of(TEXT, kv_dtype="fp8", kv_scales="sha256:s", tokenizer_digest="t", modality_digest="v")
    assert (said.kv_dtype, said.kv_scales, said.tokenizer, said.modality) == ("fp8_e4m3", "sha256:s", "t", "v")


def test_the_longest_length_counts_only_where_positions_depend_on_it() -> None:
    assert layout_of(TEXT) == layout_of({**TEXT, "max_position_embeddings": 8192})
    yarn = {**TEXT, "rope_scaling": {"type": "yarn", "factor": 2}}
    assert layout_of(yarn) != layout_of({**yarn, "max_position_embeddings": 8192})


def test_long_descriptions_become_digests_and_stay_different() -> None:
    one, two = (
        layout_of({**TEXT, "rope_scaling": {"rope_type": "longrope", "long_factor": [float(i)] * 96}}).position
        for i in (1, 2)
    )
    assert one.startswith("sha256:")
    assert one != two


def test_the_text_part_of_a_multimodal_model_decides_positions() -> None:
    both = {"text_config": TEXT, "vision_config": {"depth": 1}, "rope_theta": 1.0}
    assert layout_of(both).position == '{"rope_theta":10000}'


def test_one_format_has_one_name() -> None:
    assert cache_dtype(TEXT) == cache_dtype(TEXT, "bf16") == cache_dtype(TEXT, "torch.bfloat16") == "bfloat16"
    assert cache_dtype(TEXT, "fp8") == cache_dtype(TEXT, "float8_e4m3fn") == "fp8_e4m3"
    assert cache_dtype(TEXT, "FP16") == cache_dtype(TEXT, "half") == "float16"
