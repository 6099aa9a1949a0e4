"""SQL of an attacker's own in a tenant's session, truly sealed for that tenant: each attack is refused or does nothing.

The attacks run as kv_tenant over a plain connection, with the constraints that wait for the end of a transaction asked
at once; beside them stands what the same role must be able to do, so that a refusal is not one of a typing error.
"""

import contextlib
import secrets
from types import SimpleNamespace

import msgspec
import psycopg
import pytest
from django.conf import settings
from django.db import connections
from psycopg.types.json import Jsonb

from kvconsole.infra import sql
from kvconsole.infra.access import system
from kvcore.keys import NamespaceSpec, namespace_digest
from tenants import services, tokens
from tests.conftest import TEST_DATABASE
from tests.tenants.making import a_model, a_namespace, a_node, a_tenant, a_user
from tests.tenants.services.test_share_group import a_group, asked

REFUSED = (psycopg.errors.InsufficientPrivilege, psycopg.errors.CheckViolation, psycopg.errors.ForeignKeyViolation)
committed = pytest.mark.django_db(databases=["default", "tenant"])


def spec_of(namespace, **changes):
    return msgspec.structs.replace(msgspec.convert(namespace.spec, NamespaceSpec), **changes)


def made_world():
    """Two tenants with what they could take from each other, and what is the fleet's."""
    mine, other, third = a_tenant(), a_tenant(), a_tenant()
    model = a_model()
    services.adapter_register(model=model, name="a", digest="a1", tenant_id=mine.id, actor=system("test"))
    bob = a_user(roles=["tenant-member"], tenant=mine)
    eve = a_user(roles=["tenant-admin"], tenant=other)
    staff = a_user(roles=["operator", "approver"])
    old, _ = services.token_issue("user", tenant_id=mine.id, user=bob, roles=["tenant-member"])
    services.token_revoke(token=old, reason="test")
    live, _ = services.token_issue("user", tenant_id=mine.id, user=bob, roles=["tenant-member"])
    theirs, _ = services.token_issue("user", tenant_id=other.id, user=eve, roles=["tenant-admin"])
    own_group, joined, foreign = a_group(mine, other), a_group(other, mine), a_group(other, third)
    return SimpleNamespace(
        mine=mine.id, other=other.id, slug=mine.slug, other_slug=other.slug, platform=sql.PLATFORM, model=model.id,
        bob=bob.id, eve=eve.id, staff=staff.id, node=a_node(), revoked=old.id, live=live.id, theirs=theirs.id,
        waiting=asked(mine, other).id, own_group=own_group.id, joined=joined.id, foreign=foreign.id,
        ns=a_namespace(mine, model), ns2=a_namespace(other, model),
        owned=a_namespace(mine, model, share_group=own_group.name),
        shared=a_namespace(other, model, share_group=joined.name),
        hidden=a_namespace(other, model, share_group=foreign.name),
    )  # fmt: skip


@pytest.fixture(scope="module")
def world(django_db_setup, django_db_blocker, copies, tmp_path_factory):
    """Committed, for as long as this module runs; events only grow, so the database is copied anew afterwards."""
    keys = tmp_path_factory.mktemp("keys")
    keys.chmod(0o700)
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "KEYSTORE_DIR", str(keys))
        made = made_world()
        connections.close_all()
    yield made
    with django_db_blocker.unblock():
        connections.close_all()
    copies.drop(TEST_DATABASE)
    copies.make(TEST_DATABASE)


def values(w):
    """Placeholders of the statements below."""
    own, theirs = w.ns, w.ns2
    other_spec, group_spec = spec_of(theirs), spec_of(w.hidden)
    fresh = spec_of(own, label="fresh")
    joined = spec_of(w.shared, weights_epoch=7)

    def packed(spec):
        return Jsonb(msgspec.to_builtins(spec))

    plain = {k: v for k, v in vars(w).items() if not hasattr(v, "digest")}
    return plain | {
        "ns": own.id, "ns2": theirs.id, "owned": w.owned.id, "shared": w.shared.id, "hidden": w.hidden.id,
        "digest": bytes(own.digest), "digest2": bytes(theirs.digest), "spec2": packed(other_spec),
        "hidden_digest": namespace_digest(group_spec), "hidden_spec": packed(group_spec),
        "fresh": namespace_digest(fresh), "fresh_spec": packed(fresh),
        "joined_digest": namespace_digest(joined), "joined_spec": packed(joined),
        "new": sql.uuid7(), "token": "".join(secrets.choice(tokens.ALPHABET) for _ in range(16)),
    }  # fmt: skip


