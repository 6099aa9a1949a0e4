"""Decides how many bytes of KV a token costs, from a Hugging Face `config.json`: per layer group, per rank, per dtype.

Called when a model is registered (`bytes_per_token` and `per_group` of the model) and by planners that turn blocks
into bytes. A group is a set of layers whose blocks have one shape and one life: full attention, one sliding window,
MLA, recurrent state, compressed attention. Formulas: keys and values of one head of one layer are 2·d_h numbers;
MLA keeps one latent of r_kv + d_rope numbers for all heads; TP divides the heads until there is one a rank, and
divides MLA not at all; a sliding layer holds min(n, W) tokens; a compressed one n / ratio; a state is constant.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

DTYPE_BITS: Mapping[str, int] = {
    "float32": 32, "fp32": 32, "float16": 16, "fp16": 16, "half": 16, "bfloat16": 16, "bf16": 16,
    "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "fp8_inc": 8, "fp8_ds_mla": 8, "float8_e4m3fn": 8, "float8_e5m2": 8,
    "int8": 8, "uint8": 8, "int4": 4, "fp4": 4, "nvfp4": 4, "mxfp4": 4,
}  # fmt: skip
"""Bits of one number of the cache."""


class ConfigError(ValueError):
    """The config does not say what is needed; `code` is stable. Nothing was registered."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


