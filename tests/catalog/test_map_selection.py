"""What a row of the map stands for: named where it is one family, nothing where it is none or many."""

import pytest

from catalog.map_selection import MOST_KEYS, row_meant
from catalog.models import HeatRow
from tests.frontend.conftest import planted as planted

pytestmark = pytest.mark.django_db


def test_a_row_of_a_family_names_tenant_namespace_and_first_keys(planted):
    row = HeatRow.objects.exclude(family=None).exclude(keyspace=None).first()
    meant = row_meant(f"{row.id:016x}")
    assert meant.tenant
    assert len(bytes.fromhex(meant.namespace)) == 32
    assert len(meant.keys) <= MOST_KEYS
    assert {len(bytes.fromhex(key)) for key in meant.keys} <= {16}


@pytest.mark.parametrize("row", ["", "x", "f" * 16, "0" * 16, "0" * 15, "0" * 15 + "g", "0" * 17])
def test_what_is_no_row_means_nothing(planted, row):
    assert row_meant(row) is None
