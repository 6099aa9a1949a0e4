import time

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kvcore.messages import PROTOCOL, Command, Receipt, Signed, fingerprint, receipt_hash, seal, signed_bytes
from nodeagent.executor import Executor
from nodeagent.journal import FIRST, Journal


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
