"""Personal data and names in the log, while the key lives and after."""

from datetime import UTC, datetime, timedelta

import pytest

from audit import disclosure, selectors
from kvconsole.infra import keystore
from tests.audit.test_selectors import found, sealed_of, told
from tests.tenants.making import principal

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def test_what_was_altered_says_so():
    (event,) = told(actor=principal(None, "operator"), pii={"name": "Ada"})
    row = selectors.event(event.event_id)
    kept = sealed_of(row)
    spoiled = kept._replace(blob=kept.blob[:-1] + bytes([kept.blob[-1] ^ 1]))
    assert disclosure.shown(row, spoiled, opened=True) == "altered"
    assert disclosure.shown(row, None, opened=True) == "shredded"
    assert disclosure.shown(row, None, opened=False) == "sealed"


def test_who_was_shredded_is_found_by_no_name_any_more():
    person = principal(None, "operator")
    (event,) = told(actor=person, pii={"name": "Ada"})
    now = datetime.now(UTC)
    assert disclosure.actor_refs(f"user:{person.id}", now - timedelta(days=400), now) == [bytes(event.actor_ref)]
    keystore.keystore().destroy(keystore.subject_name(f"user:{person.id}", now=now.timestamp()))
    assert found(actor=person.id) == []