class Scales(msgspec.Struct, frozen=True):
    """Quantisation scales kept beside the numbers: one of `bits` for every `every` numbers, zero points included."""

    bits: int
    every: int


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of one shape, on one rank.

    `kind`: full | sliding | chunked | mla | compressed | state. `bytes_per_token` counts while tokens are kept at
    all; `window` bounds the tokens of a layer (None = all); `ratio` = tokens folded into one kept entry;
    `fixed_bytes` does not depend on the tokens.
    """

    kind: str
    layers: int
    bytes_per_token: int
    window: int | None = None
    ratio: int = 1
    fixed_bytes: int = 0

    def bytes_at(self, tokens: int) -> int:
        """Bytes that a sequence of so many tokens keeps in this group."""
        kept = tokens if self.window is None else min(tokens, self.window)
        return self.bytes_per_token * kept // self.ratio + self.fixed_bytes


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's cache costs on one rank. `bytes_per_token` is the price of one more token of a long sequence."""

    bytes_per_token: int
    fixed_bytes: int
    per_group: tuple[Group, ...]

    def bytes_at(self, tokens: int) -> int:
        """Bytes that one sequence of so many tokens keeps on the rank."""
        return sum(g.bytes_at(tokens) for g in self.per_group)

    def block_bytes(self, block_tokens: int) -> tuple[int, ...]:
        """Bytes of one block per group, in the order of `per_group`."""
        return tuple(g.bytes_per_token * block_tokens // g.ratio for g in self.per_group)


def kv_sizes(
    config: Mapping[str, Any], *, kv_dtype: str = "auto", tensor_parallel: int = 1, scales: Scales | None = None
) -> Sizes:
    """Sizes of a model's cache per rank.

    Args:
        config: the parsed `config.json`; a multimodal one may hold it under `text_config` or the like.
        kv_dtype: dtype of the cache; "auto" = the model's.
        tensor_parallel: ranks among which heads are divided.
        scales: stored beside the numbers, None = per tensor or none, which costs nothing per token.

    Raises:
        ConfigError: a field is missing, has no sense, or the dtype is unknown.

    Source: `docs/protocol.md`; DeepSeek-V2 (arXiv 2405.04434) section 2.1 for MLA.
    """
    if tensor_parallel < 1:
        raise ConfigError("tensor-parallel", "must be at least 1")
    text = text_part(config)
    per_number = _bytes_per_number(text, kv_dtype, scales)
    groups: dict[tuple[str, int | None, int, Fraction, int], int] = {}
    for kind, window, ratio, numbers, fixed in _layers(text, tensor_parallel):
        shape = (kind, window, ratio, numbers * per_number, fixed)
        groups[shape] = groups.get(shape, 0) + 1
    made = tuple(
        Group(
            kind=kind,
            layers=layers,
            bytes_per_token=_whole(per_layer * layers),
            window=window,
            ratio=ratio,
            fixed_bytes=fixed * layers,
        )
        for (kind, window, ratio, per_layer, fixed), layers in groups.items()
    )
    growing = sum(g.bytes_per_token // g.ratio for g in made if g.window is None)
    return Sizes(
        bytes_per_token=growing,
        fixed_bytes=sum(g.fixed_bytes + (g.bytes_per_token * g.window if g.window else 0) for g in made),
        per_group=made,
    )


def per_head_bytes(budgets: Sequence[float], *, head_dim: int, kv_dtype: str) -> int:
    """Bytes per token of one layer whose heads keep only a share of the tokens each (`budgets`, 0 to 1).

    Source: ragged paging and head budgets; Σ_heads β·2·d_h·s.
    """
    total = sum(Fraction(str(b)) for b in budgets) * 2 * head_dim * Fraction(_bits(kv_dtype), 8)
    return _whole(total)


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the language model within a config; a multimodal one may hold it under a name of its own."""
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping) and "num_hidden_layers" not in config:
            return text_part(inner)
    return config


_SAME_DTYPE: Mapping[str, str] = {
    "fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2",
}  # fmt: skip
"""Other names of the same number format."""


def cache_dtype(config: Mapping[str, Any], kv_dtype: str = "auto") -> str:
    """The one name of the cache's number format; "auto" = the model's.

    Raises:
        ConfigError: it is unknown.
    """
    if kv_dtype == "auto":
        text = text_part(config)
        kv_dtype = str(text.get("torch_dtype") or text.get("dtype") or "bfloat16")
    _bits(kv_dtype)
    name = kv_dtype.removeprefix("torch.").lower()
    return _SAME_DTYPE.get(name, name)


def _bits(dtype: str) -> int:
    bits = DTYPE_BITS.get(dtype.removeprefix("torch.").lower())
    if bits is None:
        raise ConfigError("kv-dtype", f"unknown dtype {dtype[:40]!r}")
    return bits


def _bytes_per_number(text: Mapping[str, Any], kv_dtype: str, scales: Scales | None) -> Fraction:
    size = Fraction(_bits(cache_dtype(text, kv_dtype)), 8)
    return size + (Fraction(scales.bits, 8 * scales.every) if scales else 0)


def _whole(value: Fraction) -> int:
    """Bytes rounded up: a byte begun is a byte used."""
    return -(-value.numerator // value.denominator)


def _int(text: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        value = text.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise ConfigError("config-field", f"{name} must be a positive integer")
        return value
    if default is None:
        raise ConfigError("config-field", f"none of {', '.join(names)} is there")
    return default


Layer = tuple[str, int | None, int, Fraction, int]
"""(kind, window, ratio, numbers per token, fixed bytes) of one layer on one rank."""


def _layers(text: Mapping[str, Any], tp: int) -> list[Layer]:
    count = _int(text, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    return [_layer(text, kind, i, tp) for i, kind in enumerate(_kinds(text, count))]


def _kinds(text: Mapping[str, Any], count: int) -> list[str]:
    """What each layer is, from `layer_types` or from the older fields that say the same."""
    named = text.get("layer_types") or text.get("layers_block_type")
    if named is not None:
        if not isinstance(named, Sequence) or len(named) != count:
            raise ConfigError("config-field", "layer_types has not one entry per layer")
        return [str(n) for n in named]
    pattern = text.get("sliding_window_pattern")
    if isinstance(pattern, int) and pattern > 1 and text.get("sliding_window"):
        return ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(count)]
    interval = text.get("full_attention_interval")
    if isinstance(interval, int) and interval > 1:
        return ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(count)]
    if text.get("sliding_window") and text.get("use_sliding_window", True) and not text.get("max_window_layers"):
        return ["sliding_attention"] * count
    if text.get("sliding_window") and text.get("use_sliding_window"):
        full = _int(text, "max_window_layers", default=count)
        return ["full_attention" if i < full else "sliding_attention" for i in range(count)]
    return ["full_attention"] * count


def _layer(text: Mapping[str, Any], kind: str, index: int, tp: int) -> Layer:
    if kind in ("linear_attention", "mamba", "mamba2", "recurrent", "ssm", "state"):
        return "state", None, 1, Fraction(0), _state_bytes(text, tp)
    if kind in ("mlp", "moe", "none"):
        return "state", None, 1, Fraction(0), 0
    if kind in ("sliding_attention", "sliding_window", "local", "local_attention"):
        window = _int(text, "sliding_window", "sliding_window_size", "attention_window_size")
        return "sliding", window, 1, _numbers(text, tp), 0
    if kind in ("chunked_attention", "chunked_local_attention"):
        return "chunked", _int(text, "attention_chunk_size"), 1, _numbers(text, tp), 0
    if kind in ("compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention"):
        ratios = text.get("compress_ratios")
        ratio = ratios[index] if isinstance(ratios, Sequence) and len(ratios) > index else text.get("compress_ratio")
        return "compressed", None, _int({"compress_ratio": ratio}, "compress_ratio"), _numbers(text, tp), 0
    if kind not in ("full_attention", "attention", "global", "global_attention", "hybrid"):
        raise ConfigError("layer-type", f"unknown layer type {kind[:40]!r}")
    return ("mla" if text.get("kv_lora_rank") else "full"), None, 1, _numbers(text, tp), 0


def _numbers(text: Mapping[str, Any], tp: int) -> Fraction:
    """Numbers of the cache per token of one attention layer on one rank."""
    if text.get("kv_lora_rank"):
        return Fraction(_int(text, "kv_lora_rank") + _int(text, "qk_rope_head_dim"))
    heads = _int(text, "num_attention_heads", "n_head", "num_heads")
    one = 1 if text.get("multi_query") and not text.get("new_decoder_architecture") else heads
    kv = _int(text, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", default=one)
    dim = text.get("head_dim") or text.get("attention_head_dim")
    if dim is None:
        hidden = _int(text, "hidden_size", "n_embd", "d_model")
        if hidden % heads:
            raise ConfigError("config-field", "hidden_size is no multiple of the number of heads")
        dim = hidden // heads
    dim = _int({"head_dim": dim}, "head_dim")
    per_rank = -(-kv // tp)  # replicated where there are more ranks than heads
    value_dim = _int(text, "v_head_dim", default=dim)
    return Fraction(per_rank * (dim + value_dim))


def _state_bytes(text: Mapping[str, Any], tp: int) -> int:
    """Constant state of one recurrent layer on one rank: convolution and state-space part, or a declared number."""
    declared = text.get("state_bytes_per_layer")
    if declared is not None:
        return -(-_int(text, "state_bytes_per_layer") // tp)
    if "linear_num_value_heads" in text:  # gated delta net
        k_heads, k_dim = _int(text, "linear_num_key_heads"), _int(text, "linear_key_head_dim")
        v_heads, v_dim = _int(text, "linear_num_value_heads"), _int(text, "linear_value_head_dim")
        kernel = _int(text, "linear_conv_kernel_dim")
        conv = (2 * k_heads * k_dim + v_heads * v_dim) * (kernel - 1)
        return -(-(conv * 2 + v_heads * k_dim * v_dim * 4) // tp)
    heads, dim = _int(text, "mamba_n_heads", "mamba_num_heads"), _int(text, "mamba_d_head", "mamba_head_dim")
    state = _int(text, "mamba_d_state", "ssm_state_size")
    groups, kernel = _int(text, "mamba_n_groups", "n_groups", default=1), _int(text, "mamba_d_conv", "conv_kernel")
    conv = (heads * dim + 2 * groups * state) * (kernel - 1)
    return -(-(conv * 2 + heads * dim * state * 2) // tp)
