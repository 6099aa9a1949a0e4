"""Shredding a person: nothing of theirs in the trail can be read or linked, in no copy, and no event changes."""

import json

import pytest
from django.db import transaction

from audit.drafts import forget_keys
from audit.models import Event
from audit.services import pii_open, pii_verdict, record
from kvconsole.infra import keystore, sql
from kvconsole.infra.keystore import KeyDestroyed, rehearsal, subject_name, subject_names
from kvconsole.infra.principals import Principal
from kvconsole.infra.rest import Problem
from kvcore.leaf import body_hash
from tenants import services
from tenants.accounts.actors import actor_names
from tenants.models import User
from tests.tenants.making import a_tenant, a_user, principal, some

pytestmark = pytest.mark.django_db(transaction=True)
COLUMNS = [f.column for f in Event._meta.concrete_fields]


def dump():
    """All events with all columns, as a copy of the database has them."""
    with sql.connect("audit") as c:
        rows = c.execute(f"SELECT {', '.join(COLUMNS)} FROM audit_event ORDER BY id").fetchall()
    return [Event(**dict(zip(COLUMNS, row, strict=True))) for row in rows]


def acts(user):
    who = Principal(kind="user", id=str(user.id), user_id=str(user.id), roles=frozenset(user.roles))
    with transaction.atomic():
        record(
            event_type="sharing.revoked", outcome="success", actor=who, tenant_id=None, object_kind="share_group",
            object_id="g", body={"name": "g", "owner": "o", "reason": "Eve told me", "namespaces": 0},
        )  # fmt: skip


def test_what_was_sealed_is_gone_in_a_dump_made_before_and_all_hashes_hold():
    eve = a_user(username=some("eve"), email="eve@example.org", roles=["viewer"])
    bob = a_user(username=some("bob"), email="bob@example.org", roles=["viewer"])
    acts(eve)
    services.login_refused(username=eve.username, now=1e9, address="192.0.2.9")
    before = dump()
    mine = [e for e in before if e.pii_ct is not None and pii_open(e) is not None and "eve" in json.dumps(pii_open(e))]
    mine += [e for e in before if "Eve" in json.dumps(pii_open(e))]
    assert len(mine) == 3
    assert actor_names([(e.actor_ref, e.time_us) for e in before])[bytes(before[2].actor_ref)].name == eve.username
    keys = services.person_shred(user_id=eve.id, actor=principal(None, "operator"))
    assert keys >= 1
    for event in mine:
        assert (pii_open(event), pii_verdict(event)) == (None, "shredded")
    others = [e for e in before if e.object_id == str(bob.id)]
    assert [pii_open(e)["email"] for e in others] == ["bob@example.org"]
    after = dump()
    assert [bytes(e.body) for e in after[: len(before)]] == [bytes(e.body) for e in before]
    assert all(body_hash(bytes(e.body)) == bytes(e.body_hash) for e in after)
    assert actor_names([(e.actor_ref, e.time_us) for e in mine]) == {}, "nobody tells whose acts they were"
    assert User.objects.defer("password", "lookalike").get(id=eve.id).username == f"removed {eve.id}"
    (destroyed,) = [e for e in after if e.event_type == 0x0602]
    assert json.loads(bytes(destroyed.body))["data"] == {"kind": "subject", "keys": keys}


def test_no_key_of_any_period_can_be_made_again_and_no_row_holds_one():
    eve = a_user()
    now = eve.created_at.timestamp()
    services.person_remove(user_id=eve.id, actor=principal(None, "operator"))
    services.person_shred(user_id=eve.id, actor=principal(None, "operator"))
    forget_keys()
    for name in subject_names(f"user:{eve.id}", now - 8_000_000, now + 7_776_000):
        with pytest.raises(KeyDestroyed):
            keystore.keystore().ensure(name)
    assert services.person_shred(user_id=eve.id, actor=principal(None, "operator")) == 0, "twice is once"


def test_a_rehearsal_destroys_nothing_and_nobody_reaches_beyond_their_own():
    tenant = a_tenant()
    eve = a_user(tenant=tenant, roles=["tenant-member"])
    name = subject_name(f"user:{eve.id}", now=eve.created_at.timestamp())
    with rehearsal(), transaction.atomic():
        services.person_shred(user_id=eve.id, actor=principal(None, "operator"))
        transaction.set_rollback(True)
    assert keystore.keystore().exists(name)
    for actor in (principal(a_tenant(), "tenant-admin"), Principal(kind="user", id=str(eve.id), user_id=str(eve.id))):
        with pytest.raises(Problem):
            services.person_shred(user_id=eve.id, actor=actor)
    assert keystore.keystore().exists(name)
