"""Classes: what carries each, what caps it, and that no copy makes a certificate look better than its worst one."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvcore.erasure import (
    E0,
    E1,
    E2,
    E3,
    E4,
    E5,
    FLAGS,
    REMARKS,
    CopyEvidence,
    Erasure,
    Graded,
    certificate_class,
    copy_class,
    exceptional,
    object_ref,
    objects_root,
)

FENCED = CopyEvidence(fenced=True, unroutable=True, salt_honoured=True, reachable=True, believed=3)
EVICTED = replace(FENCED, found=3, claimed=5, confirmed=True, verified=True, technique="unlink", medium="flash")
READ = {"technique": "memset", "readback": "readback", "sampled": 3, "clean": 3, "medium": "memory"}
WRITTEN = replace(EVICTED, **READ)
KEYLESS = replace(EVICTED, encrypted=True, key_destroyed=True, store_medium="kms")


@pytest.mark.parametrize(
    ("evidence", "cls", "flags"),
    [
        (CopyEvidence(), E0, ("NODE_UNREACHABLE", "SALT_NOT_HONOURED")),
        (replace(FENCED, unroutable=False), E0, ()),
        (replace(FENCED, salt_honoured=False), E0, ("SALT_NOT_HONOURED",)),
        (FENCED, E1, ()),
        (EVICTED, E2, ("SELF_ATTESTED",)),
        (replace(EVICTED, probed=True), E2, ()),
        (replace(EVICTED, salt_honoured=False), E2, ("SELF_ATTESTED",)),
        (replace(EVICTED, confirmed=False), E1, ()),
        (replace(EVICTED, verified=False), E1, ()),
        (replace(EVICTED, claimed=1), E1, ()),
        (replace(EVICTED, technique="none"), E1, ()),
        (replace(EVICTED, technique="none", found=0), E2, ("SELF_ATTESTED",)),
        (WRITTEN, E2, ("SELF_ATTESTED",)),
        (replace(WRITTEN, probed=True), E3, ()),
        (replace(WRITTEN, scanned=True), E3, ()),
        (replace(WRITTEN, scanned=True, claimed=2), E2, ()),
        (replace(WRITTEN, scanned=True, clean=2), E2, ()),
        (replace(WRITTEN, scanned=True, sampled=0, clean=0), E2, ()),
        (replace(WRITTEN, scanned=True, readback="list"), E2, ()),
        (replace(WRITTEN, scanned=True, medium="flash"), E2, ()),
        (replace(WRITTEN, scanned=True, technique="unlink"), E2, ()),
        (replace(WRITTEN, key_destroyed=True), E2, ("SELF_ATTESTED",)),
        (KEYLESS, E4, ()),
        (replace(KEYLESS, store_medium="flash"), E4, ("KEY_MEDIUM_UNSANITISED",)),
        (replace(KEYLESS, reachable=False, verified=False), E4, ("NODE_UNREACHABLE",)),
        (replace(KEYLESS, encrypted=False), E2, ("SELF_ATTESTED",)),
        (
            replace(EVICTED, technique="key_destroy", key_medium="flash"),
            E2,
            ("KEY_MEDIUM_UNSANITISED", "SELF_ATTESTED"),
        ),
        (replace(EVICTED, technique="key_destroy", key_medium="tpm"), E2, ("SELF_ATTESTED",)),
        (replace(FENCED, sanitised=True), E5, ()),
        (replace(KEYLESS, fenced=False), E0, ()),
        (replace(KEYLESS, gap=True), E1, ("GAP_UNRESOLVED",)),
        (replace(KEYLESS, held=True), E1, ("HELD",)),
        (replace(KEYLESS, leased=1), E1, ("LEASED",)),
        (replace(KEYLESS, contradicted=True), E1, ("CONTRADICTED",)),
        (replace(FENCED, sanitised=True, contradicted=True), E1, ("CONTRADICTED",)),
        (replace(KEYLESS, forced=True, emulated=True), E4, ("EMULATED", "FORCED")),
        (
            replace(KEYLESS, bypass_possible=True, weak_hash=True, backup_until="2026-12-29", engine_cannot=True),
            E4,
            ("BACKUP_UNTIL", "ENGINE_CANNOT", "WEAK_HASH", "BYPASS_POSSIBLE"),
        ),
    ],
)
def test_what_carries_a_class_and_what_caps_it(evidence: CopyEvidence, cls: Erasure, flags: tuple[str, ...]) -> None:
    found = copy_class(evidence)
    assert (found.cls, found.flags) == (cls, flags)


def test_where_nothing_was_known_and_nothing_found_there_is_no_copy() -> None:
    swept = replace(EVICTED, believed=0, found=0, technique="none")
    assert copy_class(swept) == Graded(E2, ("SELF_ATTESTED",), absent=True)
    for change in ({"believed": 1}, {"found": 1}, {"verified": False}, {"reachable": False}, {"gap": True}):
        assert not copy_class(replace(swept, **change)).absent
    assert certificate_class([copy_class(swept), Graded(E4)]).cls is E4
    assert certificate_class([copy_class(swept)]).cls is E2
    assert certificate_class([]).cls is E0


def test_names_of_flags_are_those_of_the_design() -> None:
    assert FLAGS[:13] == (
        "HELD", "NODE_UNREACHABLE", "GAP_UNRESOLVED", "LEASED", "BACKUP_UNTIL", "ENGINE_CANNOT", "SALT_NOT_HONOURED",
        "WEAK_HASH", "BYPASS_POSSIBLE", "KEY_MEDIUM_UNSANITISED", "EMULATED", "SELF_ATTESTED", "FORCED",
    )  # fmt: skip
    assert [c.name for c in Erasure] == [
        "ORDERED", "UNREACHABLE", "EVICTED", "OVERWRITTEN", "CRYPTO_ERASED", "MEDIA_SANITISED",
    ]  # fmt: skip
    assert set(FLAGS) > REMARKS


GRADED = st.builds(
    Graded, st.sampled_from(list(Erasure)), st.lists(st.sampled_from(FLAGS), unique=True).map(tuple), st.booleans()
)


@given(st.lists(GRADED, min_size=1))
def test_the_class_is_the_minimum_of_the_known_copies(copies: list[Graded]) -> None:
    found = certificate_class(copies)
    known = [copy.cls for copy in copies if not copy.absent] or [copy.cls for copy in copies]
    assert found.cls == min(known)
    assert set(found.flags) == {flag for copy in copies for flag in copy.flags}
    assert set(exceptional(found)) == set(found.flags) - REMARKS


@given(st.lists(GRADED, min_size=1), GRADED)
def test_a_better_copy_never_raises_it(copies: list[Graded], more: Graded) -> None:
    known = [*copies, Graded(copies[0].cls)]
    before, after = certificate_class(known), certificate_class([*known, more])
    assert after.cls <= before.cls
    assert set(after.flags) >= set(before.flags)


EVIDENCE = st.builds(
    CopyEvidence,
    **{f: st.booleans() for f, t in CopyEvidence.__annotations__.items() if t is bool},
    **{f: st.integers(0, 3) for f in ("believed", "found", "sampled", "clean", "leased")},
    claimed=st.integers(0, 5),
    technique=st.sampled_from(["memset", "unlink", "key_destroy", "delete", "none"]),
    readback=st.sampled_from(["readback", "list", "probe", "none"]),
    medium=st.sampled_from(["memory", "flash", "disk", "remote", "unknown"]),
    key_medium=st.sampled_from(["", "flash", "memory"]),
    store_medium=st.sampled_from(["", "flash", "kms"]),
)
GOOD = ("fenced", "unroutable", "salt_honoured", "reachable", "confirmed", "verified", "encrypted", "probed", "scanned",
        "key_destroyed", "sanitised")  # fmt: skip
BAD = ("gap", "contradicted", "held", "forced", "bypass_possible", "weak_hash", "engine_cannot", "emulated")


@given(EVIDENCE, st.sampled_from(GOOD), st.sampled_from(BAD))
@settings(max_examples=100, deadline=None)
def test_more_evidence_never_lowers_and_what_is_bad_never_raises(evidence: CopyEvidence, good: str, bad: str) -> None:
    at = copy_class(evidence).cls
    assert copy_class(replace(evidence, **{good: True})).cls >= at
    assert copy_class(replace(evidence, **{bad: True})).cls <= at
    assert copy_class(replace(evidence, leased=1)).cls <= at


@given(EVIDENCE)
@settings(max_examples=100, deadline=None)
def test_the_caps(evidence: CopyEvidence) -> None:
    e, found = evidence, copy_class(evidence)
    keyless = e.key_destroyed and e.encrypted
    if not (e.probed or e.scanned or e.sanitised or keyless):
        assert found.cls <= E2
        assert found.cls < E2 or "SELF_ATTESTED" in found.flags
    if not (e.reachable or e.sanitised or keyless) or e.gap or e.leased or e.held or e.contradicted:
        assert found.cls <= E1
    if found.cls is E3:
        assert e.medium == "memory"
    assert list(found.flags) == sorted(found.flags, key=FLAGS.index)


def test_objects_are_named_so_that_only_who_has_the_key_finds_them() -> None:
    order, key = "ab" * 32, bytes(range(32))
    assert object_ref(order, key) != object_ref("cd" * 32, key)
    refs = [object_ref(order, bytes([n]) * 32) for n in range(3)]
    assert objects_root(refs) == objects_root([*reversed(refs), refs[0]])
    assert objects_root([]) == hashlib.sha256(b"").hexdigest()
    assert objects_root(refs) == "cdf84d4a70d950c9fd0eea35e7dbb834a0783773b074beedfbf6419a874aefff"
