"""Every refusal has a page that says what was not done."""

import pytest

from catalog.ingest.codes import CODES
from frontend.problems import PROBLEMS, problem
from kvconsole.infra import rest


def test_every_code_of_ingest_and_rest_has_a_meaning():
    import catalog.services  # noqa: F401  (apps add their codes when they are imported)
    import tenants.services  # noqa: F401

    missing = (set(CODES) | set(rest.CODES)) - set(PROBLEMS)
    assert not missing


@pytest.mark.parametrize("code", sorted(PROBLEMS))
def test_a_meaning_is_whole(code):
    found = problem(code)
    assert found
    assert all(str(part) for part in found)
    assert not str(found.title).endswith(".")
    assert str(found.undone).endswith(".")


def test_no_meaning_for_what_is_no_code():
    assert problem("nothing-of-the-kind") is None