def token(kind, user="NULL", holder="''", roles="{tenant-member}", until="1 day", tenant="%(mine)s"):
    return (
        "INSERT INTO tenants_token (id, kind, tenant_id, user_id, holder, name, secret_hash, roles, scopes, cidr,"
        f" created_at, expires_at) VALUES (%(token)s, '{kind}', {tenant}, {user}, {holder}, '', sha256('x'), '{roles}',"
        f" '{{}}', '', now(), now() + interval '{until}')"
    )


def namespace(
    digest, spec, *, id="%(new)s", tenant="%(mine)s", group="NULL", more="1, 1, 'active'", epoch=1, label="''"
):
    return (
        "INSERT INTO tenants_namespace (id, tenant_id, digest, spec, model_id, model_epoch, data_class, label, subject,"
        f" session, key_scheme, share_group, created_at, generation, min_gen, state) VALUES ({id}, {tenant},"
        f" %({digest})s, %({spec})s, %(model)s, {epoch}, '', {label}, '', '', 'content', {group}, now(), {more})"
    )


def fence(tenant, ns, digest, gen=1, group="NULL"):
    return (
        "INSERT INTO tenants_fenceentry (seq, tenant_id, namespace_id, digest, min_gen, at, share_group)"
        f" VALUES (0, {tenant}, {ns}, {digest}, {gen}, now(), {group})"
    )


def lease(kind="gateway", ns="%(ns)s", until="5 minutes", tenant="%(mine)s"):
    return (
        "INSERT INTO tenants_keylease (tenant_id, namespace_id, holder_kind, holder, generation, granted_at, until)"
        f" VALUES ({tenant}, {ns}, '{kind}', 'g', 1, now(), now() + interval '{until}')"
    )


OWN_REF = "(SELECT tenant_ref FROM audit_event LIMIT 1)"
PREFIX = r"'\x6b76636f6e736f6c652f61756469742d626f64792f763100'::bytea"


def event(kind=0x0112, flags=0, tenant="%(mine)s", ref=OWN_REF, more="", value=""):
    return (
        "INSERT INTO audit_event (event_id, event_type, tenant_id, tenant_ref, actor_ref, outcome, flags, body,"
        f" body_hash, pii_commit, object_kind, object_id, request_id{more}) VALUES (gen_random_uuid(), {kind},"
        f" {tenant}, {ref}, decode(repeat('00', 16), 'hex'), 1, {flags}, '{{}}', sha256({PREFIX} || '{{}}'),"
        f" decode(repeat('00', 32), 'hex'), 'x', 'x', ''{value})"
    )


LOOKS = "(SELECT lookalike FROM tenants_tenant) || '/new'"


def person(roles="{tenant-member}", tenant="%(mine)s", name="%(slug)s || '/new'", id="%(new)s", looks=LOOKS):
    return (
        "INSERT INTO tenants_user (id, username, lookalike, kind, password, email, tenant_id, roles, language, theme,"
        f" is_active, password_initial, created_at) VALUES ({id}, {name}, {looks}, 'person', '!', '', {tenant},"
        f" '{roles}', '', 'system', true, false, now())"
    )


def adapter(id="%(new)s", tenant="%(mine)s"):
    return (
        "INSERT INTO tenants_adapter (id, tenant_id, model_id, name, digest, epoch, created_at)"
        f" VALUES ({id}, {tenant}, %(model)s, 'x', 'x', 1, now())"
    )


