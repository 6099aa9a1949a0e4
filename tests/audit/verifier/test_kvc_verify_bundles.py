"""Bundles: what is valid, what is incomplete, and the place of what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.audit.verifier.bundles import Event, Log, Signer, b64, build, jcs, sample, zipped
from tests.audit.verifier.checking import LOG, checked, first


@pytest.mark.parametrize(
    "shape",
    [{}, {"last": 20}, {"first": 39}, {"first": 10, "last": 9}, {"first": 3, "last": 30, "previous": 17},
     {"chosen": [4, 9, 33]}, {"first": 5, "last": 30, "chosen": []}, {"proof": "inclusion", "chosen": [0, 39]},
     {"previous": 40}, {"previous": 0}],
)  # fmt: skip
def test_what_is_as_it_was_signed_is_valid(shape: dict[str, Any], tmp_path: Path) -> None:
    bundle = build(LOG, **shape)
    found = checked(tmp_path / "b.zip", zipped(bundle), "--quorum", "1")
    assert (found["verdict"], found["problems"], found["reasons"]) == ("valid", [], [])
    assert (found["log"]["size"], found["keys"]) == (40, "given")
    for name, data in bundle["files"].items():
        target = tmp_path / "unpacked" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    assert checked(tmp_path / "unpacked")["verdict"] == "valid"
    (tmp_path / "unpacked/more.txt").write_text("more")
    assert first(checked(tmp_path / "unpacked")) == ("invalid", "files", "more.txt")
    (tmp_path / "unpacked/more.txt").unlink()
    (tmp_path / "unpacked/keys.txt").unlink()
    (tmp_path / "unpacked/keys.txt").symlink_to(tmp_path / "b.zip")
    assert first(checked(tmp_path / "unpacked")) == ("invalid", "directory", "keys.txt")


def test_an_empty_log_is_an_honest_one(tmp_path: Path) -> None:
    log = Log([])
    assert checked(tmp_path / "b.zip", zipped(build(log)), keys=log.keys())["verdict"] == "valid"


def test_shredded_data_is_valid_and_disclosed_data_is_checked(tmp_path: Path) -> None:
    found = checked(tmp_path / "b.zip", zipped(build(LOG)))
    assert found["personal_data"] == {"disclosed": 3, "sealed": 3, "shredded": 2}
    for old, new, place in ((b"0@example", b"1@example", "1"), (b'"pii":"sealed"', b'"pii":"other"', "6"),
                            (b',"pii":"sealed"', b"", "6"), (b'"salt":"', b'"sald":"', "1")):  # fmt: skip
        lines = build(LOG)["files"]["events.jsonl"].replace(old, new, 1)
        found = checked(tmp_path / "b.zip", zipped(build(LOG, files={"events.jsonl": lines})))
        assert first(found)[:4] == ("invalid", "pii", "events.jsonl", place)
        assert first(found)[5] == "pii"


def test_the_logs_own_word_for_the_time_is_no_witness(tmp_path: Path) -> None:
    own, note = Signer(LOG.origin, LOG.seed, 4), LOG.head(cosign=False)
    note += own.line(note.partition("\n\n")[0] + "\n", 1_790_000_100)
    bundle = zipped(build(LOG, files={"checkpoint": note.encode()}))
    found = checked(tmp_path / "b.zip", bundle, "--quorum", "1", keys=LOG.keys() + own.vkey)
    assert (found["verdict"], [one["code"] for one in found["reasons"]]) == ("incomplete", ["quorum"])
    assert found["log"]["witnesses"] == []


def test_keys_the_bundle_brings_itself_are_not_enough(tmp_path: Path) -> None:
    path, data = tmp_path / "b.zip", zipped(build(LOG))
    found = checked(path, data, keys="")
    assert (found["verdict"], found["keys"]) == ("incomplete", "bundle")
    assert checked(path, data, keys=LOG.log.vkey)["verdict"] == "incomplete"  # whose is the manifest?
    other = sample(3, seed=9, origin="kvconsole.example/log/other/1")
    assert first(checked(path, data, keys=other.keys()))[:2] == ("invalid", "another-log")
    imposter = sample(40, seed=9)  # the same log by name, with keys of its own
    found = checked(path, zipped(build(imposter)))
    assert first(found) == ("invalid", "unsigned", "manifest.sig")
    files = {"checkpoint": imposter.head().encode(), "keys.txt": imposter.keys().encode()}
    found = checked(path, zipped(build(LOG, files=files)))
    assert first(found) == ("invalid", "unsigned", "checkpoint")
    assert checked(path, data, "--quorum", "2")["reasons"][0]["code"] == "quorum"
    assert checked(path, data, "--quorum", "1", keys=f"{LOG.log.vkey}\n{LOG.export.vkey}")["verdict"] == "incomplete"


def test_what_producers_left_out_or_said_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"

    def log(*seqs: int) -> Log:
        return Log([Event(body={"n": n}, producer=4, seq=seq) for n, seq in enumerate(seqs)])

    found = checked(path, zipped(build(log(1, 2, 5, 4, 9))))
    assert found["verdict"] == "incomplete"
    assert found["gaps"] == [{"producer": 4, "first": 3, "last": 3}, {"producer": 4, "first": 6, "last": 8}]

    def tell(manifest: dict[str, Any]) -> None:
        manifest["gaps"] = [{"first": 3, "index": 4, "last": 3, "producer": 4}]

    found = checked(path, zipped(build(log(1, 2, 5, 4, 9), change=tell)))
    assert [r["detail"].endswith("event 4 tells of it") for r in found["reasons"]] == [True, False]
    assert checked(path, zipped(build(log(3, 4))))["gaps"] == [{"producer": 4, "first": 1, "last": 2}]
    assert checked(path, zipped(build(log(3, 4, 5), first=1)))["verdict"] == "valid"
    assert checked(path, zipped(build(log(3, 9, 12), chosen=[0, 2])))["verdict"] == "valid"
    assert first(checked(path, zipped(build(log(1, 2, 2)))))[:2] == ("invalid", "producer-twice")


def test_a_clock_that_goes_back_is_remarked_and_a_late_event_is_not(tmp_path: Path) -> None:
    times = (50_000_000, 44_000_000, 46_000_000, 40_000_000)
    log = Log([Event(body={}, time_us=t, flags=8 if n == 3 else 0) for n, t in enumerate(times)])
    found = checked(tmp_path / "b.zip", zipped(build(log)))
    assert (found["verdict"], found["remarks"][0]["code"], found["remarks"][0]["index"]) == ("valid", "clock-back", 1)


def test_a_body_that_is_not_kept_leaves_its_leaf_proven(tmp_path: Path) -> None:
    lines = build(LOG)["files"]["events.jsonl"].splitlines(keepends=True)
    record = json.loads(lines[7])
    lines[7] = jcs({**record, "body": None}) + b"\n"
    found = checked(tmp_path / "b.zip", zipped(build(LOG, files={"events.jsonl": b"".join(lines)})))
    assert (found["verdict"], found["reasons"][0]["code"]) == ("incomplete", "body-not-kept")


def lied(line: int, change: Callable[[dict[str, Any]], Any]) -> dict[str, bytes]:
    """A record that is changed by who holds the export key."""
    lines = build(LOG)["files"]["events.jsonl"].splitlines(keepends=True)
    record = json.loads(lines[line])
    change(record)
    lines[line] = jcs(record) + b"\n"
    return {"events.jsonl": b"".join(lines)}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda r: r["body"].update(outcome="denied"), ("body", "events.jsonl", "4", "3", "body")),
        (lambda r: r.update(leaf=b64(LOG.leaves[4])), ("index", "events.jsonl", "4", "3", "index")),
        (lambda r: r.update(index=4), ("index", "events.jsonl", "4", "4", "index")),
        (lambda r: r.update(more=1), ("leaf", "events.jsonl", "4", "3", "leaf")),
        (lambda r: r.update(pii="shredded"), ("pii", "events.jsonl", "4", "3", "pii")),
        (lambda r: r.update(index="3"), ("record", "events.jsonl", "4")),
        (lambda r: r.update(body=[]), ("body", "events.jsonl", "4", "3", "body")),
        (lambda r: r.update(leaf=r["leaf"][:-4] + "ZZ=="), ("record", "events.jsonl", "4")),
        (lambda r: r.update(leaf="!" + r["leaf"][1:]), ("record", "events.jsonl", "4")),
        (lambda r: r.update(leaf=b64(b"X" + LOG.leaves[3][1:])), ("leaf", "events.jsonl", "4", "3", "leaf")),
    ],
)
def test_a_lie_by_who_holds_the_export_key_is_named(change: Callable, place: tuple[str, ...], tmp_path: Path) -> None:
    found = first(checked(tmp_path / "b.zip", zipped(build(LOG, files=lied(3, change)))))
    assert found[: 1 + len(place)] == ("invalid", *place)


@pytest.mark.parametrize(
    "line",
    [
        b'{"body":{"a":1,"a":2},"index":3,"leaf":"%s"}',
        b'{"body":{"a":%s},"index":3,"leaf":"%%s"}' % (b"9" * 6000),
        b'{"body":{"a":9007199254740993},"index":3,"leaf":"%s"}',
        b'{"body":{"a":NaN},"index":3,"leaf":"%s"}',
        b'{"body":' + b'{"a":' * 90_000 + b'1}},"index":3,"leaf":"%s"}',
        b'{"body":{"a":"\xff"},"index":3,"leaf":"%s"}',
        b'{"body":{},"index":03,"leaf":"%s"}',
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"body":',
    ],
)
def test_what_is_no_record_is_refused_at_its_line(line: bytes, tmp_path: Path) -> None:
    lines = build(LOG)["files"]["events.jsonl"].splitlines(keepends=True)
    lines[3] = line.replace(b"%s", b64(LOG.leaves[3]).encode()) + b"\n"
    found = first(checked(tmp_path / "b.zip", zipped(build(LOG, files={"events.jsonl": b"".join(lines)}))))
    assert (found[0], found[2], found[3]) == ("invalid", "events.jsonl", "4")


@pytest.mark.parametrize(
    ("shape", "files", "place"),
    [
        ({"chosen": [3]}, {"hashes.bin": b"".join(LOG.hashes[:-1]) + bytes(32)}, ("root", "hashes.bin")),
        ({}, {"hashes.bin": b"".join(LOG.hashes) + b"x"}, ("length", "hashes.bin")),
        ({}, {"edges.json": b'{"left":[],"right":[],"right":[]}'}, ("json", "edges.json")),
        ({}, {"edges.json": jcs({"left": [], "right": [b64(bytes(32))]})}, ("edges", "edges.json", "right")),
        ({"last": 20}, {"edges.json": jcs({"left": [], "right": []})}, ("edges", "edges.json", "right")),
        ({"first": 5}, {"edges.json": jcs({"left": [], "right": []})}, ("edges", "edges.json", "left")),
        ({"previous": 7}, {"checkpoint.prev": LOG.head(8).encode()}, ("consistency", "consistency.txt")),
        ({"previous": 7}, {"consistency.txt": b"AAAA\n"}, ("length", "consistency.txt", "1")),
        ({"previous": 7}, {"consistency.txt": b64(LOG.hashes[0]).encode()}, ("line", "consistency.txt", "1")),
        ({}, {"checkpoint": LOG.head(20).encode()}, ("checkpoint", "checkpoint")),
        ({}, {"checkpoint": LOG.head().replace("\n40\n", "\n040\n").encode()}, ("number", "checkpoint", "2", "size")),
        ({}, {"keys.txt": b"nonsense\n"}, ("length", "keys.txt", "1")),
        ({"proof": "inclusion", "chosen": [3]}, {"events.jsonl": LOG.record(3, False)},
         ("inclusion", "events.jsonl", "1", "3", "proof")),
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_it_should_be_is_named(
    shape: dict[str, Any], files: dict[str, bytes], place: tuple[str, ...], tmp_path: Path
) -> None:
    found = checked(tmp_path / "b.zip", zipped(build(LOG, files=files, **shape)))
    assert first(found) == ("invalid", *place)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(more=1),
        lambda m: m.pop("gaps"),
        lambda m: m.update(records=39),
        lambda m: m.update(range={"first": 0, "last": 40}),
        lambda m: m.update(range={"first": 2, "last": 0}),
        lambda m: m.update(range={"first": True, "last": 39}),
        lambda m: m.update(proof="none"),
        lambda m: m.update(previous={"manifest_sha256": "", "size": 3}),
        lambda m: m["files"].pop(),
        lambda m: m["files"].append(m["files"][0]),
        lambda m: m["files"].append({**m["files"][0], "path": "../x"}),
        lambda m: m["files"].append({**m["files"][0], "path": "Checkpoint"}),
        lambda m: m["files"].reverse(),
        lambda m: m["files"][0].pop("rows"),
        lambda m: m["files"][0].pop("packed"),
        lambda m: m["files"][1].update(sha256="0" * 64),
        lambda m: m["files"][0]["packed"].update(bytes=1),
        lambda m: m["files"][1].update(bytes=1.5),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(change: Callable, tmp_path: Path) -> None:
    assert checked(tmp_path / "b.zip", zipped(build(LOG, change=change)))["verdict"] == "invalid"


def test_a_newer_version_is_not_guessed_at(tmp_path: Path) -> None:
    found = checked(tmp_path / "b.zip", zipped(build(LOG, change=lambda m: m.update(v=2))))
    assert first(found)[:2] == ("malformed", "version")
