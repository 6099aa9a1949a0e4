"""Why two namespaces share nothing: complete, and exact for every pair of variants."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kvcore.keys import NamespaceSpec, namespace_digest
from kvcore.reuse import HIDDEN, REASONS, SAME, explain, sentence

BASE = NamespaceSpec(model="m", weights_epoch=1, weights_digest="w", scope="t", subject="s", session="x")
VARIANTS = {
    "weights-epoch": {"weights_epoch": 2},
    "adapter": {"adapter_digest": "sha256:a"},
    "position": {"position": '{"rope_theta":500000}'},
    "modality": {"modality": "sha256:v"},
    "kv-dtype": {"kv_dtype": "fp8_e4m3"},
    "tokenizer": {"tokenizer": "sha256:t"},
    "block-size": {"block_tokens": 32},
}


def with_(**fields: object) -> NamespaceSpec:
    return NamespaceSpec(**{**{f: getattr(BASE, f) for f in BASE.__struct_fields__}, **fields})  # type: ignore[arg-type]


def test_every_field_of_a_namespace_is_a_reason_exactly_once() -> None:
    named = [field for fields, _ in REASONS.values() for field in fields]
    assert sorted(named) == sorted(NamespaceSpec.__struct_fields__)


def test_seven_variants_are_seven_namespaces_and_all_21_pairs_are_explained() -> None:
    specs = {code: with_(**fields) for code, fields in VARIANTS.items()}
    assert len({namespace_digest(spec) for spec in specs.values()}) == 7
    pairs = list(combinations(specs, 2))
    assert len(pairs) == 21
    for one, two in pairs:
        assert {d.code for d in explain(specs[one], specs[two])} == {one, two}
    for code, spec in specs.items():
        assert [d.code for d in explain(BASE, spec)] == [code]


SPECS = st.builds(
    NamespaceSpec,
    **{
        name: st.integers(1, 3) if name in ("weights_epoch", "block_tokens") else st.sampled_from(["", "a", "b"])
        for name in NamespaceSpec.__struct_fields__
    },
)


@given(SPECS, SPECS)
def test_nothing_is_named_if_and_only_if_it_is_one_namespace(a: NamespaceSpec, b: NamespaceSpec) -> None:
    found = explain(a, b)
    assert (found == []) == (namespace_digest(a) == namespace_digest(b))
    assert [d.code for d in found] == [d.code for d in explain(b, a)]
    assert all(d.words for d in found)
    if found:
        assert all(d.code in sentence(found) for d in found)
    else:
        assert sentence(found) == SAME


def test_people_and_sessions_are_named_but_not_shown() -> None:
    found = explain(BASE, with_(subject="other", session="y", label="l"))
    assert {d.code: (d.a, d.b) for d in found} == {"subject": ("", ""), "session": ("", ""), "label": ("", "l")}
    assert {"subject", "session"} == HIDDEN
