"""What an attacker does to the log in the database: refused, or named with the first index that differs.

What a fork, a restored backup and a signer with another key or state look like to the signer: `tests/audit/signer`,
`test_checkpoints`.
"""

import shutil
import time

import psycopg
import pytest
from django.db import connections

from audit import gaps, tiles, tree
from audit.checkpoints import head_keep, head_sign
from audit.scrubber import Scrubber
from kvconsole import roles
from kvcore.notes import Checkpoint, checkpoint_text
from kvcore.proofs import leaf_hash, root_at
from tests.audit.sealed import serving
from tests.audit.signer.making import ORIGIN, TOKENS, a_signer, files

TABLES = ("audit_event", "audit_leaf", "audit_tree", "audit_tile", "audit_checkpoint", "audit_finding", "audit_walk",
          "audit_signing", "audit_producer", "audit_pending")  # fmt: skip
PARTS = ("audit_event_rest", f"audit_event_{time.strftime('%Y%m', time.gmtime())}")
SIZE, AT = 1300, 777


@pytest.fixture
def sealed(log):
    log.events(SIZE)
    log.seal()
    note = checkpoint_text(Checkpoint("log.example/1", SIZE, tree.tree_now().root)) + f"\n— log.example/1 {'A' * 92}\n"
    log.rows("INSERT INTO audit_checkpoint SELECT size, root, %s, now() FROM audit_tree RETURNING size", note)
    log.rows("INSERT INTO audit_finding (at, kind, subject, detail) VALUES (now(), 'x', 'x', 'd') RETURNING id")
    return log


def attempts(role: str) -> list[str]:
    """Statements that would change or take away what was written, or write what is the sequencer's."""
    every = [f"{what} {table}" for table in (*TABLES, *PARTS) for what in ("DELETE FROM", "TRUNCATE")]
    every += [f"UPDATE {part} SET outcome = 3" for part in PARTS[1:]]
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
        every = [x for x in every if not x.startswith("ALTER") and x != f"DELETE FROM {PARTS[0]}"]  # which is empty
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


@pytest.mark.parametrize("role", roles.ROLES)
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
EVENT_AT = f"(SELECT event FROM audit_leaf WHERE idx = {AT})"
OTHER = f"(SELECT event FROM audit_leaf WHERE idx = {AT + 100})"
ATTACKS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "a body": ((f"UPDATE audit_event SET body = convert_to('{{}}', 'UTF8') WHERE id = {EVENT_AT}",), "body", AT),
    "a body and its hash": (
        ("UPDATE audit_event SET body = '{}'::bytea,"
         " body_hash = sha256('\\x6b76636f6e736f6c652f61756469742d626f64792f763100'::bytea || '{}'::bytea)"
         f" WHERE id = {EVENT_AT}",), "event", AT),
    "a body that went without an order": (
        (f"UPDATE audit_event SET body = '' WHERE id = {EVENT_AT}",), "body", AT),
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


# --- against the signed heads ---------------------------------------------------------------


@pytest.fixture
def signed(log, tmp_path, settings):
    """A log with heads of 500, 800 and 1300 leaves; `signed.serve(directory)`: another signer answers from now on."""
    settings.WITNESS_URL = settings.SIGNER_TOKEN = ""
    settings.SIGNER_LOG_TOKEN, opened = TOKENS.log, []

    def serve(directory):
        while opened:
            opened.pop()()
        signer = a_signer(directory, clock=time.time)
        at = serving(signer)
        settings.SIGNER_URL = at.__enter__()
        opened.append(lambda: (at.__exit__(None, None, None), signer.held.close()))

    log.serve, log.place = serve, tmp_path
    serve(tmp_path)
    for count in (500, 300, 500):
        log.events(count)
        log.seal()
        assert head_sign() == "ok"
        head_keep(witness=False)
    yield log
    while opened:
        opened.pop()()


def scrubbed(log):
    """The verdict of one round."""
    scrubber = Scrubber(log.database.dsn("seq"), rate=0)
    verdict = scrubber.round()
    scrubber.close()
    return verdict


def rewritten(log, *, heads):
    """Another history from leaf `AT` on, in which all tables agree; `heads`: what became of the kept heads beyond."""
    log.attack(
        f"UPDATE audit_event SET outcome = 3 WHERE id = {EVENT_AT}",
        f"UPDATE audit_leaf SET data = set_byte(data, 72, 3) WHERE idx = {AT}",
        f"UPDATE audit_leaf SET hash = sha256('\\x00'::bytea || data) WHERE idx = {AT}",
    )
    first = AT // tiles.WIDE * tiles.WIDE
    row = [leaf_hash(data) for (data,) in log.rows(f"SELECT data FROM audit_leaf WHERE idx >= {first} ORDER BY idx")]
    row, number = row[: tiles.WIDE], AT // tiles.WIDE
    log.attack(f"UPDATE audit_tile SET hashes = '\\x{b''.join(row).hex()}', root = '\\x{tiles.over(row).hex()}'"
               f" WHERE level = 0 AND tile = {number}")  # fmt: skip
    node = tree.node_reader()
    made = tree.frontier_rebuilt(SIZE, node)
    log.attack(f"UPDATE audit_tree SET frontier = '\\x{made.pack().hex()}', root = '\\x{made.root().hex()}'")
    if heads == "gone":
        return log.attack(f"DELETE FROM audit_checkpoint WHERE size > {AT}")
    for size in (800, SIZE):
        root = root_at(size, node)
        log.attack(f"UPDATE audit_checkpoint SET root = '\\x{root.hex()}' WHERE size = {size}")
        if heads == "notes":
            lines = checkpoint_text(Checkpoint(ORIGIN, size, root))
            log.attack(
                f"UPDATE audit_checkpoint SET note = '{lines}\n' || split_part(note, E'\\n\\n', 2) WHERE size = {size}"
            )
    return None


