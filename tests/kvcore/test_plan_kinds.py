"""Kinds of operations: who claims that something is gone has fenced it first and looks at it last."""

from kvcore.plan_kinds import FINALIZERS, KINDS


def test_a_certificate_stands_on_a_fence_and_a_look() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name
        assert set(kind.finalizers) <= set(FINALIZERS)
        if kind.certified:
            assert (kind.fences, kind.looks) == (True, True), name
        if kind.keys:
            assert (kind.fences, "keys" in kind.finalizers) == (True, True), name
        assert ("routing" in kind.finalizers) == kind.fences, name
