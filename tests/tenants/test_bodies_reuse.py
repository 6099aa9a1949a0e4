"""What is described is what is answered: serializers of answers have exactly the fields of the values."""

import pytest

from kvcore.reuse import Difference
from tenants import bodies_reuse as bodies
from tenants import reading


@pytest.mark.parametrize(
    ("described", "value"),
    [
        (bodies.FamilyOut, reading.ModelView),
        (bodies.LineageEpochOut, reading.EpochView),
        (bodies.LineageAdapterOut, reading.AdapterView),
        (bodies.LineageUseOut, reading.UseView),
        (bodies.LineageOut, reading.Lineage),
        (bodies.RolloutEpochOut, reading.RolloutEpoch),
        (bodies.PointOut, reading.Point),
        (bodies.RolloutOut, reading.RolloutView),
        (bodies.ComparedOut, reading.NamespaceView),
        (bodies.DifferenceOut, Difference),
        (bodies.ExplanationOut, reading.Explanation),
        (bodies.ShareGroupOut, reading.GroupView),
    ],
)
def test_descriptions_have_the_fields_of_what_is_answered(described, value):
    assert set(described._declared_fields) == set(value.__struct_fields__)
