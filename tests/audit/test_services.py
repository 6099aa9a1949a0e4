"""Recording: the leaf's fields, personal data that can be destroyed, and no change without its event."""

import hashlib
import hmac
import json
import timeit
import uuid
from datetime import UTC, datetime

import pytest
import rfc8785
from django.db import transaction
from django.db.transaction import TransactionManagementError

from audit.models import Event
from audit.registry import TYPES
from audit.services import EventRefused, actor_ref, pii_open, pii_verdict, portable, record, tenant_ref
from kvconsole.infra.access import Principal, system
from kvconsole.infra.keystore import KeyStoreUnavailable, keystore, subject_name
from kvconsole.infra.sql import PLATFORM
from kvcore.keys import subkey
from kvcore.leaf import APPROVAL, LATE, PII, body_hash, pii_commitment

pytestmark = pytest.mark.django_db
ALICE = Principal(kind="user", id="01900000-0000-7000-8000-000000000001", roles=frozenset({"operator"}),
                  user_id="01900000-0000-7000-8000-000000000001")  # fmt: skip


def note(**fields):
    return record(**{
        "event_type": "log.note", "outcome": "success", "actor": ALICE, "tenant_id": None, "object_kind": "note",
        "object_id": "1", "body": {"note": "n"}, **fields,
    })  # fmt: skip


def test_an_event_has_all_fields_of_its_leaf():
    event = note(request_id="r-1", outcome="denied", flags=APPROVAL)
    row = Event.objects.defer("pii_ct", "pii_key").get(id=event.id)
    assert row.event_id.version == 7
    assert (row.event_type, row.outcome, row.flags) == (0x0F01, 3, 16)
    assert (row.tenant_id, bytes(row.tenant_ref)) == (PLATFORM, bytes(16))
    assert len(bytes(row.actor_ref)) == 16
    assert row.time_us == event.time_us > 1_600_000_000_000_000
    assert row.producer_seq == event.producer_seq >= 1
    assert bytes(row.pii_commit) == bytes(32)
    assert bytes(row.body_hash) == hashlib.sha256(b"kvconsole/audit-body/v1\0" + bytes(row.body)).digest()


def test_the_body_is_canonical_json_of_who_what_and_how_it_ended():
    event = note(request_id="r-1")
    body = json.loads(event.body)
    assert rfc8785.dumps(body) == event.body
    assert body == {
        "action": "log.note", "actor": {"kind": "user", "roles": ["operator"]}, "data": {"note": "n"},
        "object": {"id": "1", "kind": "note"}, "outcome": "success", "request_id": "r-1",
    }  # fmt: skip


def test_golden_hashes_of_body_and_personal_data():
    # The published vectors of the leaf layout: body, salt 32 x 0x33, K_tenant 32 x 0x11.
    body = b'{"action":"tenant.create","plan":"std"}'
    assert body_hash(body).hex() == "05252e3c3b1092abe0d2b563b1481a51bf1c6b1654d391dd87802a31c1edb425"
    pii = b'{"email":"op@example.org","ip":"192.0.2.7"}'
    assert pii_commitment(b"\x33" * 32, pii).hex() == (
        "9efead2f53f3139ea1dd1d735cda7bb385803eb4c0e92cc43db5fffb362046d2"
    )


def test_references_are_macs_under_keys_of_the_key_store():
    tenant = uuid.uuid4()
    ref = tenant_ref(tenant)
    key = subkey(keystore().secret(f"tenant-{tenant}"), "ref")
    assert ref == hmac.digest(key, b"kvconsole/ref/tenant/v1\0" + tenant.bytes, "sha256")[:16]
    assert tenant_ref(PLATFORM) == bytes(16)
    now = 1_790_000_000.0
    assert actor_ref("user:a", now=now) == actor_ref("user:a", now=now) != actor_ref("user:b", now=now)
    assert actor_ref("user:a", now=now) != actor_ref("user:a", now=now + 90 * 86_400)


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_nothing_is_recorded():
    with pytest.raises(TransactionManagementError):
        note()


@pytest.mark.parametrize("fields", [
    {"event_type": "no.such"}, {"body": {"note": "n", "email": "x"}}, {"body": {"note": 1}}, {"body": {"note": None}},
    {"event_type": "token.issued", "body": {"roles": "viewer"}},
    {"event_type": "token.issued", "body": {"roles": [1.5]}},
    {"event_type": "quota.changed", "body": {"evict": 1}},
    {"event_type": "quota.changed", "body": {"requests_per_second": True}},
    {"body": {"note": "x" * (1 << 20)}},
])  # fmt: skip
def test_unknown_types_and_fields_are_refused(fields):
    with pytest.raises(EventRefused):
        note(**fields)


