"""What of the own fleet stands in the fields: measured only where there are samples."""

from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID

from frontend.routing import own
from kvcore.loads import WorkerLoad


def reported(**load):
    made = WorkerLoad(source="e", number=1, **load)
    return SimpleNamespace(node=UUID(int=1), at=datetime.now(UTC), load=made)


NAMES = {str(UUID(int=1)): "n1"}


def test_the_curve_with_the_most_samples_counts_and_one_without_is_declared():
    found = own._curve([reported(curve=(0, 0.01, 1e-7, 3)), reported(curve=(0, 0.02, 2e-7, 40))], NAMES)
    assert found["linear_us"] == ("20", "measured", "n1")
    assert own._curve([reported(curve=(0, 0.05, 0, 0))], NAMES)["linear_us"].origin == "declared"
    assert own._curve([reported()], NAMES) == {}


def test_the_middle_edge_counts_and_one_without_samples_does_not():
    edges = {"a": (1e6, 1.0, 5), "b": (3e6, 3.0, 5), "c": (2e6, 2.0, 5), "d": (9e9, 0.0, 0)}
    found = own._edge([reported(edges=edges)])
    assert (found["bandwidth"].text, found["latency_ms"].text) == ("2", "2")
    assert own._edge([reported()]) == {}


def test_the_first_model_counts_where_none_is_named():
    models = [SimpleNamespace(name="a"), SimpleNamespace(name="b")]
    assert own.chosen(models, "b").name == "b"
    assert own.chosen(models, "none").name == "a"
    assert own.chosen([], "a") is None
