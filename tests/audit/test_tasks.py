"""Tasks only wake: they read their rows and ignore what is not due."""

import pytest

from audit import tasks
from kvconsole.celery import app


@pytest.mark.django_db
def test_old_answers_are_swept_as_planned():
    app.loader.import_default_modules()
    assert "audit.idempotency_sweep" in app.tasks
    (entry,) = (e for e in app.conf.beat_schedule.values() if e["task"] == "audit.idempotency_sweep")
    assert entry["schedule"] <= 3600
    tasks.idempotency_sweep.run()
