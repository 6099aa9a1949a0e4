"""A bundle of a log that goes on after another one: known by the key of the first, and by nothing less."""

import json
from itertools import count

import pytest

from kvcore.epochs import EpochRecord, record_text
from tests.audit.verifier.bundles import Event, Log, Signer, b64, build, growth, jcs, path, sample, tree, zipped
from tests.audit.verifier.checking import checked

OLD, KEPT = sample(40), 30
ORIGIN, SEED = "kvconsole.example/log/test/2", 7
NEW_KEY, NEW_EXPORT = Signer(ORIGIN, SEED), Signer(f"{ORIGIN}/export", SEED + 50)
ROOT, KEPT_ROOT = tree(OLD.hashes), tree(OLD.hashes[:KEPT])
BASE = {"0": 10, "1": 10, "2": 10}
LATER = 1_790_000_100_000_000
"""When the log began: what was not kept of the one before is older, and is sealed behind."""
BOTH = (OLD.log, NEW_KEY)
FACTS = EpochRecord(
    old=OLD.log.vkey, old_size=40, old_root=ROOT, kept=KEPT, kept_root=KEPT_ROOT, new=NEW_KEY.vkey,
    export=NEW_EXPORT.vkey, approval="01a22c14-8067-731b-9701-94e98a5d88ad", approvers=("ab" * 16, "cd" * 16),
    at="2026-05-28T20:26:40Z", reason="restore",
)  # fmt: skip


def record(signers=BOTH, text=None, **facts):
    text = text or record_text(FACTS._replace(**facts))
    return f"{text}\n" + "".join(signer.line(text) for signer in signers)


def new_log(said, *, kind=0x0F09, flags=32, told=None, skip=None):
    """The log that begins with this record, and goes on with the producers' numbers."""
    data = {"record": said if told is None else told, "producers": BASE}
    first = {"action": "log.restored", "actor": {"kind": "nobody", "roles": []}, "data": data,
             "object": {"id": ORIGIN, "kind": "log"}, "outcome": "success", "request_id": ""}  # fmt: skip
    numbers = {producer: count(11) for producer in (0, 1, 2)}
    events = [Event(first, producer=0, seq=next(numbers[0]), kind=kind, flags=flags, time_us=LATER)]
    for n in range(1, 20):
        if n == skip:
            next(numbers[n % 3])
        events.append(Event({"action": "a", "n": n}, producer=n % 3, seq=next(numbers[n % 3])))
    log = Log(events, origin=ORIGIN, seed=SEED)
    assert (log.log.vkey, log.export.vkey) == (NEW_KEY.vkey, NEW_EXPORT.vkey)
    return log


def epochs(log, *records):
    first = {"body": jcs(log.events[0].body).decode(), "leaf": b64(log.leaves[0]),
             "proof": [b64(one) for one in path(0, log.hashes)]}  # fmt: skip
    return jcs({"first": first, "records": list(records)})


def bundle(said=None, *, log=None, files=None, previous=None, **more):
    said = said or record()
    log = log or new_log(said)
    files = {"epochs.json": epochs(log, said), **(files or {})}
    if previous is not None:
        files["checkpoint.prev"] = OLD.head(previous).encode()
        proof = growth(previous, OLD.hashes[:KEPT]) if previous <= KEPT else []
        files["consistency.txt"] = "".join(f"{b64(h)}\n" for h in proof).encode()
        more["change"] = lambda m: m.update(previous={"manifest_sha256": "0" * 64, "size": previous})
    return zipped(build(log, files=files, **more))


def verdict(tmp_path, data, keys=None, *options, command="bundle"):
    found = checked(tmp_path / "b.zip", data, *options, keys=OLD.keys() if keys is None else keys, command=command)
    codes = [one["code"] for kind in ("problems", "reasons") for one in found[kind]]
    return found["verdict"], codes, [one["code"] for one in found["remarks"]]


@pytest.mark.parametrize("shape", [{}, {"first": 5}, {"proof": "inclusion", "chosen": [3, 9]}])
def test_who_has_the_key_of_the_first_log_needs_no_other(tmp_path, shape):
    data = bundle(**shape)
    assert verdict(tmp_path, data) == ("valid", [], ["new-epoch"])
    assert verdict(tmp_path, data, new_log(record()).keys()) == ("valid", [], ["new-epoch"])
    assert verdict(tmp_path, data, sample(1, seed=9).keys())[0] == "invalid", "and who has none of both has nothing"


def test_producers_go_on_with_their_numbers(tmp_path):
    assert verdict(tmp_path, bundle(log=new_log(record(), skip=7)))[:2] == ("incomplete", ["producer-gap"])


