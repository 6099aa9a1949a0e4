"""The verifier: alone on a bare Python, its four exits, and what each check names."""

import ast
import io
import random
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.verifier import kvc_verify
from kvcore.notes import proof_text, vkey_parse
from tests.audit.verifier.bundles import Event, Log, Signer, b64, build, growth, jcs, sample, zipped
from tests.audit.verifier.checking import LOG, checked, first

FILE = Path(kvc_verify.__file__)


# --- the file itself ---------------------------------------------------------------------


def test_one_file_of_the_standard_library_that_can_be_read() -> None:
    text = FILE.read_text()
    names = {n.name.split(".")[0] for node in ast.walk(ast.parse(text, feature_version=(3, 9)))
             if isinstance(node, ast.Import) for n in node.names}  # fmt: skip
    names |= {str(node.module).split(".")[0] for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    assert names - set(sys.stdlib_module_names) == {"cryptography"}
    assert len(text.splitlines()) <= 900


@pytest.mark.parametrize("options", [["-I"], ["-I", "-S"]])
def test_it_runs_alone_and_without_cryptography(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "verify.py").write_bytes(FILE.read_bytes())
    (tmp_path / "b.zip").write_bytes(zipped(build(LOG)))
    (tmp_path / "keys.txt").write_text("# of the auditor\n\n" + LOG.keys())
    exits = []
    for more in (
        ["b.zip", "--keys", "keys.txt", "--quorum", "1"],
        ["b.zip"],
        ["verify.py"],
        ["none"],
        ["b.zip", "--key", "x"],
    ):
        command = [sys.executable, *options, "verify.py", "bundle", *more]
        exits.append(subprocess.run(command, cwd=tmp_path, capture_output=True).returncode)
    assert exits == [0, 3, 2, 2, 2]
    assert subprocess.run([sys.executable, "verify.py"], cwd=tmp_path, capture_output=True).returncode == 2


def test_its_own_ed25519_is_that_of_the_rfc() -> None:
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    good = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b"
    )
    assert kvc_verify.ed25519_slow(public, good, b"")
    assert not kvc_verify.ed25519_slow(public, good, b"x")
    supply = random.Random(1)
    for _ in range(10):
        key, message = Ed25519PrivateKey.from_private_bytes(supply.randbytes(32)), supply.randbytes(50)
        public, signature = key.public_key().public_bytes_raw(), key.sign(message)
        assert kvc_verify.ed25519_slow(public, signature, message)
        for part in range(3):
            spoiled = [bytearray(public), bytearray(signature), bytearray(message)]
            spoiled[part][supply.randrange(len(spoiled[part]))] ^= 1 << supply.randrange(8)
            args = [bytes(one) for one in spoiled]
            assert not kvc_verify.ed25519_slow(args[0], args[1], args[2])
            assert not kvc_verify.ed25519(args[0], args[1], args[2])
    more = int.from_bytes(signature[32:], "little") + kvc_verify.L  # the same signature, written another way
    assert not kvc_verify.ed25519_slow(public, signature[:32] + more.to_bytes(32, "little"), message)
    assert not kvc_verify.ed25519_slow(b"\xff" * 32, signature, message)
    assert not kvc_verify.ed25519_slow(public, b"", message)


# --- the zip -----------------------------------------------------------------------------


def raw_zip(files: list[tuple[str, bytes]], size: int | None = None, kind: int = 8, comment: bytes = b"") -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as out:
        for name, data in files:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o100644 << 16
            out.writestr(info, data, kind)
        out.comment = comment
    return held.getvalue() if size is None else held.getvalue().replace(struct.pack("<I", len(files[0][1])),
                                                                        struct.pack("<I", size))  # fmt: skip


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "a/../b", "a//b", "a\\b", "C:x", ".hidden", "a\nb", "é", "x" * 201]
)
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    assert first(checked(tmp_path / "b.zip", raw_zip([(name, b"x")])))[:2] == ("invalid", "name")


def test_names_that_stand_twice_are_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        data = raw_zip([("keys.txt", b"x"), ("keys.txt", b"y")])
    assert first(checked(tmp_path / "b.zip", data))[:2] == ("invalid", "name")
    assert first(checked(tmp_path / "b.zip", raw_zip([("a", b"x"), ("A", b"y")])))[:2] == ("invalid", "name")


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bundle = build(LOG, files={"events.jsonl": b"0" * 50_000_000})
    data = zipped(bundle)
    found = checked(tmp_path / "b.zip", data)
    assert first(found) == ("invalid", "line", "events.jsonl", "1")
    said = struct.pack("<I", 50_000_000)  # says that it is small, in all its headers
    found = checked(tmp_path / "b.zip", data.replace(said, struct.pack("<I", 1000)))
    assert found["verdict"] == "invalid"
    many = raw_zip([(f"f{n}", b"") for n in range(70)])
    assert first(checked(tmp_path / "b.zip", many))[:2] == ("invalid", "zip")
    assert first(checked(tmp_path / "b.zip", raw_zip([("keys.txt", b"0" * (5 << 20))])))[1] == "too-large"


def test_bytes_around_the_zip_are_refused(tmp_path: Path) -> None:
    data, path = zipped(build(LOG)), tmp_path / "b.zip"
    assert first(checked(path, data + b"\n"))[:2] == ("invalid", "zip")
    assert first(checked(path, b"\n" + data))[:2] == ("invalid", "zip")
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("keys.txt", "x")
    assert checked(path)["problems"][0]["code"] == "zip"  # the time of day is in it
    assert first(checked(path, b""))[:2] == ("malformed", "not-a-bundle")
    assert first(checked(path, b"PK\3\4"))[:2] == ("invalid", "zip")
    tmp_path.joinpath("empty").mkdir()
    assert first(checked(tmp_path / "empty"))[:2] == ("malformed", "not-a-bundle")


