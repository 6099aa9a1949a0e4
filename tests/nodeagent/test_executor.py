import contextlib
import threading
import time

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kvcore.messages import PROTOCOL, Command, Receipt, Signed, fingerprint, receipt_hash, seal, signed_bytes
from kvcore.targets import Bound
from nodeagent import executor
from nodeagent.executor import Executor
from nodeagent.gathering import BOUND
from nodeagent.jobs import Done, Running
from nodeagent.journal import FIRST, Journal, JournalFull
from tests.nodeagent.conftest import eventually


def pair():
    key = Ed25519PrivateKey.generate()
    return key, key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


CONSOLE, CONSOLE_PUBLIC = pair()
NODE, NODE_PUBLIC = pair()


class Bench:
    def __init__(self, path):
        self.path, self.calls, self.now = path, [], time.time()
        self.open()

    def open(self):
        self.journal = Journal(self.path)
        self.executor = Executor(
            node="n1", boot="b1", private_key=NODE.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()),
            console_key=CONSOLE_PUBLIC, journal=self.journal, verbs={"ping": self.ping, "digest": self.fails},
            positions=list, clock=lambda: self.now,
        )  # fmt: skip

    def ping(self, command):
        self.calls.append(command.step)
        return {"n": len(self.calls)}

    def fails(self, command):
        raise RuntimeError("no")

    def send(self, step="s1", kind="ping", *, key=CONSOLE, public=CONSOLE_PUBLIC, **more):
        if kind in BOUND and "args" not in more:
            more["args"] = {
                "targets": [],
                "part": {"first": 0, "length": 0, "count": 0},
                "targets_root": Bound([]).root,
            }
        fields = dict(
            v=PROTOCOL,
            step=step,
            kind=kind,
            node="n1",
            order_hash="0" * 64,
            issued_at=self.now,
            expires_at=self.now + 30,
        )
        return self.executor.execute(msgspec.json.encode(seal("command", Command(**fields | more), key.sign, public)))


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path / "journal.sqlite3")
    yield bench
    bench.journal.close()


def receipt(signed):
    assert isinstance(signed, Signed), signed
    NODE.public_key().verify(bytes.fromhex(signed.signature), signed_bytes("receipt", signed.body))
    assert signed.key == fingerprint(NODE_PUBLIC)
    return msgspec.convert(signed.body, Receipt)


def test_refusals_do_nothing_and_leave_no_trace(bench):
    stranger, stranger_public = pair()
    assert bench.send(key=stranger) == "command-signature"
    assert bench.send(key=stranger, public=stranger_public) == "command-signature"
    assert bench.send(node="n2") == "command-not-for-this-node"
    assert bench.send(expires_at=bench.now - 1) == "command-expired"
    assert bench.send(boot="b0") == "fenced-boot"
    assert bench.send(v=9) == "version-unsupported"
    assert bench.executor.execute(b"nonsense") == "command-malformed"
    assert bench.calls == []
    assert bench.journal.open_steps() == []


def test_the_same_step_gives_the_same_receipt_also_after_a_restart(bench):
    first = bench.send()
    assert receipt(first).outcome == "done"
    assert bench.send() == first
    bench.journal.close()
    bench.open()
    assert bench.send() == first
    assert bench.calls == ["s1"]


def test_receipts_are_chained(bench):
    chain = [receipt(bench.send(f"s{i}")) for i in range(4)]
    assert chain[0].prev == FIRST
    assert [r.prev for r in chain[1:]] == [receipt_hash(r) for r in chain[:-1]]


def test_what_cannot_be_done_has_a_receipt_too(bench):
    assert (receipt(bench.send("a", "unheard-of")).outcome, receipt(bench.send("b", "digest")).outcome) == (
        "refused",
        "failed",
    )
    assert receipt(bench.send("b", "digest")).detail == {"error": "RuntimeError"}


def test_a_crash_between_taking_and_doing_is_done_at_the_next_call(bench):
    bench.journal.take("s1", "ping", bench.now)
    bench.journal.close()
    bench.open()
    assert bench.journal.open_steps() == ["s1"]
    assert receipt(bench.send()).detail == {"n": 1}
    assert bench.journal.open_steps() == []


def test_a_crash_between_doing_and_answering_answers_the_journalled_receipt(bench):
    first = bench.send()
    bench.calls.clear()
    bench.journal.close()
    bench.open()
    assert bench.send() == first
    assert bench.calls == []


def test_a_command_may_be_for_the_life_of_a_store_that_the_agent_speaks_for(bench):
    bench.executor._boots = lambda: ["b1", "store-7"]
    assert receipt(bench.send("a", boot="store-7")).outcome == "done"
    assert bench.send("b", boot="store-6") == "fenced-boot"
    assert bench.send("c", boot=7) == "command-malformed"


