"""Proof files of events, under the newest checkpoint."""

import base64

import pytest

from audit import jobs  # noqa: F401 - the codes of what is refused
from audit.proving import checkpoint_now, consistency_of, proof_of
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import connect
from kvcore.notes import proof_parse
from kvcore.proofs import leaf_hash, verify_consistency, verify_inclusion
from tests.audit.test_selectors import told
from tests.tenants.persons import Person

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_every_event_of_a_log_has_one(sealed):
    events = told(30)
    with pytest.raises(Problem, match="not in the log yet"):
        proof_of(events[0].id)
    with pytest.raises(Problem, match="No signed checkpoint"):
        checkpoint_now()
    sealed()
    newest = checkpoint_now()
    for event in events:
        found = proof_parse(proof_of(event.id))
        assert verify_inclusion(leaf_hash(found.leaf), found.index, newest.size, found.path, newest.root)


def test_two_sizes_of_a_log_have_what_shows_that_it_only_grew(sealed):
    told(5)
    first = sealed()
    old = checkpoint_now()
    told(7)
    second = sealed()
    new = checkpoint_now()

    def path(*sizes):
        return [base64.b64decode(line) for line in consistency_of(*sizes).splitlines()]

    assert verify_consistency(first, second, path(first), old.root, new.root)
    assert verify_consistency(first, second, path(first, second), old.root, new.root)
    assert path(0) == path(second) == path(first, first) == []
    for sizes, name in (((second + 1,), "old"), ((-1,), "old"), ((second, first), "old"), ((0, second + 1), "new")):
        with pytest.raises(Problem) as refused:
            consistency_of(*sizes)
        assert [error["pointer"] for error in refused.value.errors] == [f"/{name}"]
    who = Person("auditor")
    answer = who.get(f"/audit/consistency?old={first}&new={second}")
    assert (answer.content.decode(), answer["Content-Type"]) == (consistency_of(first), "text/plain; charset=utf-8")
    for query in ("", "?old=x", "?old=1&epoch=x", f"?old={'9' * 20}"):
        assert who.get(f"/audit/consistency{query}").json()["code"] == "validation-failed"


def test_a_log_whose_nodes_are_gone_says_so(sealed):
    events = told(3)
    sealed()
    with connect("migrate") as cx:
        cx.execute("ALTER TABLE audit_leaf DISABLE TRIGGER ALL")
        cx.execute("DELETE FROM audit_leaf WHERE idx < 2")
    for act in (lambda: consistency_of(1), lambda: proof_of(events[-1].id)):
        with pytest.raises(Problem) as refused:
            act()
        assert refused.value.code == "log-torn"
