"""A log of one test: events of it, its sequencer, and Django's connection as the sequencer's process has it."""

import contextlib
from collections.abc import Iterator
from hashlib import sha256

import psycopg

from audit.sequencer import Sequencer
from audit.tree import node_reader
from kvconsole.infra.sql import PLATFORM
from kvcore.leaf import body_hash, parse_leaf
from kvcore.proofs import Frontier, leaf_hash, root_at

INSERT = (
    "INSERT INTO audit_event (event_id, event_type, tenant_id, tenant_ref, actor_ref, outcome, flags, body, body_hash,"
    " pii_commit, object_kind, object_id, request_id)"
)
MANY = (
    f"{INSERT} SELECT gen_random_uuid(), 3841, %(tenant)s, %(ref)s, decode(repeat('00', 16), 'hex'), 1, 0, b,"
    " sha256('\\x6b76636f6e736f6c652f61756469742d626f64792f763100'::bytea || b), decode(repeat('00', 32), 'hex'),"
    " 'note', i::text, '' FROM (SELECT i, convert_to('{\"n\":' || i || '}', 'UTF8') b"
    " FROM generate_series(%(first)s::int, %(last)s) i) x RETURNING id"
)


class Log:
    """Over a fresh database. `django` is its default connection, as kv_seq."""

    def __init__(self, database) -> None:
        self.database = database
        self.sequencer = Sequencer(database.dsn("seq"))
        self.made = 0

    def events(self, count: int = 1, *, tenant=PLATFORM, ref: bytes = bytes(16)) -> list[int]:
        """So many events of one transaction of the console; their ids."""
        with psycopg.connect(self.database.dsn("operator")) as c:
            values = {"tenant": tenant, "ref": ref, "first": self.made, "last": self.made + count - 1}
            self.made += count
            return [row[0] for row in c.execute(MANY, values)]

    def event(self, body: bytes) -> int:
        """One event with this body; its id."""
        with psycopg.connect(self.database.dsn("operator")) as c:
            values = (PLATFORM, bytes(16), bytes(16), body, body_hash(body), bytes(32))
            row = c.execute(
                f"{INSERT} VALUES (gen_random_uuid(), 3841, %s, %s, %s, 1, 0, %s, %s, %s, 'note', '', '') RETURNING id",
                values,
            ).fetchone()
            return row[0]

    def seal(self) -> int:
        """Everything that waits is sealed; how many leaves that were."""
        assert self.sequencer.lead()
        total = 0
        while self.sequencer.waiting():
            total += self.sequencer.seal().leaves
        return total

    def rows(self, query: str, *values) -> list[tuple]:
        """What the superuser reads."""
        with psycopg.connect(self.database.dsn("superuser"), autocommit=True) as c:
            return c.execute(query, values or None).fetchall()

    def attack(self, *statements: str) -> None:
        """A superuser does this, all triggers off, and puts them on again."""
        tables = ("audit_event", "audit_pending", "audit_leaf", "audit_tree", "audit_tile", "audit_checkpoint",
                  "audit_signing", "audit_producer")  # fmt: skip
        with psycopg.connect(self.database.dsn("superuser")) as c:
            for table in tables:
                c.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            for statement in statements:
                assert c.execute(statement).rowcount, statement
            for table in tables:
                c.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")
                for (name,) in c.execute(
                    "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal", (table,)
                ).fetchall():
                    c.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")

    def check(self) -> int:
        """The log is what it must be, by a second way that trusts none of its hashes; its size."""
        leaves = self.rows("SELECT idx, event, hash, data FROM audit_leaf ORDER BY idx")
        tree = Frontier()
        for at, (idx, _, hash_, data) in enumerate(leaves):
            assert idx == at == parse_leaf(data).index
            assert hash_ == leaf_hash(data)
            tree.append(hash_)
        ((size, frontier, root),) = self.rows("SELECT size, frontier, root FROM audit_tree")
        assert (size, bytes(frontier), bytes(root)) == (tree.size, tree.pack(), tree.root())
        ((events, waiting),) = self.rows(
            "SELECT (SELECT count(*) FROM audit_event), (SELECT count(*) FROM audit_pending)"
        )
        assert events == size + waiting
        assert len({event for _, event, _, _ in leaves}) == size
        node = node_reader(lambda query, values: self.rows(query, *values))
        assert root_at(size, node) == tree.root()
        for level, tile, hashes, above in self.rows("SELECT * FROM audit_tile"):
            assert len(hashes) == 8192
            assert above == node(level + 8, tile)
        return size

    def findings(self) -> list[tuple]:
        """Open findings: (kind, first index)."""
        return self.rows("SELECT kind, first_index FROM audit_finding WHERE resolved_at IS NULL ORDER BY id")

    def told(self, kind: int) -> int:
        """How many events of this type there are."""
        return self.rows("SELECT count(*) FROM audit_event WHERE event_type = %s", kind)[0][0]


def as_sequencer(database) -> contextlib.AbstractContextManager[None]:
    """Django's default connection is that of the sequencer's process, to this database."""
    return as_role(database, "seq")


@contextlib.contextmanager
def as_role(database, role: str) -> Iterator[None]:
    """Django's default connection is one of this role, to this database."""
    from django.conf import settings
    from django.db import connections

    place = {"HOST": "127.0.0.1", "PORT": str(database.postgres.port), "NAME": database.name, "USER": f"kv_{role}",
             "PASSWORD": database.postgres.passwords[role]}  # fmt: skip
    before = {key: connections.settings["default"].get(key) for key in place}
    names = {"DB_HOST": "127.0.0.1", "DB_PORT": place["PORT"], "DB_NAME": place["NAME"]}
    kept = {name: getattr(settings, name) for name in names}
    settings.DB_PASSWORDS.update(database.postgres.passwords)
    connections.close_all()
    try:
        connections.settings["default"].update(place)
        connections["default"].settings_dict.update(place)
        for name, value in names.items():
            setattr(settings, name, value)
        yield
    finally:
        connections.close_all()
        for name, value in kept.items():
            setattr(settings, name, value)
        connections.settings["default"].update(before)
        connections["default"].settings_dict.update(before)


def body_of(n: int) -> bytes:
    """The body of the n-th event of `Log.events`."""
    return b'{"n":%d}' % n


def hashed(data: bytes) -> bytes:
    """The hash of a leaf, told in another way."""
    return sha256(bytes(1) + data).digest()