class LongBench(Bench):
    """Has one long verb, which ends when it is let."""

    def open(self):
        super().open()
        self.began, self.let = threading.Event(), threading.Event()
        self.executor = Executor(
            node="n1", boot="b1", private_key=NODE.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()),
            console_key=CONSOLE_PUBLIC, journal=self.journal, verbs={"ping": self.ping}, positions=list,
            clock=lambda: self.now, long={"erase": self.erase}, patience_seconds=0.05,
        )  # fmt: skip

    def erase(self, command, job):
        self.calls.append(command.step)
        self.began.set()
        while not self.let.is_set():
            job.tell(3, 7)
            job.sleep(0.005)
        if self.boom:
            raise self.boom
        return Done("partial", "blocks-leased", {"n": len(self.calls)})

    boom = None

    def close(self):
        self.let.set()
        self.executor.close()
        self.journal.close()


@pytest.fixture
def long(tmp_path):
    bench = LongBench(tmp_path / "journal.sqlite3")
    yield bench
    bench.close()


def test_a_long_step_is_under_way_until_it_has_its_receipt(long):
    assert long.send("s1", "erase") == Running("s1", 0, 0) or long.executor.running
    assert long.send("s1", "erase") == Running("s1", 3, 7)
    assert receipt(long.send("p1")).detail == {"n": 2}  # others are answered meanwhile
    assert long.executor.running == [Running("s1", 3, 7)]
    long.let.set()
    eventually(lambda: not long.executor.running)
    done = long.send("s1", "erase")
    assert (receipt(done).outcome, receipt(done).code) == ("partial", "blocks-leased")
    assert long.send("s1", "erase") == done
    assert long.calls == ["s1", "p1"]
    assert receipt(done).prev == receipt_hash(receipt(long.send("p1")))


def test_what_is_short_is_answered_at_once(long):
    long.let.set()
    assert receipt(long.send("s1", "erase")).outcome == "partial"


def test_a_job_that_nobody_asks_for_any_more_ends_and_goes_on_when_it_is_ordered_again(long):
    assert long.send("s1", "erase").step == "s1"
    long.now += 40
    eventually(lambda: not long.executor.running)
    assert long.journal.open_steps() == ["s1"]
    assert long.executor._jobs == {}
    assert long.send("s1", "erase").step == "s1"
    long.now += 20
    long.send("s1", "erase")  # renewed
    long.now += 20
    time.sleep(0.05)
    assert long.executor.running
    long.let.set()
    eventually(lambda: not long.executor.running)
    assert receipt(long.send("s1", "erase")).detail["n"] == 2


def test_an_end_in_between_leaves_the_step_open(long):
    assert long.send("s1", "erase").step == "s1"
    long.executor.close()
    assert long.journal.open_steps() == ["s1"]
    assert long.send("s2", "erase") == "queue-full"
    long.journal.close()
    long.open()
    long.let.set()
    assert receipt(long.send("s1", "erase")).outcome == "partial"


def test_too_many_jobs_are_asked_to_come_again(long, monkeypatch):
    monkeypatch.setattr(executor, "JOBS_MOST", 2)
    assert [long.send(f"s{i}", "erase").step for i in range(2)] == ["s0", "s1"]
    assert long.send("s2", "erase") == "queue-full"


def test_a_long_verb_that_fails_has_a_receipt_too(long):
    long.boom = RuntimeError("no")
    long.let.set()
    assert (receipt(long.send("s1", "erase")).outcome, receipt(long.send("s1", "erase")).code) == (
        "failed",
        "agent-error",
    )


def test_a_full_journal_takes_no_command_and_nothing_is_done(long):
    full(long.journal)
    assert long.send("s1", "erase") == "journal-full"
    assert long.send("s2", "ping") == "journal-full"
    assert long.calls == []
    room(long.journal)
    assert long.journal.open_steps() == []


def test_a_receipt_that_does_not_fit_is_written_later_and_nothing_is_done_twice(long):
    assert long.send("s1", "erase").step == "s1"
    full(long.journal)
    long.let.set()
    eventually(lambda: not long.executor.running)
    assert long.send("s1", "erase") == "journal-full"
    room(long.journal)
    assert receipt(long.send("s1", "erase")).detail == {"n": 1}
    assert long.calls == ["s1"]


def test_what_the_journal_cannot_note_is_refused_and_can_be_done_later(long):
    long.boom = JournalFull("no")
    long.let.set()
    assert long.send("s1", "erase") == "journal-full"
    long.boom = None
    assert receipt(long.send("s1", "erase")).detail == {"n": 2}


def full(journal):
    """Nothing more can be written."""
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count={pages}")
    with contextlib.suppress(JournalFull):
        for number in range(10_000):
            journal.take(f"filler-{number}", "ping", 0.0)


def room(journal):
    journal._db.execute("PRAGMA max_page_count=1000000")
    journal._db.execute("DELETE FROM step WHERE step LIKE 'filler-%'")
