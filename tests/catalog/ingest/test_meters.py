"""No figure of the process names a tenant, a node or a source."""

from catalog.ingest import meters


def test_labels_are_few_and_bounded():
    labels = {label for m in meters.REGISTRY._names_to_collectors.values() for label in m._labelnames}
    assert labels == {"state", "code"}
    assert b"kvc_ingest_commits_total" in meters.text()
