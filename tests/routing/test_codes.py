import re

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


def test_the_document_has_each_refusal_of_a_router_under_its_status():
    """By their text: no request could bring about all of them."""
    modules = [p.read_text() for p in (CLONE / "routing").glob("*.py")]
    raised = {code for text in modules for code in re.findall(r'Refusal\(\s*"([a-z-]+)"', text)}
    raised |= {"outcome-known", "forbidden", "scope-missing"}  # these come from rules and from the record
    document = (CLONE / "docs" / "routing.md").read_text()
    rows = re.findall(r"^\| (\d{3}[\d, ]*)[^|]*\| (.*) \|$", document[document.index("## Refusals") :], re.MULTILINE)
    told = {code: statuses for statuses, codes in rows for code in re.findall("`([a-z-]+)`", codes)}
    assert set(told) == raised
    assert not {code: CODES[code][0] for code, statuses in told.items() if str(CODES[code][0]) not in statuses}