ACK = "INSERT INTO tenants_fenceack (tenant_id, holder_kind, holder, seq, at) VALUES ({}, '{}', 'h', 0, now())"
ALLOWED = {
    "a token of an own person": token("user", user="%(bob)s"),
    "a gateway that stands for its owner": token("gateway", user="%(bob)s", holder="%(bob)s::text"),
    "an invitation of an own person": token("invite", holder="%(bob)s::text", roles="{}"),
    "an own token ends sooner": "UPDATE tenants_token SET expires_at = now() WHERE id = %(live)s",
    "an own token is revoked": "UPDATE tenants_token SET revoked_at = now() WHERE id = %(live)s",
    "an own namespace": namespace("fresh", "fresh_spec"),
    "a namespace of a group that it is in": namespace(
        "joined_digest", "joined_spec", tenant="%(platform)s", group="%(joined)s", epoch=7),
    "an own generation is raised": "UPDATE tenants_namespace SET generation = 2, min_gen = 2 WHERE id = %(ns)s",
    "an own fence": fence("%(mine)s", "%(ns)s", "%(digest)s"),
    "an own group is revoked": "UPDATE tenants_sharegroup SET state = 'revoked' WHERE id = %(own_group)s",
    "what waits is withdrawn": "UPDATE audit_approval SET state = 'withdrawn' WHERE object_id = %(waiting)s::text",
    "a lease of an own gateway": lease(),
    "an acknowledgement of an own gateway": ACK.format("%(mine)s", "gateway"),
    "an own person": person(),
    "an own adapter": adapter(),
    "an own event": event(),
}  # fmt: skip
ATTACKS = {
    # things that would be there for the next transaction of the session, or for other tenants
    "temporary table": "CREATE TEMP TABLE tenants_namespace (id uuid)",
    "temporary type": "CREATE DOMAIN pg_temp.uuid AS text",
    "temporary function": "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "table": "CREATE TABLE public.x (a int)",
    "schema": "CREATE SCHEMA x",
    "large object": "SELECT lo_create(0)",
    "lock of the session": "SELECT pg_advisory_lock(4206751001)",
    "somebody's session": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'kv_tenant'",
    "somebody's query": "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'kv_tenant'",
    "fence numbers": "SELECT setval('tenants_fence_seq', 1)",
    "event numbers": "SELECT setval('audit_event_id_seq', 1)",
    "the key of seals": "SELECT key FROM tenant_seal",
    "the look-up": "SELECT tenants_lookup('token', 'x', 'x')",
    # tokens
    "token of a node": token("node", holder="%(node)s"),
    "enrolment of a node": token("enrol", holder="%(node)s"),
    "invitation of staff": token("invite", holder="%(staff)s::text", roles="{}"),
    "invitation of another's person": token("invite", holder="%(eve)s::text", roles="{}"),
    "invitation with roles": token("invite", holder="%(bob)s::text"),
    "token of an unknown kind": token("cron", user="%(bob)s"),
    "token of nobody": token("service"),
    "token of staff": token("user", user="%(staff)s"),
    "token of another's person": token("user", user="%(eve)s"),
    "token of the fleet's roles": token("user", user="%(bob)s", roles="{operator}"),
    "token of the platform": token("user", user="%(bob)s", tenant="%(platform)s"),
    "token of another tenant": token("user", user="%(bob)s", tenant="%(other)s"),
    "token without an end": token("user", user="%(bob)s", until="400 days"),
    "gateway that stands for a node": token("gateway", user="%(bob)s", holder="%(node)s"),
    "token lives again": "UPDATE tenants_token SET revoked_at = NULL WHERE id = %(revoked)s",
    "token lives longer": "UPDATE tenants_token SET expires_at = now() + interval '300 days' WHERE id = %(live)s",
    "token is unused": "UPDATE tenants_token SET used_at = NULL WHERE id = %(live)s",
    "token becomes another's": "UPDATE tenants_token SET user_id = %(eve)s WHERE id = %(live)s",
    "another's token revoked": "UPDATE tenants_token SET revoked_at = now() WHERE id = %(theirs)s",
    # approvals and share groups
    "own request approved": "UPDATE audit_approval SET state = 'approved' WHERE object_id = %(waiting)s::text",
    "decider invented": "UPDATE audit_approval SET decided_by = 'user:x' WHERE object_id = %(waiting)s::text",
    "approval planted": "INSERT INTO audit_approval (id, tenant_id, kind, object_id, what, risk, state, requested_by,"
    " requested_at, expires_at, decided_by, reason) VALUES (%(new)s, %(mine)s, 'share_group', %(foreign)s::text, '{}',"
    " 'R2', 'approved', 'a', now(), now(), 'b', '')",
    "who asked": "SELECT requested_by FROM audit_approval",
    "own group approved": "UPDATE tenants_sharegroup SET state = 'approved' WHERE id = %(waiting)s",
    "own group lasts": "UPDATE tenants_sharegroup SET expires_at = now() + interval '1 year' WHERE id = %(own_group)s",
    "joined group revoked": "UPDATE tenants_sharegroup SET state = 'revoked' WHERE id = %(joined)s",
    "grant approved": "UPDATE tenants_sharemember SET state = 'approved' WHERE group_id = %(waiting)s",
    "grant for oneself": "INSERT INTO tenants_sharemember (tenant_id, group_id, owner, slug, state, expires_at) VALUES"
    " (%(mine)s, %(foreign)s, %(other)s, 'x', 'approved', now() + interval '1 day')",
    "group of one's own": "INSERT INTO tenants_sharegroup (id, tenant_id, owner_slug, name, reason, residency, state,"
    " requested_by, requested_at, expires_at, decided_by) VALUES (%(new)s, %(mine)s, 'x', 'x', '', '', 'approved', 'a',"
    " now(), now() + interval '1 day', 'b')",
    # namespaces
    "another's digest and spec": namespace("digest2", "spec2"),
    "another's digest": namespace("digest2", "fresh_spec"),
    "another's digest in its tenant": namespace("digest2", "spec2", tenant="%(other)s"),
    "a group's digest": namespace("hidden_digest", "hidden_spec"),
    "namespace of a group without a grant": namespace(
        "hidden_digest", "hidden_spec", tenant="%(platform)s", group="%(foreign)s"),
    "another group's digest": namespace("hidden_digest", "hidden_spec", tenant="%(platform)s", group="%(joined)s"),
    "group namespace at the last generation": namespace("joined_digest", "joined_spec", tenant="%(platform)s",
        group="%(joined)s", epoch=7, more="9223372036854775807, 1, 'active'"),
    "group namespace that is closed": namespace("joined_digest", "joined_spec", tenant="%(platform)s",
        group="%(joined)s", epoch=7, more="1, 1, 'closed'"),
    "group namespace of another epoch": namespace(
        "joined_digest", "joined_spec", tenant="%(platform)s", group="%(joined)s", epoch=1),
    "namespace of the platform": namespace("fresh", "fresh_spec", tenant="%(platform)s"),
    "namespace under another's id": namespace("fresh", "fresh_spec", id="'00000000-0000-7000-8000-0000000000ff'"),
    "generation at the end": "UPDATE tenants_namespace SET generation = 2^62::bigint WHERE id = %(owned)s",
    "fence at the end": "UPDATE tenants_namespace SET min_gen = 9223372036854775807 WHERE id = %(owned)s",
    "generation back": "UPDATE tenants_namespace SET generation = 0 WHERE id = %(ns)s",
    "another's generation": "UPDATE tenants_namespace SET generation = generation + 1 WHERE id = %(ns2)s",
    "a joined group's generation": "UPDATE tenants_namespace SET generation = generation + 1 WHERE id = %(shared)s",
    "namespace closed": "UPDATE tenants_namespace SET state = 'closed' WHERE id = %(owned)s",
    # fences, leases, acknowledgements
    "fence of another": fence("%(other)s", "%(ns2)s", "%(digest2)s"),
    "fence of another as one's own": fence("%(mine)s", "%(ns2)s", "%(digest2)s"),
    "fence of a joined group": fence("%(platform)s", "%(shared)s", "%(digest2)s", group="%(own_group)s"),
    "who asked for a group": "SELECT requested_by FROM tenants_sharegroup",
    "who decided on a group": "SELECT decided_by FROM tenants_sharegroup WHERE id = %(own_group)s",
    "all of a group": "SELECT * FROM tenants_sharegroup",
    "a row of a group": "SELECT g FROM tenants_sharegroup g",
    "who asked, by what is changed": "UPDATE tenants_sharegroup SET state = 'revoked' RETURNING requested_by",
    "who asked, by what is looked for": "SELECT id FROM tenants_sharegroup WHERE requested_by LIKE 'user:%%'",
    "fence of a group": fence("%(platform)s", "%(hidden)s", "%(digest2)s", group="%(own_group)s"),
    "lease of a node": lease(kind="node"),
    "lease without an end": lease(until="1 day"),
    "lease of another's namespace": lease(ns="%(ns2)s"),
    "lease of a group's namespace": lease(ns="%(hidden)s"),
    "leases forgotten": "DELETE FROM tenants_keylease",
    "node acknowledges": ACK.format("%(mine)s", "node"),
    "router acknowledges": ACK.format("%(mine)s", "router"),
    "acknowledgement of the platform": ACK.format("%(platform)s", "gateway"),
    # models
    "epoch": "INSERT INTO tenants_epoch (id, tenant_id, model_id, epoch, weights_digest, note, state, created_at)"
    " VALUES (%(new)s, %(mine)s, %(model)s, 9, 'w', '', 'open', now())",
    "epoch renumbered": "UPDATE tenants_epoch SET epoch = 9",
    "model": "UPDATE tenants_model SET bytes_per_token = 0",
    "adapter under another's id": adapter(id="'00000000-0000-7000-8000-0000000000ff'"),
    "adapter of the platform": adapter(tenant="%(platform)s"),
    # events
    "event that the console alone says": event(kind=0x0103),
    "approval as an event": event(kind=0x0221),
    "event by two persons": event(flags=16),
    "event of another tenant": event(tenant="%(other)s"),
    "event of the platform": event(tenant="%(platform)s"),
    "event under another name": event(ref="sha256('x')::bytea"),
    "event in the platform's name": event(ref="decode(repeat('00', 16), 'hex')"),
    "event in a name of nobody": event(ref="substr(sha256('x'), 1, 16)"),
    "event of another time": event(more=", time_us", value=", 1"),
    "event of another producer": event(more=", producer_id, producer_seq", value=", 0, 1"),
    "event changed": "UPDATE audit_event SET outcome = 2",
    "event forgotten": "DELETE FROM audit_event",
    "names in the log": "SELECT * FROM audit_tenantref",
    # people
    "staff": person(tenant="NULL"),
    "staff by roles": person(roles="{operator}"),
    "another's person": person(tenant="%(other)s"),
    "another's name": person(name="%(other_slug)s || '/new'"),
    "another's look": person(looks="%(other_slug)s || '/new'"),
    "an id of before": person(id="'00000000-0000-7000-8000-0000000000ff'"),
    "another's password": "UPDATE tenants_user SET password = 'x' WHERE id = %(eve)s",
    "a password": "SELECT password FROM tenants_user",
    "own tenant": "UPDATE tenants_tenant SET state = 'active'",
}  # fmt: skip


