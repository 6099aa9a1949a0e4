"""Tampered bundles: none is accepted, and the place is named. 1,000 of them, 100,000 with `KVC_ACCEPT=full`."""

import argparse
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from audit.verifier import kvc_verify
from tests.audit.verifier import mutants
from tests.audit.verifier.bundles import build, sample, zipped

COUNT = 100_000 if os.environ.get("KVC_ACCEPT") == "full" else 1_000
OURS, THEIRS = sample(30), sample(30, seed=7, origin="kvconsole.example/log/other/1")
SHAPES: dict[str, dict[str, Any]] = {
    "full": {},
    "part": {"first": 7, "last": 23, "previous": 20},
    "chosen": {"first": 7, "last": 27, "chosen": [8, 20, 23], "deflate": ("events.jsonl", "renderings/events.csv")},
    "paths": {"proof": "inclusion", "chosen": [3, 20, 29], "deflate": (), "previous": 29},
}


KEYS = OURS.keys().splitlines()


def verdict(path: Path, data: bytes) -> kvc_verify.Report:
    path.write_bytes(data)
    options = {"command": "bundle", "file": str(path), "key": KEYS, "keys": [], "quorum": 0}
    return kvc_verify.run(argparse.Namespace(**options))


@pytest.mark.parametrize("shape", SHAPES)
def test_no_mutant_is_accepted(shape: str, tmp_path: Path) -> None:
    made, other = build(OURS, **SHAPES[shape]), build(THEIRS, **SHAPES[shape])
    data, target = zipped(made), tmp_path / "bundle.zip"
    assert verdict(target, data).verdict == "valid"
    seed, share = sum(shape.encode()), COUNT // len(SHAPES)
    accepted, unplaced, tried = [], [], 0
    for source in (mutants.of_bytes(data, share // 2, seed), mutants.of_parts(made, other, share // 2, seed)):
        for mutant in source:
            report = verdict(target, mutant.data)
            tried += 1
            if (
                report.verdict != ("invalid" if mutant.kind == "flip" else report.verdict)
                or not report.facts["problems"]
            ):
                accepted.append((mutant.kind, mutant.at, report.verdict))
            elif not set(report.facts["problems"][0]) & {"file", "byte", "line"} and not report.malformed:
                unplaced.append((mutant.kind, mutant.at, report.facts["problems"][0]))
    assert tried > 0.9 * share - 20
    assert not accepted
    assert not unplaced


@pytest.mark.parametrize("shape", SHAPES)
def test_a_flipped_bit_is_named_by_the_file_it_is_in(shape: str, tmp_path: Path) -> None:
    made = build(OURS, **SHAPES[shape])
    data, supply = zipped(made), random.Random(5)
    entries = kvc_verify.Zip(_kept(tmp_path / "good.zip", data)).entries
    for _ in range(min(COUNT // 20, 500)):
        name = supply.choice([n for n in entries if entries[n].packed])
        entry = entries[name]
        bit = 8 * entry.start + supply.randrange(8 * entry.packed)
        report = verdict(tmp_path / "bundle.zip", mutants.flipped_at(data, bit).data)
        named = {problem.get("file") for problem in report.facts["problems"]}
        assert report.verdict == "invalid"
        # A signature covers the manifest, so that either of the two can be what was changed.
        assert named & ({"manifest.json", "manifest.sig"} if name.startswith("manifest") else {name}), (name, named)


def test_a_flipped_bit_of_a_record_is_named_by_its_line_index_and_field(tmp_path: Path) -> None:
    made = build(OURS, deflate=())
    data, supply = zipped(made), random.Random(6)
    start = kvc_verify.Zip(_kept(tmp_path / "good.zip", data)).entries["events.jsonl"].start
    lines = made["files"]["events.jsonl"].splitlines(keepends=True)
    for _ in range(min(COUNT // 10, 2_000)):
        at = supply.randrange(len(lines))
        inside = supply.randrange(8 * (len(lines[at]) - 1))
        bit = 8 * (start + sum(map(len, lines[:at]))) + inside
        first = verdict(tmp_path / "bundle.zip", mutants.flipped_at(data, bit).data).facts["problems"][0]
        assert (first["file"], first["line"]) == ("events.jsonl", at + 1), first
        body = re.match(rb'\{"body":\{(.*)\},"index"', lines[at])
        assert body is not None
        if body.start(1) <= inside // 8 < body.end(1) and first["code"] == "body":
            assert (first["index"], first["field"]) == (at, "body")


def _kept(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)
