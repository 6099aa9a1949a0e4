"""Who acts, as a value, and what of it the rules of routes ask."""

from dataclasses import replace

import pytest

from kvconsole.infra.access import ANY, PUBLIC, audited, counted
from kvconsole.infra.principals import Principal, system

PERSON = Principal(kind="user", id="p", roles=frozenset({"viewer", "approver"}), proved_at=1000.0)


@pytest.mark.parametrize("code", ["own-password-needed", "second-factor-needed"])
def test_who_owes_something_has_no_role_and_reaches_nothing_else(code):
    owing = replace(PERSON, owes=code)
    assert PERSON.may("viewer")
    assert not owing.may("viewer")
    for rule in (counted(ANY), audited(ANY, step_up=True), counted("viewer")):
        assert rule.refusal(owing, 1000.0) == code
        assert not rule.allows(owing)
    assert counted(PUBLIC).refusal(owing, 1000.0) is None
    assert counted(ANY, during=(code,)).refusal(owing, 1000.0) is None
    assert counted(ANY, during=("another",)).refusal(owing, 1000.0) == code
    assert audited(ANY, step_up=True, during=(code,)).refusal(owing, 2000.0) == "step-up-required"


@pytest.mark.parametrize("kind", ["token", "gateway", "node", "system"])
def test_what_only_a_person_does_no_token_does_whatever_its_scopes(kind):
    rule = audited("approver", step_up=True, person=True)
    assert rule.refusal(PERSON, 1000.0) is None
    assert rule.refusal(PERSON, 2000.0) == "step-up-required"
    token = replace(PERSON, kind=kind, scopes=frozenset({rule.scope, "*:write"}))
    assert rule.refusal(token, 1000.0) == "person-needed"


def test_a_person_proves_and_a_token_names():
    assert PERSON.unproven("x:destroy", 1300.0) is None
    assert PERSON.unproven("x:destroy", 1301.0) == "step-up-required"
    assert PERSON.unproven("x:destroy", 999.0) == "step-up-required", "a proof from the future is none"
    token = Principal(kind="token", id="t", scopes=frozenset({"x:destroy"}))
    assert (token.unproven("x:destroy", 0.0), token.unproven("y:destroy", 0.0)) == (None, "scope-missing")
    assert system("web").unproven("x:destroy", 0.0) is None
