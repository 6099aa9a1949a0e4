"""A superuser edits one byte anywhere in the log, again and again: each time the first index that differs is named."""

import os
import random
import time
from collections import Counter
from typing import NamedTuple

import pytest

from audit.scrubber import Scrubber
from tests.audit.loglab import Log, as_sequencer

EDITS = int(os.environ.get("KVC_FAULT_EDITS", "1000"))
SIZE = 3000


class Column(NamedTuple):
    """What can be edited: which bytes of which row say which leaf."""

    table: str
    name: str
    key: str
    length: int
    leaves: int
    """Bytes that stand for one leaf; 0: the whole is of one row."""


COLUMNS = (
    *(Column("audit_leaf", name, "idx = {}", length, 0) for name, length in (("data", 148), ("hash", 32))),
    *(Column("audit_event", name, "id = (SELECT event FROM audit_leaf WHERE idx = {})", length, 0)
      for name, length in (("body", 7), ("body_hash", 32), ("actor_ref", 16), ("tenant_ref", 16), ("pii_commit", 32))),
    *(Column("audit_tile", name, "level = 0 AND tile = {}", length, leaves)
      for name, length, leaves in (("hashes", 8192, 32), ("root", 32, 32))),
)  # fmt: skip


def edit(supply: random.Random) -> tuple[str, int, str]:
    """(statement that is its own inverse, first index, column)."""
    column, bit = supply.choice(COLUMNS), 1 << supply.randrange(8)
    at = supply.randrange(column.length)
    row = supply.randrange(SIZE // 256 if column.leaves else SIZE)
    first = row * 256 + at // 32 if column.leaves else row
    if (column.table, column.name) == ("audit_tile", "root"):
        first = row * 256
    where = column.key.format(row)
    flip = f"set_byte({column.name}, {at}, get_byte({column.name}, {at}) # {bit})"
    return f"UPDATE {column.table} SET {column.name} = {flip} WHERE {where}", first, f"{column.table}.{column.name}"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_an_edited_byte_is_named_wherever_it_is(fresh_database, django_db_blocker):
    seed, found = time.time_ns(), Counter[str]()
    supply = random.Random(seed)
    with django_db_blocker.unblock(), as_sequencer(fresh_database):
        log = Log(fresh_database)
        log.events(SIZE)
        log.seal()
        scrubber = Scrubber(fresh_database.dsn("seq"), rate=0)
        for _ in range(EDITS):
            statement, first, column = edit(supply)
            log.attack(statement)
            assert scrubber.round().first_divergent == first, (seed, statement, log.findings())
            log.attack(statement)
            log.rows("UPDATE audit_finding SET resolved_at = now() WHERE resolved_at IS NULL RETURNING id")
            found[column] += 1
        assert scrubber.round().divergences == 0
        scrubber.close()
        log.sequencer.close()
    print(f"{EDITS} edits, all named: {dict(found)}")
