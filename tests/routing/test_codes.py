import pytest

from frontend.problems import PROBLEMS
from kvconsole.infra.rest import CODES
from routing.codes import ROUTING, Refusal
from tests.architecture.tree import CLONE


@pytest.mark.parametrize("code", ROUTING)
def test_each_code_has_words_and_a_page(code):
    assert code in PROBLEMS
    assert (CLONE / "docs" / "problems" / f"{code}.md").exists()
    assert Refusal(code).status == CODES[code][0]
    assert 400 <= Refusal(code).status < 500
