"""Words of operations: each code has one, and none claims anything of bytes."""

import pytest

from frontend.operations import wording
from kvcore.erasure_words import too_strong


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_word_of_the_pages_claims_anything_of_bytes(language):
    from django.utils.translation import override

    with override("zh-hans" if language == "zh" else "en"):
        for name in ("STATES", "CELLS", "STEPS", "STEP_STATES", "CONDITIONS", "WHY", "KINDS", "BLOCKED", "RISKS"):
            for code, word in getattr(wording, name).items():
                said = str(word[0] if name == "CONDITIONS" else getattr(word, "word", word))
                assert not too_strong(said, 0, language), f"{name} {code}"


def test_every_code_of_the_rules_has_its_word():
    from django.conf import settings

    from catalog.models.operations import HOLD_STATES, STEP_STATES
    from catalog.operation_bodies import STATES
    from kvcore.plan_kinds import KINDS
    from kvcore.risk import WIDTHS

    assert set(STATES) <= set(wording.STATES)
    assert set(KINDS) <= set(wording.KINDS)
    assert set(STEP_STATES) <= set(wording.STEP_STATES)
    assert set(HOLD_STATES) == set(wording.HOLDS)
    assert set(settings.APPROVAL_OWNERS) == set(wording.APPROVALS)
    assert {f"one-{width}" for width in WIDTHS[2:6]} <= set(wording.REASONS)
    assert {f"whole-{width}" for width in WIDTHS[6:9]} <= set(wording.REASONS)


def test_every_condition_of_a_move_has_its_word():
    from kvcore.move_steps import MoveIntent, MoveObserved, conditions

    found = conditions(
        MoveIntent(operation="", generation=1, kind="drain", routes=()),
        MoveObserved(now=0.0, places={}, steps=()),
        False,
    )
    assert {c.type for c in found} <= set(wording.CONDITIONS)
