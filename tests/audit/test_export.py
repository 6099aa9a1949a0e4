"""Parts of a bundle: slices that resume, a zip in its one form, verbatim lines, Parquet where it can be made."""

import base64
import json
import struct
import zipfile
import zlib
from array import array

import pytest

from audit.disclosure import Disclosed
from audit.export import bundle, jsonl, parquet, parts
from audit.export.select import Selection
from audit.verifier import kvc_verify
from tests.audit.export.test_csvrows import a_record
from tests.audit.verifier.bundles import build
from tests.audit.verifier.checking import LOG, checked


def test_a_part_is_the_same_whoever_goes_on_with_it(tmp_path):
    slices = [bytes([n]) * (1000 + n) for n in range(5)]
    whole = parts.Part(tmp_path / "whole")
    for one in slices:
        whole.add(one)
    entry = whole.entry("x", 5)
    part, upto = parts.Part(tmp_path / "cut"), 0
    for one in slices:
        part.add(one)
        upto = part.sync()
        with (tmp_path / "cut").open("ab") as file:
            file.write(b"half a slice that nobody knows of")
        part.close()
        part = parts.Part(tmp_path / "cut", upto=upto)
    resumed = part.entry("x", 5)
    assert resumed._replace(packed=None) == entry._replace(packed=None)
    packed = (tmp_path / "cut").read_bytes()
    assert packed == (tmp_path / "whole").read_bytes()
    assert zlib.decompress(packed, -15) == b"".join(slices)


def test_the_zip_is_what_python_writes_and_its_headers_are_as_described(tmp_path):
    part = parts.Part(tmp_path / "p")
    part.add(b"lines\n" * 100)
    entries = [part.entry("events.jsonl", 100), parts.stored("manifest.json", b"{}")]
    parts.write_zip(tmp_path / "b.zip", entries)
    raw = (tmp_path / "b.zip").read_bytes()
    assert struct.unpack("<4sHHHHHI", raw[:18])[:6] == (b"PK\x03\x04", 20, 0, 8, 0, 0x0021)
    with zipfile.ZipFile(tmp_path / "b.zip") as found:
        assert found.testzip() is None
        assert [i.filename for i in found.infolist()] == ["events.jsonl", "manifest.json"]
        assert {i.external_attr for i in found.infolist()} == {0o100644 << 16}
        assert {i.flag_bits for i in found.infolist()} == {0}
    assert not (tmp_path / "b.part").exists()


def big(tmp_path, name="big.zip", limit=2000):
    """A bundle that is zip64 from `limit` bytes on."""
    made = build(LOG, deflate=())
    path = tmp_path / name
    parts.write_zip(path, [parts.stored(*one) for one in made["files"].items()], limit=limit)
    return path


def test_what_is_large_is_zip64_in_one_form_that_the_verifier_reads(tmp_path, monkeypatch):
    path = big(tmp_path)
    raw = path.read_bytes()
    assert raw == big(tmp_path, "again.zip").read_bytes()
    assert raw.count(b"PK\x06\x06") == raw.count(b"PK\x06\x07") == 1
    with zipfile.ZipFile(path) as found:
        assert found.testzip() is None
        sizes = {i.filename: i.file_size for i in found.infolist()}
    assert sizes["events.jsonl"] > 2000 > sizes["checkpoint"], "some are, and some are not"
    refused = checked(path)
    assert (refused["verdict"], refused["problems"][0]["code"]) == ("invalid", "zip"), "small ones never are zip64"
    monkeypatch.setattr(kvc_verify, "BIG", 2000)
    assert checked(path)["verdict"] == "valid"
    monkeypatch.setattr(kvc_verify, "BIG", max(sizes.values()) + 1)
    assert checked(big(tmp_path, "one.zip", kvc_verify.BIG))["verdict"] == "valid", "only places are far"


def test_no_byte_of_the_headers_of_zip64_can_be_another(tmp_path, monkeypatch):
    path = big(tmp_path)
    monkeypatch.setattr(kvc_verify, "BIG", 2000)
    raw, here = path.read_bytes(), tmp_path / "mutant.zip"
    begin = struct.unpack("<Q", raw[raw.rindex(b"PK\x06\x06") + 48 :][:8])[0]
    for at in [*range(60), *range(begin, len(raw), 3)]:
        spoiled = bytearray(raw)
        spoiled[at] ^= 1 << at % 8
        assert checked(here, bytes(spoiled))["verdict"] in ("invalid", "malformed"), at
    assert checked(here, raw[:-1])["verdict"] == "invalid"


def test_nothing_is_larger_than_the_verifier_takes(tmp_path, monkeypatch):
    assert parts.MOST == kvc_verify.MOST_UNPACKED
    assert parts.LIMIT == kvc_verify.BIG
    monkeypatch.setattr(parts, "MOST", 2 * parts.HEADERS)
    for size in (parts.MOST + 1, parts.MOST, parts.MOST - parts.HEADERS):  # also what fits, but for the headers
        with pytest.raises(parts.TooLarge):
            parts.write_zip(tmp_path / "b.zip", [parts.stored("a", b"x" * size)])
    assert list(tmp_path.iterdir()) == []
    parts.write_zip(tmp_path / "b.zip", [parts.stored("a" * 200, b"x" * (parts.HEADERS - 1))])
    assert (tmp_path / "b.zip").stat().st_size < parts.MOST


def test_lines_hold_bodies_verbatim():
    body = b'{"a":"\xc3\xa9","n":1}'
    line = jsonl.lines([a_record(body=body)])
    assert b'"body":' + body + b"," in line
    assert json.loads(line) == {"body": {"a": "é", "n": 1}, "index": 7, "leaf": base64.b64encode(bytes(148)).decode()}
    assert json.loads(jsonl.lines([a_record(body=b"")]))["body"] is None
    opened = json.loads(jsonl.lines([a_record(personal=Disclosed(bytes(32), b'{"x":1}'))]))["pii"]
    assert opened == {"data": {"x": 1}, "salt": base64.b64encode(bytes(32)).decode()}
    proved = json.loads(jsonl.lines([a_record(personal="shredded")], path=lambda index: [bytes(32)] * index))
    assert (proved["pii"], len(proved["proof"])) == ("shredded", 7)


def test_places_of_a_selection_come_from_a_run_or_a_file(tmp_path):
    assert list(Selection(5, 9, 5).slice(1, 3)) == [6, 7, 8]
    assert list(Selection(5, 9, 5).slice(4, 3)) == [9]
    (tmp_path / "s").write_bytes(array("q", [1, 5, 9, 40]).tobytes())
    found = Selection(1, 40, 4, tmp_path / "s")
    assert (list(found.slice(0, 2)), list(found.slice(2, 5))) == ([1, 5], [9, 40])
    assert (bundle.proof_kind(found), bundle.full(found)) == ("range", False)
    assert bundle.proof_kind(Selection(0, 4000, 4, tmp_path / "s")) == "inclusion"
    assert bundle.full(Selection(0, -1, 0))


def test_parquet_holds_the_columns(tmp_path):
    import pyarrow.parquet

    assert parquet.available()
    assert parquet.write(tmp_path / "p", [[a_record()], [a_record(index=8, body=b"")]]) == 2
    found = pyarrow.parquet.read_table(tmp_path / "p").to_pylist()
    assert [(one["index"], one["leaf_hash"], one["outcome"]) for one in found] == [
        (7, bytes(32), "success"), (8, bytes(32), "success"),
    ]  # fmt: skip
    assert found[1]["data"] is None
