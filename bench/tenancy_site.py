"""A console over 10^5 tenants and 10^6 tokens, for the benches of tenancy: planted rows, one web process, good tokens.

The rows are planted by the superuser, then vacuumed and analysed. The web process is one, as in production; HTTP goes
over connections that stay open.
"""

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from bench.http_client import Connection
from bench.store_sides import Cluster
from kvconsole.embedded import Valkey
from kvconsole.infra.sql import PLATFORM
from tests.accept.tenancy import clone
from tests.running import Console

Figure = dict[str, Any]
TENANT = "bench-77"
PLANT = """
SET session_replication_role = replica;
INSERT INTO tenants_tenant (id, slug, lookalike, name, residency, isolation, classes, erasure_scope, retention, state,
                            created_at)
SELECT gen_random_uuid(), 'bench-' || i, 'bench-' || i, 'Bench ' || i, '', 'shared', '{internal}', 'label', '{}',
       'active', now()
  FROM generate_series(1, %(tenants)s) i;
INSERT INTO tenants_token (id, kind, tenant_id, holder, name, secret_hash, roles, scopes, cidr, created_at, expires_at)
SELECT substr(md5(t.id::text || n::text), 1, 16), 'service', t.id, '', 'token ' || n,
       sha256(t.id::text::bytea || n::text::bytea), '{tenant-member}', '{}', '', now(), now() + interval '90 days'
  FROM tenants_tenant t, generate_series(1, %(each)s) n
 WHERE t.slug LIKE 'bench-%%';
INSERT INTO tenants_token (id, kind, tenant_id, holder, name, secret_hash, roles, scopes, cidr, created_at, expires_at)
SELECT substr(md5(n::text), 1, 16), 'service', t.id, '', 'more ' || n, sha256(n::text::bytea), '{tenant-member}', '{}',
       '', now(), now() + interval '90 days'
  FROM tenants_tenant t, generate_series(1, 1000) n
 WHERE t.slug = %(slug)s;
INSERT INTO tenants_user (id, username, lookalike, kind, email, tenant_id, roles, language, theme, is_active, password,
                          password_initial, created_at)
SELECT gen_random_uuid(), t.slug || '/person-' || n, t.slug || '/person-' || n, 'person', '', t.id, '{tenant-member}',
       '', 'system', true, '!', false, now()
  FROM tenants_tenant t, generate_series(1, 200) n
 WHERE t.slug = %(slug)s;
"""
NODES = """
WITH n AS (
  INSERT INTO catalog_node (id, name, region, zone, rack, role, agent_url, state, state_since, wanted, agent_version,
                            engine, profile, created_at, enrolled_at, last_heard_at)
  SELECT gen_random_uuid(), 'bench-' || i, 'eu-fra', 'a', 'r' || i % 50, 'mixed', '', 'ready', now(), 'ready', '1',
         '{}', '', now(), now(), now()
    FROM generate_series(1, 1000) i RETURNING id)
INSERT INTO catalog_nodetier (node_id, tier, capacity_bytes, emulated, encrypted, high, low)
SELECT n.id, t, 2 ^ 30, true, false, 0.9, 0.8 FROM n, unnest('{hbm,dram,ssd}'::text[]) t
"""


@contextlib.contextmanager
def a_site(quick: bool) -> Iterator["Site"]:
    """The console with its rows; `quick` has a tenth of them."""
    base, cluster = Path(tempfile.mkdtemp(prefix="kvc-bench-")), Cluster()
    broker = Valkey(base / "valkey", persist=False)
    try:
        broker.start()
        with cluster.database() as name:
            site = Site(cluster, name, broker, base / "site")
            try:
                begin = time.perf_counter()
                site.plant(10_000 if quick else 100_000)
                planted = round(time.perf_counter() - begin)
                site.told = {"tenants": site.count, "tokens": site.count * 10 + 1000, "planted_s": planted}
                yield site
            finally:
                site.close()
    finally:
        broker.remove()
        cluster.close()
        shutil.rmtree(base, ignore_errors=True)


