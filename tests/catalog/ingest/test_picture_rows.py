"""Each statement is one that PostgreSQL takes, as the role that sends it."""

import re

import psycopg
import pytest

from catalog.ingest import picture_rows
from kvconsole.infra.sql import dsn

STATEMENTS = {
    name: text
    for name, value in vars(picture_rows).items()
    if name.isupper() and not name.startswith("_")
    for text in ([value] if isinstance(value, str) else value)
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_it_can_be_prepared_by_the_writer(django_db_setup, name):
    numbers = iter(range(1, 100))
    text = re.sub(r"%[sb]", lambda _: f"${next(numbers)}", STATEMENTS[name])
    with psycopg.connect(dsn("ingest")) as connection:
        connection.execute(f"PREPARE picture AS {text}")
        connection.rollback()
