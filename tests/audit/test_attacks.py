"""What an attacker does to the log in the database: refused, or named with the first index that differs.

A fork, a restored backup and another key are the signer's to refuse (`tests/audit/signer`).
"""

import psycopg
import pytest

from audit import gaps
from audit.scrubber import Scrubber

TABLES = ("audit_event", "audit_leaf", "audit_tree", "audit_tile", "audit_checkpoint", "audit_finding", "audit_walk",
          "audit_signing", "audit_producer", "audit_pending")  # fmt: skip
ROLES = ("tenant", "operator", "ingest", "router", "audit", "migrate", "seq")
SIZE, AT = 1300, 777


@pytest.fixture
def sealed(log):
    log.events(SIZE)
    log.seal()
    log.rows("INSERT INTO audit_checkpoint SELECT size, root, 'signed', now() FROM audit_tree RETURNING size")
    log.rows("INSERT INTO audit_finding (at, kind, subject, detail) VALUES (now(), 'x', 'x', 'd') RETURNING id")
    return log


def attempts(role: str) -> list[str]:
    """Statements that would change or take away what was written, or write what is the sequencer's."""
    every = [f"{what} {table}" for table in TABLES for what in ("DELETE FROM", "TRUNCATE")]
    every += [
        "UPDATE audit_event SET outcome = 3",
        "UPDATE audit_leaf SET hash = hash",
        "UPDATE audit_leaf SET data = data",
        "UPDATE audit_tile SET hashes = hashes",
        "UPDATE audit_checkpoint SET note = ''",
        "UPDATE audit_tree SET root = root",
        "UPDATE audit_tree SET size = size - 1",
        "INSERT INTO audit_tree SELECT false, size, frontier, root, at FROM audit_tree",
        "UPDATE audit_finding SET detail = ''",
        "ALTER TABLE audit_leaf DISABLE TRIGGER immutable",
    ]
    if role == "migrate":  # it owns the tables, so it may; it is no login of a process, and the scrubber looks
        every = [x for x in every if not x.startswith("ALTER")]
    if role not in ("seq", "migrate"):
        every += [
            "INSERT INTO audit_leaf VALUES (99999, 1, 1, sha256(''), sha256(''))",
            "INSERT INTO audit_checkpoint VALUES (99999, sha256(''), '', now())",
            "INSERT INTO audit_finding (at, kind, subject, detail) VALUES (now(), '', '', '')",
            "UPDATE audit_tree SET size = size + 1",
            "UPDATE audit_signing SET signer = 'ok'",
            "UPDATE audit_walk SET next = 0",
        ]
    return every


@pytest.mark.parametrize("role", ROLES)
def test_no_login_role_changes_or_takes_away(sealed, role):
    sealed.events(1)  # something in the queue
    for attempt in attempts(role):
        if (role, attempt) == ("seq", "DELETE FROM audit_pending"):
            continue  # its work
        with psycopg.connect(sealed.database.dsn(role), autocommit=True) as c:
            if role == "migrate":
                c.execute("SET ROLE kv_owner")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(attempt)
    sealed.seal()
    assert sealed.check() == SIZE + 1


def test_not_even_a_superuser_who_turns_ordinary_triggers_off(sealed):
    with psycopg.connect(sealed.database.dsn("superuser"), autocommit=True) as c:
        c.execute("SET session_replication_role = replica")
        for attempt in attempts("migrate"):
            if "audit_pending" in attempt or "audit_producer" in attempt:
                continue
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(attempt)


