"""Decides how it is said why two namespaces share nothing: the fields in which they differ, as codes and in words.

Called by `GET /explain-reuse` and its page. Two namespaces are one if and only if no field differs, so the answer is
complete by construction: it compares exactly what `kvcore.keys.namespace_digest` is made of.
"""

import msgspec

from kvcore.keys import NamespaceSpec


class Difference(msgspec.Struct, frozen=True):
    """One reason. `a` and `b` are the two values as people may see them, "" = none or not shown."""

    code: str
    a: str
    b: str
    words: str


REASONS: dict[str, tuple[tuple[str, ...], str]] = {
    "model": (("model",), "They are of different models."),
    "weights-epoch": (
        ("weights_epoch", "weights_digest"),
        "They are of different epochs of the weights: the same tokens give other keys and values.",
    ),
    "adapter": (("adapter_digest",), "They use different adapters; an adapter is known by the digest of its bytes."),
    "position": (("position",), "Positions are encoded differently (RoPE base, scaling or kind)."),
    "modality": (("modality",), "Images or sound are encoded differently."),
    "kv-dtype": (("kv_dtype",), "Keys and values are kept in different number formats."),
    "kv-scales": (("kv_scales",), "Keys and values are quantised with different scales."),
    "tokenizer": (("tokenizer",), "The tokenizers differ: one token number means different text."),
    "block-size": (("block_tokens",), "Their blocks hold different numbers of tokens."),
    "key-scheme": (("key_scheme",), "Their blocks are named in different ways (by content, or by one engine)."),
    "scope": (
        ("scope_kind", "scope"),
        "They belong to different tenants or share groups. What a tenant caches is private by default.",
    ),
    "data-class": (("data_class",), "Their data classes differ, and the tenant erases each class apart."),
    "label": (("label",), "Their labels differ, and the tenant erases each label apart."),
    "subject": (("subject",), "They are of different people, whose data the tenant erases apart."),
    "session": (("session",), "They are of different sessions, which the tenant erases apart."),
    "erasure-scope": (
        ("erasure_scope",),
        "They were made under different erasure scopes of the tenant: one may mix what the other keeps apart.",
    ),
}
"""Code → the fields of `NamespaceSpec` it speaks of, and what is said. Together they cover every field once."""
OF_OWNER = "erasure-scope"
"""A reason that says nothing where the owners differ already."""
HIDDEN = frozenset({"subject", "session"})
"""Reasons whose values are shown to nobody."""
SAME = "They are one namespace: equal prompts share their blocks."


def explain(a: NamespaceSpec, b: NamespaceSpec) -> list[Difference]:
    """Every reason that keeps the two apart, in the order of `REASONS`; none = they are one namespace."""
    found: list[Difference] = []
    for code, (fields, words) in REASONS.items():
        if code == OF_OWNER and any(d.code == "scope" for d in found):
            continue
        if any(getattr(a, f) != getattr(b, f) for f in fields):
            shown = ("", "") if code in HIDDEN else (_shown(a, fields), _shown(b, fields))
            found.append(Difference(code, *shown, words))
    return found


def sentence(differences: list[Difference]) -> str:
    """The whole answer in one line."""
    if not differences:
        return SAME
    listed = ", ".join(d.code for d in differences)
    return f"They share nothing, because of {listed}."


def _shown(spec: NamespaceSpec, fields: tuple[str, ...]) -> str:
    return " ".join(str(value) for f in fields if (value := getattr(spec, f)) not in ("", None))
