"""Proof files of events, under the newest checkpoint."""

import pytest

from audit.proving import checkpoint_now, proof_of
from kvconsole.infra.rest import Problem
from kvcore.notes import proof_parse
from kvcore.proofs import leaf_hash, verify_inclusion
from tests.audit.test_selectors import told

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
