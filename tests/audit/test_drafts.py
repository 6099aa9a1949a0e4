"""What an event's bytes are made of before it is written."""

import json
import time
import uuid

import pytest
from msgspec.structs import replace

from audit.drafts import MOST_BYTES, Draft, EventRefused, actor_ref, forget_keys, tenant_ref
from audit.registry import TYPES
from kvconsole.infra.access import system
from kvconsole.infra.keystore import rehearsal
from kvconsole.infra.sql import PLATFORM
from kvcore.leaf import PII, body_hash

pytestmark = pytest.mark.django_db


def draft(**fields):
    made = Draft(
        kind=TYPES["log.note"], event_id=uuid.uuid4(), outcome="success", actor=system("t"), tenant=PLATFORM,
        object_kind="x", object_id="1", data={"note": "n"}, pii={}, request_id="r", flags=0,
    )  # fmt: skip
    return replace(made, **fields)


def test_whose_key_seals_it():
    assert draft(object_kind="user", object_id="7").subject == "user:7"
    assert draft().subject == "system:t"
    assert draft(actor=None).subject == f"tenant:{PLATFORM}"


def test_parts_stand_in_the_body_with_their_flags_and_their_own_actor():
    columns = draft(flags=4).columns([draft(flags=16), draft(actor=None)])
    body = json.loads(columns["body"])
    assert [part.get("actor") for part in body["also"]] == [None, {"kind": "nobody", "roles": []}]
    assert columns["flags"] == 20
    assert columns["body_hash"] == body_hash(columns["body"])


def test_personal_data_of_parts_is_sealed_with_the_events():
    columns = draft().columns([draft(pii={"reason": "Bob"})])
    assert columns["flags"] == PII
    assert b"Bob" not in columns["body"] + columns["pii_ct"]


def test_a_body_has_an_end():
    with pytest.raises(EventRefused):
        draft(data={"note": "x" * MOST_BYTES}).columns()


def test_names_of_a_rehearsal_are_not_remembered():
    tenant, subject, now = uuid.uuid4(), f"user:{uuid.uuid4()}", time.time()
    with rehearsal():
        rehearsed = tenant_ref(tenant), actor_ref(subject, now=now)
        assert (tenant_ref(tenant), actor_ref(subject, now=now)) == rehearsed
    made = tenant_ref(tenant), actor_ref(subject, now=now)
    assert made[0] != rehearsed[0]
    assert made[1] != rehearsed[1]
    with rehearsal():
        assert (tenant_ref(tenant), actor_ref(subject, now=now)) == made
    forget_keys()
    assert (tenant_ref(tenant), actor_ref(subject, now=now)) == made