def test_without_a_key_store_nothing_can_be_changed(settings):
    settings.KEYSTORE_DIR = ""
    with pytest.raises(KeyStoreUnavailable), transaction.atomic():
        note()


def test_personal_data_is_sealed_and_in_no_column():
    event = note(pii={"email": "alice@example.org", "ip": "192.0.2.7"})
    assert event.flags & PII
    assert b"alice" not in event.body
    assert b"alice" not in event.pii_ct
    assert pii_open(event) == {"email": "alice@example.org", "ip": "192.0.2.7"}


def test_destroying_the_subjects_key_destroys_the_data_and_leaves_the_event():
    event = note(pii={"email": "alice@example.org"})
    keystore().destroy(subject_name(ALICE.subject, now=event.time_us / 1e6))
    assert (pii_open(event), pii_verdict(event)) == (None, "shredded")
    assert body_hash(bytes(event.body)) == bytes(event.body_hash)


def test_sealed_data_is_bound_to_its_event():
    from cryptography.exceptions import InvalidTag

    one, two = note(pii={"email": "a"}), note(pii={"email": "b"})
    one.pii_ct = two.pii_ct
    with pytest.raises(InvalidTag):
        pii_open(one)
    assert pii_open(note()) is None


def test_what_a_person_types_is_sealed_and_in_no_body():
    event = note(event_type="sharing.revoked", body={"name": "g", "owner": "o", "reason": "Bob asked", "namespaces": 0})
    assert json.loads(event.body)["data"] == {"name": "g", "owner": "o", "namespaces": 0}
    assert pii_open(event) == {"reason": "Bob asked"}
    system_ = note(event_type="sharing.revoked", body={"name": "g", "owner": "o", "reason": "", "namespaces": 0})
    assert (pii_open(system_), pii_verdict(system_)) == (None, "none")


def test_an_event_about_a_person_is_sealed_under_that_persons_key_not_under_the_actors():
    who = str(uuid.uuid4())
    event = note(
        event_type="user.created", object_kind="user", object_id=who, body={"roles": []}, pii={"username": "b"}
    )
    keystore().destroy(subject_name(ALICE.subject, now=event.time_us / 1e6))
    assert pii_open(event) == {"username": "b"}
    keystore().destroy(subject_name(f"user:{who}", now=event.time_us / 1e6))
    assert (pii_open(event), pii_verdict(event)) == (None, "shredded")


def test_what_is_told_later_says_when_it_happened():
    at = datetime(2026, 1, 2, tzinfo=UTC)
    event = note(happened_at=at, flags=LATE)
    assert json.loads(event.body)["happened_at"] == "2026-01-02T00:00:00Z"
    assert event.flags == LATE


def test_checking_an_events_fields_costs_little():
    kind = TYPES["node.enrolled"]
    body = {
        "name": "n",
        "key": "k",
        "agent_version": "1",
        "agent_url": "u",
        "tiers": {"hbm": 1},
        "engine": {"kind": "r"},
    }
    best = min(timeit.repeat(lambda: kind.refusal(body), number=1000, repeat=5))
    assert best / 1000 < 50e-6


def test_the_current_requests_id_is_in_the_event():
    from kvconsole.infra import rest

    token = rest._request_id.set("r-9")
    try:
        assert note().request_id == "r-9"
    finally:
        rest._request_id.reset(token)


def test_nobody_and_processes_can_act():
    assert note(actor=None).actor_ref == bytes(16)
    assert json.loads(note(actor=system("fleet")).body)["actor"] == {"kind": "system", "roles": []}


def test_portable_values_survive_canonical_json():
    value = {"big": 2**63 - 1, "ok": 2**53 - 1, "b": b"\x01", "n": None, "f": 1.5, "t": True, "s": {"b", "a"},
             "l": (1, uuid.UUID(int=1))}  # fmt: skip
    got = portable(value)
    assert got["big"] == "9223372036854775807"
    assert got["ok"] == 2**53 - 1
    assert (got["b"], got["s"], got["l"]) == ("01", ["a", "b"], [1, "00000000-0000-0000-0000-000000000001"])
    rfc8785.dumps(got)
