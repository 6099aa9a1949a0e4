"""How filters are read from queries and bodies, and kept with a job."""

from datetime import UTC, datetime

from audit import bodies
from audit.export.making import filter_of, told


def test_a_filter_survives_the_row_of_a_job():
    span, words = {"from": datetime(2026, 1, 1, tzinfo=UTC)}, {"outcome": "denied", "object": "token:x", "tenant": ""}
    kept = bodies.said_of(span, words)
    assert kept == {"outcome": "denied", "object": "token:x", "from": "2026-01-01T00:00:00+00:00"}
    assert filter_of(kept) == bodies.filter_of({**span, **words})


def test_events_and_bundles_tell_of_a_person_only_that_one_was_named():
    said = told({"actor": "user:1", "object": "user:1", "request_id": "r", "outcome": "denied"})
    assert said == {"actor": "named", "request_id": "named", "object": "user", "outcome": "denied"}
