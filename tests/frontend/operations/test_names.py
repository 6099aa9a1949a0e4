"""Who is named on pages of operations: people that the reader may look up; of others only what kind they are."""

import uuid

import pytest

from frontend.operations.names import kind_of, people_of
from tenants.models import User

pytestmark = pytest.mark.django_db


def test_people_are_named_and_what_cannot_be_looked_up_is_a_kind(person):
    person("viewer", name="mira-okafor")
    known, gone = f"user:{User.objects.get(username='mira-okafor').id}", f"user:{uuid.uuid4()}"
    found = people_of([known, gone, "token:0123", "user:nonsense", known])
    assert found[known] == "mira-okafor"
    assert found[gone] == found["user:nonsense"] == kind_of("user:x")
    assert found["token:0123"] == kind_of("service:x")
    assert found.keys() == {known, gone, "token:0123", "user:nonsense"}


def test_nobody_is_asked_for_where_nobody_is_named(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert people_of(["system:rules"]) == {"system:rules": kind_of("system:x")}
    assert kind_of("something-new:1") == kind_of("nobody:")
