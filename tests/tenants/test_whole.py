"""Whether the fences in the database are all there are, in each of its lives."""

from datetime import UTC, datetime

import pytest
from django.db import connection

from kvconsole.infra.access import system
from kvconsole.infra.keystore import keystore, namespace_name
from kvconsole.infra.rest import Problem
from tenants import whole
from tenants.models import FenceEntry, FenceLife, Namespace
from tenants.services import generation_bump, namespace_resolve
from tenants.services.namespace import _first_open
from tenants.services.replaying import (
    comparing,
    fences_behind,
    fences_compared,
    fences_mark,
    fences_replay,
)
from tenants.whole import fences_whole, life, need_fences
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = pytest.mark.django_db(databases=["default", "tenant"])
WHO, NOW = system("test"), datetime.now(UTC)


@pytest.fixture(autouse=True)
def compared(settings):
    settings.FENCES_COMPARED = True
    whole.forget()
    yield
    whole.forget()


def test_nothing_is_answered_in_a_life_in_which_nobody_compared() -> None:
    assert not fences_whole()
    with pytest.raises(Problem, match="goes on by itself"):
        need_fences()
    fences_compared(life=life(), behind=False, answered=(), done=True, without=(), actor=WHO)
    need_fences()
    FenceLife.objects.update(life="another")
    assert fences_whole(), "for half a second"
    whole.forget()
    assert not fences_whole()
    assert comparing()[1:] == (False, False, frozenset())


def test_a_table_that_was_made_again_is_another_life() -> None:
    before = life()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_filenode('tenants_fenceentry'::regclass)")
        (node,) = cursor.fetchone()
    assert str(node) in before.split("/")


def test_what_the_key_store_has_seen_is_fenced_again(settings) -> None:
    settings.FENCES_COMPARED = False
    namespace = a_namespace(a_tenant(), a_model())
    digest, store = bytes(namespace.digest), keystore()
    assert not fences_behind()
    store.ensure(namespace_name(digest, 3))  # as it is made when the second generation is fenced
    store.destroy(namespace_name(digest, 1))
    assert store.generations()[digest] == 3
    assert fences_behind()
    assert fences_replay(seen={**store.generations(), b"x" * 32: 9}, actor=WHO, now=NOW) == 1
    namespace.refresh_from_db()
    assert (namespace.generation, namespace.min_gen, namespace.state) == (3, 3, "active")
    assert FenceEntry.objects.get(digest=digest).min_gen == 3
    assert fences_replay(seen=store.generations(), actor=WHO, now=NOW) == 0
    assert not fences_behind()
    assert fences_replay(seen={digest: 2**63}, actor=WHO, now=NOW) == 1
    assert Namespace.objects.get(id=namespace.id).state == "closed"


def test_a_database_without_the_newest_fence_is_an_older_one(settings) -> None:
    settings.FENCES_COMPARED = False
    namespace = a_namespace(a_tenant(), a_model())
    generation_bump(namespace=namespace, reason="test", actor=WHO)
    fences_mark(FenceEntry.objects.latest("seq").seq)
    assert not fences_behind()
    keystore().mark_fence(1, "another")  # never back
    assert not fences_behind()
    keystore().mark_fence(2**40, "lost")
    assert fences_behind()


def test_a_namespace_that_was_forgotten_is_open_above_what_was_fenced(settings) -> None:
    settings.FENCES_COMPARED = False
    tenant, model = a_tenant(), a_model()
    first = namespace_resolve(tenant=tenant, model=model, label="a", actor=WHO)
    digest = bytes(first.digest)
    generation_bump(namespace=first, reason="test", actor=WHO)
    keystore().destroy(namespace_name(digest, 1))
    assert _first_open(digest) == 2
    assert _first_open(bytes(32)) == 1
