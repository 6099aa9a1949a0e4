"""A log to look at: some events, sealed and signed by a real signer."""

from tests.audit.conftest import sealed  # noqa: F401 - a fixture
