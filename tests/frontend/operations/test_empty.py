"""Pages of operations where nothing was asked for yet."""

import pytest

from tests.frontend.operations.test_views import text

pytestmark = pytest.mark.django_db


def test_a_page_without_anything_says_how_one_begins(person):
    who = person("destructive-operator")
    assert "A deletion begins with a plan" in text(who.get("/operations"))
    assert "You have no plan that could be started." in text(who.get("/plans"))
    assert "Nothing waits for a second person" in text(who.get("/approvals"))
    assert "There was no legal hold yet" in text(who.get("/holds"))
    assert "No model is registered" in text(who.get("/epochs/retire"))
