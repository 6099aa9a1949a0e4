"""The unmanaged models say what the tables have."""

import pytest
from django.apps import apps
from django.db import connection

NAMES = ("Shard", "Source", "Owner", "Keyspace", "Segment", "Placement", "Holding", "Ledger", "Reader")


@pytest.mark.django_db
@pytest.mark.parametrize("name", NAMES)
def test_columns(name: str) -> None:
    model = apps.get_model("catalog", name)
    with connection.cursor() as cursor:
        columns = {
            c.name: c.null_ok for c in connection.introspection.get_table_description(cursor, model._meta.db_table)
        }
    assert {f.column: f.null for f in model._meta.concrete_fields if f.name != "pk"} == columns
    assert list(model.objects.all()[:1]) is not None