class Site:
    """A database full of tenants, one web process, and tokens whose plaintexts are known."""

    def __init__(self, cluster: Cluster, name: str, broker: Valkey, state: Path) -> None:
        self.cluster, self.name, self.count = cluster, name, 0
        self.told: dict[str, Any] = {}
        """How large it is, for the figures."""
        self.namespaces: list[str] = []
        """Ids of two namespaces of the tenant."""
        self.console = Console(state, database=cluster.postgres.env(name), broker=broker)
        self._django()
        self.console.manage("seed_demo")

    def _django(self) -> None:
        os.environ.update(self.console.env | dict(self.console.database), KVC_DB_ROLE="operator")
        import django

        django.setup()

    def plant(self, tenants: int) -> None:
        """So many tenants with ten tokens each; one has a thousand more."""
        self.count = tenants
        with psycopg.connect(self.superuser, autocommit=True) as c:
            values = {"tenants": tenants, "each": 10, "slug": TENANT}
            psycopg.ClientCursor(c).execute(PLANT, values)
            self.tenant = c.execute("SELECT id FROM tenants_tenant WHERE slug = %s", (TENANT,)).fetchone()[0]
            self._plant_reuse(c)
            of = "SELECT id::text FROM tenants_namespace WHERE tenant_id = %s ORDER BY id LIMIT 2"
            self.namespaces = [row[0] for row in c.execute(of, (self.tenant,))]
            for table in ("tenant", "token", "user", "model", "adapter", "namespace", "sharegroup", "sharemember"):
                c.execute(f"VACUUM ANALYZE tenants_{table}")
            c.execute("VACUUM ANALYZE catalog_node, catalog_nodetier")

    def _plant_reuse(self, c: psycopg.Connection) -> None:
        """Models, adapters, namespaces and share groups: some of the tenant's, some that it may see, many of others."""
        own, platform = f"'{self.tenant}'::uuid", f"'{PLATFORM}'::uuid"
        other = "(SELECT id FROM tenants_tenant ORDER BY id OFFSET 5 LIMIT 1)"
        ids, group = {"id": "gen_random_uuid()"}, uuid.uuid4()
        digest = "sha256((random()::text || {i}::text)::bytea)"
        for owner, count in ((own, 300), (platform, 300), (other, 5000)):
            name = f"'m-' || substr(({owner})::text, 25) || {{i}}::text"
            clone(c, "tenants_model", count, "name = 'ref-64'", **ids, tenant_id=owner, name=name, lookalike=name)
            clone(c, "tenants_adapter", count, "true", **ids, tenant_id=owner, digest=f"encode({digest}, 'hex')",
                  epoch="1000 + {i}", created_at="now() - {i} * interval '1 s'")  # fmt: skip
        for owner, count, shared in ((own, 1000, "NULL"), (platform, 200, f"'{group}'::uuid"), (other, 20_000, "NULL")):
            clone(c, "tenants_namespace", count, "share_group IS NULL", **ids, tenant_id=owner, digest=digest,
                  label="'label-' || {i}::text", share_group=shared)  # fmt: skip
        clone(c, "tenants_sharegroup", 1, "true", id=f"'{group}'::uuid", tenant_id=own, name="'bench'",
              state="'approved'", expires_at="now() + interval '1 day'")  # fmt: skip
        clone(c, "tenants_sharegroup", 200, "true", **ids, tenant_id=own, name="'bench-' || {i}::text",
              state="'revoked'", requested_at="now() - {i} * interval '1 s'")  # fmt: skip
        clone(c, "audit_approval", 200, "true", **ids, object_id="{i}::text")
        c.execute(NODES)
        c.execute(
            "INSERT INTO tenants_sharemember (tenant_id, group_id, owner, slug, state, expires_at)"
            " SELECT tenant_id, id, tenant_id, %s, state, expires_at FROM tenants_sharegroup WHERE tenant_id = %s",
            (TENANT, self.tenant),
        )

    @property
    def superuser(self) -> str:
        """Where the superuser connects."""
        return self.cluster.postgres.superuser_dsn(self.name)

    def token(self, *roles: str, tenant: uuid.UUID | None = None, kind: str = "service") -> str:
        """The plaintext of a new good token that was used a moment ago."""
        from tenants import tokens

        plaintext, parsed = tokens.generate(kind)
        with psycopg.connect(self.superuser, autocommit=True) as c:
            c.execute("SET session_replication_role = replica")
            c.execute(
                "INSERT INTO tenants_token (id, kind, tenant_id, holder, name, secret_hash, roles, scopes, cidr,"
                " created_at, expires_at, last_used_at) VALUES (%s, %s, %s, '', '', %s, %s, '{}', '', now(),"
                " now() + interval '1 day', now())",
                (parsed.id, kind, tenant or PLATFORM, parsed.secret_hash, list(roles)),
            )
        return plaintext

    def connection(self, token: str) -> Connection:
        """An open connection to the web process."""
        if "web" not in self.console.processes:
            self.console.start("web")
        return Connection("127.0.0.1", self.console.site.ports["web"], token)

    def web_cpu(self) -> float:
        """CPU seconds of the web process so far."""
        spent = psutil.Process(self.console.processes["web"].pid).cpu_times()
        return float(spent.user + spent.system)

    def close(self) -> None:
        """Nothing of it runs."""
        from django.db import connections

        connections.close_all()
        self.console.stop()


def figure(name: str, value: float, unit: str, target: str, ok: bool, peer: Any = None) -> Figure:
    """A line of the bench's output."""
    found = {"name": f"tenancy.{name}", "value": round(value, 3), "unit": unit, "target": target, "ok": ok}
    return found if peer is None else {**found, "peer": peer}


def ms(times: list[float], part: float) -> float:
    """Of these seconds the one below which that part of them is, in ms."""
    return round(sorted(times)[min(len(times) - 1, int(part * len(times)))] * 1000, 3)


def timed(act: Callable[[], object], count: int) -> list[float]:
    """Seconds of each of so many acts."""
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        act()
        found.append(time.perf_counter() - begin)
    return found
