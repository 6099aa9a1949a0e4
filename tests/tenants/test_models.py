"""What the tables themselves hold on to, whoever writes."""

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from kvconsole.infra import sql
from tenants.models import Namespace, Tenant
from tests.tenants.making import a_namespace, a_tenant


@pytest.mark.django_db
@pytest.mark.parametrize("change", ["generation = generation - 1", "min_gen = 0", "digest = 'x'", "tenant_id = id"])
def test_generations_and_fences_only_grow_and_identity_stays(change):
    namespace = a_namespace()
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE tenants_namespace SET {change} WHERE id = %s", (namespace.id,))
    assert Namespace.objects.get(id=namespace.id).generation == 1


@pytest.mark.django_db
@pytest.mark.parametrize("fields", [{"isolation": "x"}, {"erasure_scope": "x"}])
def test_words_outside_the_lists_are_refused_by_the_table(fields):
    tenant = a_tenant()
    with pytest.raises(DatabaseError), transaction.atomic():
        Tenant.objects.filter(id=tenant.id).update(**fields)


@pytest.mark.django_db(transaction=True)
def test_fences_are_numbered_in_the_order_of_their_commits():
    namespace = a_namespace()
    raise_fence = sql.named("tenants")["fence_raise"]

    def values(gen):
        return (namespace.tenant_id, namespace.id, bytes(namespace.digest), gen, "2026-09-01T00:00:00Z")

    with (
        psycopg.connect(sql.dsn("migrate", options="-c role=kv_owner")) as first,
        psycopg.connect(sql.dsn("migrate", options="-c role=kv_owner")) as second,
    ):
        one = first.execute(raise_fence, values(2)).fetchone()[0]
        second.execute("SET lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute(raise_fence, values(3))  # waits until the first has committed
        second.rollback()
        first.commit()
        two = second.execute(raise_fence, values(3)).fetchone()[0]
        second.commit()
    assert one < two


@pytest.mark.django_db
def test_tokens_are_found_by_holder_without_reading_all_of_them():
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN SELECT 1 FROM tenants_token WHERE holder IN ('a', 'b') AND kind = 'invite'")
        assert "tenants_token_holder" in str(cursor.fetchall())