def run(w, statement):
    """How many rows the statement changed or showed, all its constraints asked; nothing stays."""
    with sql.connect("tenant", autocommit=False) as c:
        sql.enter(c, w.mine)
        c.execute(event(), values(w))  # a change without an event would be refused for that alone
        done = c.execute(statement, values(w)).rowcount
        c.execute("SET CONSTRAINTS ALL IMMEDIATE")
        c.rollback()
    return done


@committed
@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_tenant_may_write(world, name):
    assert run(world, ALLOWED[name]) == 1


@committed
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_or_does_nothing(world, name):
    with contextlib.suppress(*REFUSED):
        assert run(world, ATTACKS[name]) == 0


@committed
def test_a_fence_says_what_its_namespace_says_and_no_more(world):
    lie = fence("%(mine)s", "%(ns)s", "%(digest2)s", gen=2**62, group="%(foreign)s")
    with sql.connect("tenant", autocommit=False) as c:
        sql.enter(c, world.mine)
        said = c.execute(f"{lie} RETURNING digest, min_gen, share_group", values(world)).fetchone()
        assert said == (bytes(world.ns.digest), 1, None)
        c.rollback()


@committed
def test_the_number_of_an_event_tells_that_a_tenants_session_wrote_it(world):
    returning = f"{event()} RETURNING producer_id"
    for role, own in (("tenant", range(64, 128)), ("operator", range(64))):
        with sql.connect(role, autocommit=False) as c:
            if role == "tenant":
                sql.enter(c, world.mine)
            ref = f"(SELECT tenant_ref FROM audit_event WHERE tenant_id = '{world.mine}' LIMIT 1)"
            told = returning.replace("(SELECT tenant_ref FROM audit_event LIMIT 1)", ref)
            assert c.execute(told, values(world)).fetchone()[0] in own
            c.rollback()


@committed
def test_a_digest_of_the_database_is_that_of_the_console(world):
    specs = [
        spec_of(world.ns), spec_of(world.shared),
        NamespaceSpec(model="模型 \N{SNOWMAN}", weights_epoch=2**40, label="a\nb\\", subject="'", session="é" * 300),
    ]  # fmt: skip
    with sql.connect("operator") as c:
        for spec in specs:
            given = (Jsonb(msgspec.to_builtins(spec)),)
            assert c.execute("SELECT tenants_namespace_digest(%s)", given).fetchone() == (namespace_digest(spec),)
        less = {k: v for k, v in msgspec.to_builtins(specs[0]).items() if k != "session"}
        assert c.execute("SELECT tenants_namespace_digest(%s)", (Jsonb(less),)).fetchone() == (None,)


@committed
def test_a_group_of_others_is_answered_like_one_that_is_not_there(world):
    outcomes = set()
    for group in ("%(foreign)s", "%(waiting)s", "gen_random_uuid()"):
        with pytest.raises(psycopg.Error) as caught:
            run(world, namespace("hidden_digest", "hidden_spec", tenant="%(platform)s", group=group))
        outcomes.add((type(caught.value), str(caught.value)))
    assert len(outcomes) == 1
