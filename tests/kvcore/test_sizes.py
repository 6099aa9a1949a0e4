"""Bytes per token of known models, to the byte."""

from typing import Any

import pytest

from kvcore.sizes import ConfigError, Scales, kv_sizes, per_head_bytes

N = 131_072


def gqa(layers: int, kv: int, dim: int, **more: Any) -> dict[str, Any]:
    return {"num_hidden_layers": layers, "num_attention_heads": 64, "num_key_value_heads": kv, "head_dim": dim,
            "torch_dtype": "bfloat16", **more}  # fmt: skip


GPT_OSS = gqa(36, 8, 64, sliding_window=128, layer_types=["sliding_attention", "full_attention"] * 18)
R1 = {"num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "torch_dtype": "bfloat16"}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "dtype", "per_token", "at_128k"),
    [
        (gqa(80, 8, 128), "fp8", 163_840, 20 * 2**30),
        (gqa(80, 8, 128), "auto", 327_680, 40 * 2**30),
        (gqa(32, 8, 128), "bfloat16", 131_072, 17_179_869_184),
        (gqa(94, 4, 128), "bfloat16", 192_512, 25_232_932_864),
        (R1, "auto", 70_272, 9_210_691_584),
    ],
)
def test_published_models(config: dict[str, Any], dtype: str, per_token: int, at_128k: int) -> None:
    sizes = kv_sizes(config, kv_dtype=dtype)
    assert (sizes.bytes_per_token, sizes.fixed_bytes, sizes.bytes_at(N)) == (per_token, 0, at_128k)


def test_half_sliding() -> None:
    sizes = kv_sizes(GPT_OSS)
    assert (sizes.bytes_per_token, sizes.fixed_bytes) == (36_864, 4_718_592)
    assert round(sizes.bytes_at(N) / 1e9, 3) == 4.837
    assert round(kv_sizes({**GPT_OSS, "layer_types": ["full_attention"] * 36}).bytes_at(N) / 1e9, 3) == 9.664
    sliding, full = sizes.per_group
    assert (sliding.kind, sliding.layers, sliding.window, sliding.bytes_per_token) == ("sliding", 18, 128, 36_864)
    assert (full.kind, full.layers, full.window) == ("full", 18, None)
    assert sizes.block_bytes(16) == (589_824, 589_824)
    assert sizes.bytes_at(64) == 64 * 73_728


def test_ranks() -> None:
    config = gqa(80, 8, 128)
    assert kv_sizes(config, tensor_parallel=4).bytes_per_token == 327_680 // 4
    assert kv_sizes(config, tensor_parallel=8).bytes_per_token == 327_680 // 8
    assert kv_sizes(config, tensor_parallel=16).bytes_per_token == 327_680 // 8  # replicated
    assert kv_sizes(R1, tensor_parallel=8).bytes_per_token == 70_272
    with pytest.raises(ConfigError):
        kv_sizes(config, tensor_parallel=0)


def test_dtypes_and_scales() -> None:
    config = gqa(1, 1, 128)
    per = {d: kv_sizes(config, kv_dtype=d).bytes_per_token for d in ("float32", "float16", "fp8_e4m3", "int8", "int4")}
    assert per == {"float32": 1024, "float16": 512, "fp8_e4m3": 256, "int8": 256, "int4": 128}
    assert kv_sizes(config, kv_dtype="int8", scales=Scales(bits=32, every=128)).bytes_per_token == 256 + 8
    assert kv_sizes(config, kv_dtype="int4", scales=Scales(bits=32, every=64)).bytes_per_token == 128 + 16
    assert kv_sizes(config, kv_dtype="nvfp4", scales=Scales(bits=8, every=16)).bytes_per_token == 128 + 16
    with pytest.raises(ConfigError, match="kv-dtype"):
        kv_sizes(config, kv_dtype="int3")


def test_multi_head_and_older_names() -> None:
    assert kv_sizes({"n_layer": 12, "n_head": 12, "n_embd": 768, "torch_dtype": "float32"}).bytes_per_token == 73_728
    falcon = {"num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544, "multi_query": True}
    assert kv_sizes(falcon).bytes_per_token == 32 * 2 * 64 * 2


def test_text_part_of_a_multimodal_model() -> None:
    assert kv_sizes({"model_type": "x", "text_config": gqa(32, 8, 128)}).bytes_per_token == 131_072


@pytest.mark.parametrize(
    ("extra", "kinds"),
    [
        ({"sliding_window": 4096}, {("sliding", 8)}),
        ({"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 6}, {("full", 8)}),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 6}, {("full", 6), ("sliding", 2)}),
        ({"sliding_window": 512, "sliding_window_pattern": 4}, {("full", 2), ("sliding", 6)}),
        ({"attention_chunk_size": 8192, "layer_types": ["chunked_attention"] * 8}, {("chunked", 8)}),
        ({"layer_types": ["full_attention"] * 4 + ["mlp"] * 4}, {("full", 4), ("state", 4)}),
    ],
)
def test_layer_groups(extra: dict[str, Any], kinds: set[tuple[str, int]]) -> None:
    assert {(g.kind, g.layers) for g in kv_sizes(gqa(8, 8, 128, **extra)).per_group} == kinds


def test_recurrent_state_is_constant() -> None:
    delta = {"full_attention_interval": 4, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
             "linear_num_value_heads": 32, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}  # fmt: skip
    sizes = kv_sizes(gqa(48, 2, 256, **delta))
    assert sizes.bytes_per_token == 12 * 2 * 2 * 256 * 2
    state = (2 * 16 * 128 + 32 * 128) * 3 * 2 + 32 * 128 * 128 * 4
    assert sizes.fixed_bytes == 36 * state
    mamba = {"layers_block_type": ["mamba"] * 3 + ["attention"], "mamba_n_heads": 48, "mamba_d_head": 64,
             "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4}  # fmt: skip
    sizes = kv_sizes(gqa(4, 8, 128, **mamba))
    assert sizes.fixed_bytes == 3 * ((48 * 64 + 2 * 128) * 3 * 2 + 48 * 64 * 128 * 2)
    declared = {"layer_types": ["ssm"] * 2, "state_bytes_per_layer": 1000}
    assert kv_sizes(gqa(2, 8, 128, **declared), tensor_parallel=4).fixed_bytes == 500


def test_compressed_layers() -> None:
    types = ["sliding_attention", "compressed_attention", "compressed_attention"]
    config = gqa(3, 1, 128, layer_types=types, sliding_window=128, compress_ratios=[1, 4, 128])
    sizes = kv_sizes(config)
    assert sizes.bytes_at(N) == 512 * (128 + N // 4 + N // 128)
    assert [g.ratio for g in sizes.per_group] == [1, 4, 128]


def test_head_budgets() -> None:
    assert per_head_bytes([1, 0.5, 0.25, 0.25], head_dim=128, kv_dtype="bfloat16") == 2 * 2 * 128 * 2


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": True},
        gqa(2, 8, 128, layer_types=["full_attention"]),
        gqa(1, 8, 128, layer_types=["telepathy"]),
        gqa(1, 8, 128, layer_types=["sliding_attention"]),
        gqa(1, 8, 128, layer_types=["compressed_attention"]),
        {"num_hidden_layers": 1, "num_attention_heads": 3, "hidden_size": 64},
    ],
)
def test_configs_that_do_not_say_enough(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        kv_sizes(config)
