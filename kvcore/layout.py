"""Decides what of a model, beside its weights, makes two caches of the same tokens differ: the layout of its KV.

Called when a model is registered; the result is part of every namespace of it (`kvcore.keys.NamespaceSpec`).
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
import rfc8785

from kvcore.sizes import ConfigError, cache_dtype, text_part

POSITION_FIELDS = (
    "alibi", "max_position_embeddings", "no_rope_layer_interval", "no_rope_layers", "original_max_position_embeddings",
    "partial_rotary_factor", "position_embedding_type", "rope_interleave", "rope_local_base_freq", "rope_parameters",
    "rope_scaling", "rope_theta", "rope_type", "rotary_emb_base", "rotary_pct",
)  # fmt: skip
"""Fields of a config that say how positions are encoded."""
_DYNAMIC = ("dynamic", "yarn", "longrope", "su")
"""Kinds of scaling that depend on the longest length the model is served with."""
MODALITY_FIELDS = (
    "audio_config", "audio_tower", "mm_audio_tower", "mm_projector_type", "mm_vision_select_layer", "mm_vision_tower",
    "speech_config", "video_config", "vision_config", "vision_feature_layer", "vision_tower",
)  # fmt: skip
"""Fields of a config that say what turns pictures and sound into tokens."""
MOST_SHOWN = 200
"""Longer descriptions of positions are replaced by their digest."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a namespace that its model decides."""

    position: str = "rope"
    modality: str = ""
    kv_dtype: str = "bfloat16"
    kv_scales: str = ""
    tokenizer: str = ""
    quantisation: str = ""
    """Of the weights, for the lineage; not in the namespace, because the weights' digest says more."""


def layout_of(
    config: Mapping[str, Any],
    *,
    kv_dtype: str = "auto",
    kv_scales: str = "",
    tokenizer_digest: str = "",
    modality_digest: str = "",
) -> Layout:
    """The layout of a model.

    Args:
        config: its `config.json`.
        kv_dtype: of the cache; "auto" = the model's.
        kv_scales: names the quantisation scales (digest or kind), "" = none or one a tensor.
        tokenizer_digest: "" = the config's `tokenizer_digest`, else not known.
        modality_digest: of the encoders of pictures and sound; "" = a digest of what the config says of them.

    Raises:
        ConfigError: the dtype is unknown, or the config cannot be written as canonical JSON.
    """
    text = text_part(config)
    found = {f: text[f] for f in POSITION_FIELDS if text.get(f) is not None}
    if not _scaled_by_length(found):
        found.pop("max_position_embeddings", None)
    encoders = {f: config[f] for f in MODALITY_FIELDS if config.get(f) is not None}
    position = _canonical(found).decode() if found else "rope"
    return Layout(
        position=position if len(position) <= MOST_SHOWN else _digest(position.encode()),
        modality=modality_digest or (_digest(_canonical(encoders)) if encoders else ""),
        kv_dtype=cache_dtype(config, kv_dtype),
        kv_scales=kv_scales,
        tokenizer=tokenizer_digest or str(config.get("tokenizer_digest") or "")[:128],
        quantisation=_quantisation(config.get("quantization_config") or text.get("quantization_config")),
    )


def _scaled_by_length(found: Mapping[str, Any]) -> bool:
    scaling = found.get("rope_scaling") or found.get("rope_parameters")
    kind = (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, Mapping) else None
    return kind in _DYNAMIC or found.get("position_embedding_type") == "absolute"


def _quantisation(said: object) -> str:
    if not isinstance(said, Mapping):
        return ""
    method, bits = said.get("quant_method"), said.get("bits")
    return f"{method or 'quantised'}{f' {bits} bit' if isinstance(bits, int) else ''}"[:60]


def _canonical(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError) as e:
        raise ConfigError("config-field", "the config cannot be written as canonical JSON") from e


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