# --- proof files and consistency ----------------------------------------------------------


def test_a_proof_file_with_body_and_personal_data(tmp_path: Path) -> None:
    path, body, person = tmp_path / "e.tlog-proof", tmp_path / "body", tmp_path / "pii"
    body.write_bytes(jcs(LOG.events[5].body))
    person.write_bytes(LOG.person(0))
    found = checked(path, LOG.proof(5), "--body", str(body), command="proof")
    assert (found["verdict"], found["event"]["index"], found["remarks"]) == ("valid", 5, [])
    assert checked(path, LOG.proof(0), "--pii", str(person), command="proof")["personal_data"] == {"disclosed": 1}
    assert first(checked(path, LOG.proof(15), "--pii", str(person), command="proof"))[1] == "pii"
    assert checked(path, LOG.proof(5), command="proof")["remarks"][0]["code"] == "body-not-given"
    assert checked(path, LOG.proof(5), command="proof", keys="")["verdict"] == "incomplete"
    body.write_bytes(jcs(LOG.events[5].body) + b"\n")
    found = checked(path, LOG.proof(5), "--body", str(body), command="proof")
    assert found["verdict"] == "invalid"
    assert "line feed" in found["problems"][0]["detail"]
    assert first(checked(path, "what is this", command="proof"))[:2] == ("malformed", "not-a-proof")
    assert first(checked(path, LOG.proof(5).replace("index 5", "index 6"), command="proof"))[1] == "index"


def test_the_proof_files_of_the_rules_are_those_of_the_verifier(tmp_path: Path) -> None:
    from tests.audit.verifier.bundles import path as steps

    text = proof_text(LOG.leaves[5], 5, steps(5, LOG.hashes), LOG.head(cosign=False))
    assert text == LOG.proof(5)
    assert [vkey_parse(line).text for line in LOG.keys().splitlines()] == LOG.keys().splitlines()


def test_every_flipped_bit_of_a_proof_file_is_noticed(tmp_path: Path) -> None:
    data, supply = LOG.proof(5).encode(), random.Random(3)
    for _ in range(400):
        bit = supply.randrange(8 * len(data))
        mutant = bytearray(data)
        mutant[bit // 8] ^= 1 << bit % 8
        assert checked(tmp_path / "p", bytes(mutant), command="proof")["verdict"] in ("invalid", "malformed")


def test_consistency_of_notes_proofs_and_bundles(tmp_path: Path) -> None:
    old, new, bundle, proof = (tmp_path / n for n in ("old", "new", "bundle.zip", "proof"))
    old.write_text(LOG.head(17))
    proof.write_text("".join(f"{b64(h)}\n" for h in growth(17, LOG.hashes)))
    bundle.write_bytes(zipped(build(LOG, previous=17)))
    new.write_text(LOG.head())

    def grew(a: Path, b: Path, *options: str) -> dict[str, Any]:
        return checked(a, None, str(b), *options, command="consistency")

    assert grew(old, new, "--proof", str(proof))["verdict"] == "valid"
    assert grew(old, bundle)["verdict"] == "valid"
    assert grew(new, bundle)["verdict"] == "valid"
    assert grew(bundle, bundle)["verdict"] == "valid"
    assert (grew(old, new)["verdict"], grew(old, new)["reasons"][0]["code"]) == ("incomplete", "proof-not-given")
    (tmp_path / "event").write_text(LOG.proof(3))
    assert grew(old, tmp_path / "event", "--proof", str(proof))["verdict"] == "valid"
    assert first(grew(new, old))[:2] == ("invalid", "shrunk")
    proof.write_text("".join(f"{b64(h)}\n" for h in growth(18, LOG.hashes)))
    assert first(grew(old, new, "--proof", str(proof)))[:2] == ("invalid", "consistency")
    rewritten = Log([Event(body={"other": 1}), *LOG.events[1:]])
    new.write_text(rewritten.head(17))
    assert first(grew(old, new))[:2] == ("invalid", "fork")
    new.write_text("nothing")
    assert first(grew(old, new))[:2] == ("malformed", "not-a-checkpoint")
    other = sample(40, seed=9, origin="kvconsole.example/log/other/1")
    new.write_text(other.head())
    found = checked(old, None, str(new), command="consistency", keys=LOG.keys() + other.keys())
    assert first(found)[:2] == ("invalid", "another-log")


def test_a_signature_that_stands_twice_or_is_bad_refuses_the_checkpoint(tmp_path: Path) -> None:
    head = LOG.head(cosign=False)
    for text in (head + head.splitlines(keepends=True)[-1], head.replace(f"— {LOG.origin} ", "— ")):
        path = tmp_path / "note"
        path.write_text(text)
        found = checked(path, None, str(path), command="consistency")
        assert found["verdict"] == "invalid"
    stranger = Signer("else.example", 77)
    text = head + stranger.line(head.rpartition("\n\n")[0] + "\n")
    path.write_text(text)
    assert checked(path, None, str(path), command="consistency")["verdict"] == "valid"


def test_what_others_wrote_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    path.write_bytes(raw_zip([("a\x1b[2Jb", b"x")]))
    report = kvc_verify.run(kvc_verify.arguments().parse_args(["bundle", str(path)]))
    assert "\x1b" not in report.as_text()
    assert kvc_verify.main(["bundle"]) == 2
