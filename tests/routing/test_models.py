import psycopg
import pytest

from kvconsole.infra import sql


@pytest.mark.django_db
def test_leases_are_for_those_that_route_and_for_no_tenant():
    with sql.connect("router") as cx:
        assert cx.execute("SELECT count(*) FROM routing_indexlease").fetchone() == (0,)
    with sql.connect("tenant") as cx, pytest.raises(psycopg.errors.InsufficientPrivilege):
        cx.execute("SELECT * FROM routing_indexlease")