def test_an_earlier_bundle_of_the_first_log_is_consistent_as_far_as_it_was_kept(tmp_path):
    assert verdict(tmp_path, bundle(previous=20)) == ("valid", [], ["new-epoch"])
    assert verdict(tmp_path, bundle(previous=KEPT))[0] == "valid"
    assert verdict(tmp_path, bundle(previous=35))[:2] == ("incomplete", ["lost"])
    (tmp_path / "old").write_text(OLD.head(20))
    (tmp_path / "proof").write_text("".join(f"{b64(h)}\n" for h in growth(20, OLD.hashes[:KEPT])))
    (tmp_path / "new.zip").write_bytes(bundle())
    compare = ["consistency", str(tmp_path / "old"), str(tmp_path / "new.zip")]
    assert run(*compare, "--proof", str(tmp_path / "proof")) == ("valid", [])
    assert run(*compare) == ("incomplete", ["proof-not-given"])
    (tmp_path / "old").write_text(OLD.head(40))
    assert run(*compare) == ("incomplete", ["lost"])


def test_a_log_that_ended_elsewhere_than_its_record_says_is_a_fork(tmp_path):
    forked = sample(40, origin=OLD.origin)
    other = Log([*OLD.events[:35], *forked.events[:5]], origin=OLD.origin, seed=OLD.seed)
    (tmp_path / "new.zip").write_bytes(bundle())
    for log, size in ((other, 40), (Log([*OLD.events, *OLD.events[:3]], origin=OLD.origin, seed=OLD.seed), 43)):
        (tmp_path / "old").write_text(log.head(size))
        assert run("consistency", str(tmp_path / "old"), str(tmp_path / "new.zip")) == ("invalid", ["fork"])


def run(*words):
    from audit.verifier import kvc_verify

    keys = [word for line in OLD.keys().splitlines() for word in ("--key", line)]
    report = kvc_verify.run(kvc_verify.arguments().parse_args([*words, *keys]))
    return report.verdict, [one["code"] for kind in ("problems", "reasons") for one in report.facts[kind]]


def test_a_key_that_was_stolen_makes_no_other_known(tmp_path):
    data = bundle(record(reason="key-stolen"))
    assert verdict(tmp_path, data)[:2] == ("invalid", ["another-log"])
    assert verdict(tmp_path, data, new_log(record()).keys())[0] == "valid"


THIEF = Signer(OLD.origin, 66)
SPOILED = {
    "nobody of the old log signed": lambda: bundle(record((NEW_KEY,))),
    "the new key did not": lambda: bundle(record((OLD.log,))),
    "somebody else of that name did": lambda: bundle(record((THIEF, NEW_KEY), old=THIEF.vkey)),
    "three did": lambda: bundle(record((*BOTH, THIEF))),
    "more was kept than was signed": lambda: bundle(record(text=record_text(FACTS).replace("kept 30", "kept 41"))),
    "one person agreed": lambda: bundle(record(text=record_text(FACTS).replace("cd" * 16, "ab" * 16))),
    "another export key": lambda: bundle(record(export=Signer("another/export", 3).vkey)),
    "the first leaf is another event": lambda: bundle(log=new_log(record(), kind=0x0101)),
    "it has not the flag": lambda: bundle(log=new_log(record(), flags=0)),
    "it has another record": lambda: bundle(log=new_log(record(), told=record(reason="key-replaced"))),
    "it is the leaf of another log": lambda: bundle(files={"epochs.json": epochs(new_log(record(), skip=3), record())}),
    "no record": lambda: bundle(files={"epochs.json": epochs(new_log(record()))}),
    "another form": lambda: bundle(files={"epochs.json": b"[]"}),
    "a body that is no object": lambda: bundle(files={"epochs.json": jcs({"first": 1, "records": [record()]})}),
    "a record of another pair": lambda: bundle(files={"epochs.json": epochs(new_log(record()), record(), record())}),
}


@pytest.mark.parametrize("spoil", SPOILED)
def test_no_other_record_makes_a_key_known(tmp_path, spoil):
    assert verdict(tmp_path, SPOILED[spoil]())[0] == "invalid", spoil
    assert verdict(tmp_path, SPOILED[spoil](), new_log(record()).keys() + OLD.keys())[0] == "invalid", spoil


def test_without_its_record_a_log_of_another_name_is_another_log(tmp_path):
    log = new_log(record())
    assert verdict(tmp_path, zipped(build(log)))[:2] == ("invalid", ["another-log"])
    assert json.loads(epochs(log, record()))["records"] == [record()]