def test_who_reads_what(sealed):
    with psycopg.connect(sealed.database.dsn("tenant"), autocommit=True) as c:
        for table in ("leaf", "tree", "tile", "checkpoint", "signing", "finding", "walk", "pending"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                c.execute(f"SELECT * FROM audit_{table}")
    for role in ("operator", "audit", "seq"):
        with psycopg.connect(sealed.database.dsn(role), autocommit=True) as c:
            for table in ("leaf", "tree", "tile", "checkpoint", "signing", "finding", "walk", "pending"):
                c.execute(f"SELECT * FROM audit_{table} LIMIT 1")


FLIP = "set_byte({0}, {1}, get_byte({0}, {1}) # 1)"
LOOSE = (
    "ALTER TABLE audit_event DROP CONSTRAINT IF EXISTS audit_event_body",
    "ALTER TABLE audit_event DROP CONSTRAINT IF EXISTS audit_event_check",
)
EVENT_AT = f"(SELECT event FROM audit_leaf WHERE idx = {AT})"
OTHER = f"(SELECT event FROM audit_leaf WHERE idx = {AT + 100})"
ATTACKS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "a body": ((*LOOSE, f"UPDATE audit_event SET body = convert_to('{{}}', 'UTF8') WHERE id = {EVENT_AT}"), "body", AT),
    "a body and its hash": (
        (*LOOSE, "UPDATE audit_event SET body = '{}'::bytea,"
         " body_hash = sha256('\\x6b76636f6e736f6c652f61756469742d626f64792f763100'::bytea || '{}'::bytea)"
         f" WHERE id = {EVENT_AT}"), "event", AT),
    "a body that went without an order": (
        (*LOOSE, f"UPDATE audit_event SET body = '' WHERE id = {EVENT_AT}"), "body", AT),
    "who did it": ((f"UPDATE audit_event SET actor_ref = {FLIP.format('actor_ref', 0)} WHERE id = {EVENT_AT}",),
                   "event", AT),
    "how it ended": ((f"UPDATE audit_event SET outcome = 3 WHERE id = {EVENT_AT}",), "event", AT),
    "an event is deleted": ((f"DELETE FROM audit_event WHERE id = {EVENT_AT}",), "event", AT),
    "two events are swapped": (
        (f"UPDATE audit_event SET id = -1 WHERE id = {EVENT_AT}",
         f"UPDATE audit_event SET id = {EVENT_AT} WHERE id = {OTHER}",
         f"UPDATE audit_event SET id = {OTHER} WHERE id = -1"), "event", AT),
    "a leaf's bytes": ((f"UPDATE audit_leaf SET data = {FLIP.format('data', 60)} WHERE idx = {AT}",), "leaf", AT),
    "a leaf's hash": ((f"UPDATE audit_leaf SET hash = {FLIP.format('hash', 31)} WHERE idx = {AT}",), "leaf", AT),
    "a leaf and its hash": (
        (f"UPDATE audit_leaf SET data = {FLIP.format('data', 72)} WHERE idx = {AT}",
         f"UPDATE audit_leaf SET hash = sha256('\\x00'::bytea || data) WHERE idx = {AT}"), "event", AT),
    "a leaf is deleted": ((f"DELETE FROM audit_leaf WHERE idx = {AT}",), "leaf", AT),
    "two leaves are swapped": (
        (f"UPDATE audit_leaf SET idx = -idx WHERE idx IN ({AT}, {AT + 1})",
         f"UPDATE audit_leaf SET idx = {AT} WHERE idx = -{AT + 1}",
         f"UPDATE audit_leaf SET idx = {AT + 1} WHERE idx = -{AT}"),
        "leaf", AT),
    "the tail is cut": ((f"DELETE FROM audit_leaf WHERE idx >= {AT}",), "leaf", AT),
    "a tile": (
        (f"UPDATE audit_tile SET hashes = {FLIP.format('hashes', 32 * (AT - 768))} WHERE level = 0 AND tile = 3",),
        "tile", AT),
    "the node above a tile": ((f"UPDATE audit_tile SET root = {FLIP.format('root', 1)} WHERE level = 0 AND tile = 3",),
                              "tile", 768),
    "a tile is deleted": (("DELETE FROM audit_tile WHERE level = 0 AND tile = 3",), "tile", 768),
    "the frontier": ((f"UPDATE audit_tree SET frontier = {FLIP.format('frontier', 33)}",), "frontier", 1024),
    "the root": ((f"UPDATE audit_tree SET root = {FLIP.format('root', 0)}",), "frontier", SIZE - 1),
    "a signed head": ((f"UPDATE audit_checkpoint SET root = {FLIP.format('root', 0)}",), "checkpoint", SIZE - 1),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ATTACKS))
def test_what_a_superuser_did_is_named(sealed, name):
    statements, kind, index = ATTACKS[name]
    sealed.attack(
        "ALTER TABLE audit_leaf DROP CONSTRAINT IF EXISTS audit_leaf_idx_check",
        "UPDATE audit_finding SET resolved_at = now()",
        *statements,
    )
    scrubber = Scrubber(sealed.database.dsn("seq"), rate=0)
    verdict = scrubber.round()
    scrubber.close()
    assert verdict.first_divergent == index, sealed.findings()
    assert (kind, index) in sealed.findings()
    assert sealed.rows(
        "SELECT convert_from(body, 'UTF8')::json->'data'->>'index' FROM audit_event WHERE event_type = %s ORDER BY id",
        0x0F03,
    )[0] == (str(index),)


def test_a_tail_that_was_cut_with_all_that_knows_of_it(sealed):
    """As after a restored backup: all tables agree, but what was signed is longer."""
    sealed.attack(
        "DELETE FROM audit_leaf WHERE idx >= 1024",
        "DELETE FROM audit_tile WHERE tile >= 4",
        "UPDATE audit_tree SET size = 1024, frontier = substring(frontier FOR 32), root = substring(frontier FOR 32)",
    )
    scrubber = Scrubber(sealed.database.dsn("seq"), rate=0)
    assert scrubber.round().first_divergent == 1024
    scrubber.close()
    assert ("log-shrunk", 1024) in sealed.findings()
    gaps.look()
    assert "event-unsealed" in {kind for kind, _ in sealed.findings()}
