"""Events in bulk, as honest as those that came one by one: right hashes, numbers without gaps, a place in the queue.

Ten million of them through the trigger would take a quarter of an hour. Here the owner of the tables has triggers off
and indexes gone while they are made, and afterwards all of it is there again.
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

WRITERS, AT_ONCE = 2, 100_000
BODY = (
    'convert_to(\'{"action":"token.issued","actor":{"kind":"user","roles":["operator","viewer"]},"data":'
    '{"expires_at":"2027-01-01T00:00:00Z","holder":"","kind":"service","roles":["viewer"],"scopes":["nodes:read"]},'
    '"object":{"id":"\' || i || \'","kind":"token"},"outcome":"success","request_id":"r-\' || i || \'"}\', \'UTF8\')'
)
"""Of the i-th event."""
HASH = "sha256('\\x6b76636f6e736f6c652f61756469742d626f64792f763100'::bytea || b)"
COLUMNS = (
    "id, event_id, event_type, time_us, tenant_id, tenant_ref, actor_ref, outcome, flags, producer_id, producer_seq,"
    " body, body_hash, pii_commit, object_kind, object_id, request_id"
)
_FILL = f"""
INSERT INTO audit_event ({COLUMNS})
SELECT %s + i, gen_random_uuid(), 288, %s + i, '00000000-0000-7000-8000-000000000001', decode(repeat('00', 16), 'hex'),
       substr(sha256(int4send(i %% 200)), 1, 16), 1, 0, p.id, p.seq + i / 64 + 1, b, {HASH},
       decode(repeat('00', 32), 'hex'), 'token', i::text, 'r-' || i
  FROM (SELECT i, {BODY} b FROM generate_series(%s::int, %s) i) x JOIN audit_producer p ON p.id = i %% 64"""


def planted(dsn: str, count: int) -> None:
    """So many events wait in the queue.

    Args:
        dsn: of the superuser; nobody else writes events meanwhile.
        count: at most as many as there are microseconds since the month began.
    """
    tables = ("audit_event", "audit_pending", "audit_producer")
    with bare(dsn, tables), psycopg.connect(dsn, autocommit=True) as c:
        row = c.execute(
            "SELECT nextval('audit_event_id_seq'), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %s",
            (count,),
        ).fetchone()
        assert row is not None
        first, start = row
        parts = [(first, start, at, min(at + AT_ONCE, count) - 1) for at in range(0, count, AT_ONCE)]
        in_parts(dsn, [[(_FILL, part)] for part in parts])
        c.execute("INSERT INTO audit_pending SELECT id, time_us FROM audit_event WHERE id >= %s", (first,))
        c.execute(
            "UPDATE audit_producer p SET seq = p.seq + n.count FROM (SELECT i %% 64 AS id, count(*)"
            " FROM generate_series(0, %s) i GROUP BY 1) n WHERE p.id = n.id",
            (count - 1,),
        )
        c.execute("SELECT setval('audit_event_id_seq', %s)", (first + count,))
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute("VACUUM ANALYZE audit_event, audit_pending")


def in_parts(dsn: str, parts: Sequence[Sequence[tuple[Any, Sequence[Any]]]]) -> None:
    """Each part's statements are run, by so many connections at a time as there are cores to write."""

    def write(mine: Sequence[Sequence[tuple[Any, Sequence[Any]]]]) -> None:
        with psycopg.connect(dsn, autocommit=True) as c:
            c.execute("SET synchronous_commit = off")
            for part in mine:
                for statement, values in part:
                    c.execute(statement, values)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, [parts[n::WRITERS] for n in range(WRITERS)]))


@contextlib.contextmanager
def bare(dsn: str, tables: Sequence[str]) -> Iterator[None]:
    """The tables have no triggers and no indexes but their keys; afterwards all of them, as they were."""
    with psycopg.connect(dsn, autocommit=True) as c:
        indexes = c.execute(
            "SELECT indexrelid::regclass::text, replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ')"
            " FROM pg_index WHERE indrelid = ANY (%s::regclass[]) AND NOT indisprimary", (list(tables),),
        ).fetchall()  # fmt: skip
        triggers = c.execute(
            "SELECT tgrelid::regclass::text, quote_ident(tgname), tgenabled FROM pg_trigger JOIN pg_class p"
            " ON p.oid = tgrelid WHERE NOT tgisinternal AND (tgrelid = ANY (%s::regclass[]) OR tgrelid IN"
            " (SELECT inhrelid FROM pg_inherits WHERE inhparent = ANY (%s::regclass[]))) ORDER BY p.relkind DESC",
            (list(tables), list(tables)),
        ).fetchall()
        for name, _ in indexes:
            c.execute(f"DROP INDEX {name}".encode())
        for table in tables:
            c.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER".encode())
        yield
        words = {"O": "ENABLE", "A": "ENABLE ALWAYS", "R": "ENABLE REPLICA", "D": "DISABLE"}
        for table, name, state in triggers:
            c.execute(f"ALTER TABLE {table} {words[state]} TRIGGER {name}".encode())
        c.execute("SET maintenance_work_mem = '256MB'")
        for _, statement in indexes:
            c.execute(statement.encode())
