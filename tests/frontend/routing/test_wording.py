"""Words of routing: every code of the rules has one, and no word is for a code that is none."""

from frontend.routing import economics, wording
from kvcore.cards import REASONS, Terms
from kvcore.policies import KINDS
from kvcore.topology import LEVELS
from routing.selectors import ANSWERS, KEPT


def test_every_code_has_its_word():
    assert tuple(wording.TERMS) == Terms.__struct_fields__
    assert tuple(wording.GATES) == REASONS
    assert tuple(wording.POLICIES) == KINDS
    assert tuple(wording.LEVELS) == LEVELS
    assert tuple(wording.ANSWERS) == ANSWERS
    assert tuple(wording.KEPT) == KEPT


def test_every_field_and_panel_of_the_calculators_has_its_words():
    assert tuple(wording.PANELS) == tuple(economics.FIELDS) == tuple(economics.COMPUTE)
    assert set(wording.QUANTITIES) == {one.name for fields in economics.FIELDS.values() for one in fields}