def test_heads_as_they_were_signed(signed):
    assert scrubbed(signed).divergences == 0
    assert signed.findings() == []


@pytest.mark.parametrize(("heads", "kind"), [("roots", "checkpoint"), ("notes", "signature")])
def test_another_history_is_not_the_one_that_was_signed(signed, heads, kind):
    """Its first leaf lies between the last head that holds and the first that does not: at 500 to 799."""
    rewritten(signed, heads=heads)
    assert scrubbed(signed).first_divergent == 799
    assert signed.findings() == [(kind, 799), (kind, SIZE - 1)]
    assert head_sign() == "refused"
    assert tree.log_state().signer_why == "log-fork"
    assert signed.findings()[-1] == ("signer-refused", 500)


def test_signatures_that_were_good_are_checked_again_where_heads_or_the_key_changed(signed):
    """A year of heads is two days of checking: what is as it was is not checked again, and nothing else is left out."""
    scrubber = Scrubber(signed.database.dsn("seq"), rate=0)
    assert scrubber.round().divergences == 0
    good = dict(scrubber._known)
    assert len(good) == 1
    assert scrubber.round().divergences == 0
    assert scrubber._known == good
    other_name, back = ("'\n\n— '", "'\n\n— x'"), ("'\n\n— x'", "'\n\n— '")
    change = "UPDATE audit_checkpoint SET note = replace(note, {}, {}) WHERE size = 800"
    signed.attack(change.format(*other_name))
    for _ in range(2):
        assert scrubber.round().first_divergent == 799
    signed.attack(change.format(*back))
    other = signed.place / "other"
    other.mkdir(mode=0o700)
    signed.serve(other)
    assert scrubber.round().first_divergent == 499, "another key did not sign them"
    scrubber.close()


def test_another_history_without_its_heads_gets_no_signature(signed):
    """Nothing in the database tells it from a true one; who signed the other one does, at the next heartbeat."""
    rewritten(signed, heads="gone")
    assert scrubbed(signed).divergences == 0
    for grown in (0, 100):
        signed.events(grown)
        signed.seal()
        assert head_sign() == "refused"
        assert tree.log_state().signer_why == "log-fork"
    assert signed.findings() == [("signer-refused", 500)], "so many leaves are those of a head that was kept"


def test_another_key_is_named_by_the_first_head_that_it_did_not_sign(signed):
    """Key and state are new, under the old name: the signer signs again what is there."""
    other = signed.place / "other"
    other.mkdir(mode=0o700)
    signed.serve(other)
    signed.events(3)
    signed.seal()
    assert head_sign() == "ok"
    assert signed.findings() == [("signer-set-back", 0)]
    assert scrubbed(signed).first_divergent == 499
    assert signed.findings()[1:] == [("signature", size - 1) for size in (500, 800, SIZE)]


def test_a_state_of_yesterday_is_named_by_what_was_forgotten(signed):
    state = files(signed.place).state
    shutil.copy(state, signed.place / "yesterday")
    signed.events(40)
    signed.seal()
    assert head_sign() == "ok"
    other = signed.place / "other"
    other.mkdir(mode=0o700)
    for name in files(signed.place):
        shutil.copy(name, other)
    shutil.copy(signed.place / "yesterday", other / state.name)
    signed.serve(other)
    assert head_sign() == "ok"
    assert signed.findings() == [("signer-set-back", SIZE)]
    assert scrubbed(signed).divergences == 0


def test_a_backup_of_yesterday_is_named_by_its_size_whatever_grows_on_it(signed, postgres):
    """All of the database is put back, as a restore does it; the signer's state is not."""
    kept, name = f"{signed.database.name}_kept", signed.database.name
    signed.sequencer.close()
    connections.close_all()
    postgres.create_database(kept, name)
    signed.events(60)
    signed.seal()
    assert head_sign() == "ok"
    signed.sequencer.close()
    connections.close_all()
    postgres.drop_database(name)
    postgres.create_database(name, kept)
    postgres.drop_database(kept)
    assert scrubbed(signed).divergences == 0, "it is whole in itself"
    assert head_sign() == "refused"
    assert (tree.log_state().signer_why, signed.findings()) == ("log-shrunk", [("signer-refused", SIZE)])
    signed.events(100)
    signed.seal()
    assert head_sign() == "refused"
    assert tree.log_state().signer_why == "log-fork"
    assert signed.findings() == [("signer-refused", SIZE)] * 2, "shorter, and then another one from there on"
