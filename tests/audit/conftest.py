"""A log to seal, spoil and check."""

from collections.abc import Iterator

import pytest

from tests.audit.loglab import Log, as_sequencer
from tests.audit.sealed import Sealed, a_signer_at


@pytest.fixture
def log(fresh_database, django_db_blocker) -> Iterator[Log]:
    """A fresh database with an empty log; Django works in it as the sequencer's process does."""
    with django_db_blocker.unblock(), as_sequencer(fresh_database):
        made = Log(fresh_database)
        yield made
        made.sequencer.close()


@pytest.fixture
def sealed(db, tmp_path, settings) -> Iterator[Sealed]:
    """`sealed()` seals and signs what waits in the test database; exports have a place."""
    settings.EXPORT_DIR = str(tmp_path / "exports")
    settings.WITNESS_URL = settings.WITNESS_VKEY = ""
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    (tmp_path / "signer").mkdir(mode=0o700)
    with a_signer_at(tmp_path / "signer", settings) as made:
        yield made
