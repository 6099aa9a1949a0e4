"""How cells, classes and fields of operations are drawn."""

from frontend.operations.running import joined
from frontend.templatetags.operating import amount, cell, eclass
from tests.frontend.operations.test_running import place


def test_nothing_is_not_unknown_and_unknown_is_not_nothing():
    empty = joined(None, place(total=0, done=0, cls=None, state="pending"))
    assert amount(empty) == "nothing was known here"
    assert "no such tier" in cell(None)
    assert "unknown" in eclass(None)
    assert 'class="on"' not in eclass(0)
    assert eclass(2).count('class="on"') == 2
    assert 'data-state="silent"' in cell(joined(None, place(state="silent")))
