"""How the console asks for signatures: a real signer, one that is away, one that says nonsense."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from audit import signing
from audit.keyfiles import verify
from audit.signing import NotAnswered
from kvcore import notes
from kvcore.messages import PROTOCOL, Command, EnrolmentQuestion, Signed, enrolment_bytes
from tests.audit.signer.making import Log
from tests.catalog.fleet_fixtures import running_signer, signer  # noqa: F401

LOG = Log().fill(30)


def command(kind):
    return Command(v=PROTOCOL, step="s", kind=kind, node="n", order_hash="00", issued_at=0.0, expires_at=1.0)


def grown(old, new):
    asked = LOG.head(old, new)
    return signing.checkpoint(
        old_size=old, new_size=new, new_root=LOG.root(new), proof=[bytes.fromhex(p) for p in asked["proof"]]
    )


def test_heads_keys_and_notes_come_back(signer, settings):  # noqa: F811
    settings.SIGNER_LOG_TOKEN = signer.log_token
    start = signing.public_keys().size
    note = grown(start, start + 4)
    keys = signing.public_keys()
    assert notes.note_open(note, [notes.vkey_parse(keys.log)], verify).by == [keys.origin]
    assert (keys.size, keys.root) == (start + 4, LOG.root(start + 4).hex())
    assert grown(0, start + 5) == NotAnswered("stale-size", size=start + 4, root=LOG.root(start + 4))
    assert grown(start + 1, start + 1).final
    assert grown(start + 1, start + 1).code == "log-shrunk"
    manifest = signing.sign_export(bytes(32))
    assert notes.note_open(manifest, [notes.vkey_parse(keys.export)], verify).text.endswith(f"\n{'00' * 32}\n")


def test_refusals_have_their_code_and_whether_to_ask_again(signer, settings):  # noqa: F811
    assert signing.sign_command(command("ping")) == NotAnswered("command-expired", final=True)
    evidence = signing.evidence(leaf=LOG.leaves[0], index=0, proof=[], body=b"{}")
    stale = signing.sign_command(
        Command(v=PROTOCOL, step="s", kind="purge", node="n", order_hash="00", issued_at=2e9, expires_at=2e9 + 60),
        evidence, size=10**9,
    )  # fmt: skip
    assert stale.code == "command-expired"
    assert grown(0, 1) == NotAnswered("signer-unavailable", "this process has no token for that")
    settings.SIGNER_LOG_TOKEN = signer.token
    assert grown(0, 1) == NotAnswered("token-of-another-use", final=True)
    settings.SIGNER_TOKEN = "x" * 40
    assert signing.sign_export(bytes(32)) == NotAnswered("not-authenticated")


def test_several_commands_are_signed_in_few_questions_and_in_their_order(signer, monkeypatch):  # noqa: F811
    asked, real = [], signing._asked
    monkeypatch.setattr(signing, "_asked", lambda *given: (asked.append(given[1]), real(*given))[1])
    now = time.time()
    several = [
        Command(v=PROTOCOL, step=str(n), kind="ping" if n % 3 else "shred", node="n", order_hash="00",
                issued_at=now, expires_at=now + 60, args={"x": "y" * 100})
        for n in range(600)
    ]  # fmt: skip
    found = list(signing.sign_commands(several))
    assert asked == ["/v1/sign-all"] * 3  # 256 of them at most
    assert [one.body["step"] for one in found if isinstance(one, Signed)] == [str(n) for n in range(600) if n % 3]
    assert found[::3] == [NotAnswered("order-missing", final=True)] * 200
    asked.clear()
    monkeypatch.setattr(signing, "MOST_ASKED", 1000)
    assert len(list(signing.sign_commands(several[:9]))) == 9
    assert len(asked) == 3


def test_a_signer_that_is_away_is_asked_once_for_several(settings):
    settings.SIGNER_URL, tries = "http://127.0.0.1:1", []
    with pytest.MonkeyPatch.context() as patch:
        real = signing._signed
        patch.setattr(signing, "_signed", lambda asked: (tries.append(1), real(asked))[1])
        found = list(signing.sign_commands([command("ping")] * 600))
    assert {(one.code, one.final) for one in found} == {("signer-unavailable", False)}
    assert (len(found), tries) == (600, [1])


def test_the_key_is_known_and_proved(signer):  # noqa: F811
    question = EnrolmentQuestion(console="c", nonce="0a" * 32, public_key="0b" * 32, node="n")
    proof = signing.prove(question)
    assert bytes.fromhex(proof.public_key) == signing.command_key()
    assert verify(signing.command_key(), bytes.fromhex(proof.signature), enrolment_bytes(question))


def test_a_signer_that_is_away_is_an_answer(settings, tmp_path):
    settings.SIGNER_URL, settings.COMMAND_KEY_FILE = "http://127.0.0.1:1", str(tmp_path / "k")
    question = EnrolmentQuestion(console="c", nonce="0a" * 32, public_key="0b" * 32, node="n")
    for answer in (signing.public_keys(), grown(0, 1), signing.sign_command(command("ping")), signing.prove(question),
                   signing.sign_export(bytes(32))):  # fmt: skip
        assert (answer.code, answer.final) == ("signer-unavailable", False)
    assert signing.command_key() is None
    (tmp_path / "k.pub").write_text("ab" * 32 + "\n")
    assert signing.command_key() == bytes.fromhex("ab" * 32)
    settings.SIGNER_URL = "not an address"
    assert signing.public_keys().code == "signer-unavailable"


@pytest.fixture
def nonsense(settings):
    """`nonsense(status, body)`: what the address of signer and witness answers."""
    said = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(said["status"])
            self.send_header("Content-Length", str(len(said["body"])))
            self.end_headers()
            self.wfile.write(said["body"])

        do_GET = do_POST

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    settings.SIGNER_URL = settings.WITNESS_URL = f"http://127.0.0.1:{server.server_port}"
    settings.SIGNER_TOKEN = settings.SIGNER_LOG_TOKEN = "t" * 40
    settings.WITNESS_VKEY = notes.VerifierKey("w", notes.COSIGNATURE, b"k" * 32).text

    def say(status, body):
        said.update(status=status, body=body)

    yield say
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [(200, b"", "signer-unavailable"), (200, b"[]", "signer-unavailable"), (200, b"\xff", "signer-unavailable"),
     (200, b"[" * 9000, "signer-unavailable"), (500, b"", "signer-refused"), (302, b"{}", "signer-refused"),
     (403, b'{"code":"<b>"}', "signer-refused"), (409, b'{"code":"log-fork","size":"x"}', "signer-refused"),
     (409, b'{"code":"stale-size","size":3,"root":"zz"}', "signer-refused"),
     (403, b'{"code":"order-missing"}', "order-missing")],
)  # fmt: skip
def test_nonsense_is_no_signature(nonsense, status, body, code):
    nonsense(status, body)
    for answer in (signing.public_keys(), grown(0, 1), signing.sign_export(bytes(32))):
        assert isinstance(answer, NotAnswered)
        assert answer.code == code


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [(409, b"7\n", NotAnswered("stale-size", size=7)),
     (409, b"another tree", NotAnswered("log-fork", "HTTP 409", final=True)),
     (422, b"", NotAnswered("log-fork", "HTTP 422", final=True)),
     (404, b"", NotAnswered("log-unknown", "HTTP 404", final=True)),
     (503, b"", NotAnswered("witness-unavailable", "HTTP 503")),
     (200, b"\xff", NotAnswered("witness-unavailable", "UnicodeDecodeError")),
     (200, "— w AAAAAAAAAAA=\n".encode(), NotAnswered("witness-signature", "note-unsigned", final=True)),
     (200, b"", NotAnswered("witness-signature", "note-unsigned", final=True))],
)  # fmt: skip
def test_nonsense_is_no_cosignature(nonsense, status, body, answer):
    nonsense(status, body)
    note = "o\n1\n" + "A" * 43 + "=\n\n— o " + "A" * 92 + "\n"
    got = signing.cosign(old_size=0, proof=[], note=note)
    assert got == answer


def test_without_a_witness_there_is_no_line(settings):
    settings.WITNESS_URL = ""
    assert signing.cosign(old_size=0, proof=[], note="") == NotAnswered("no-witness", final=True)


@pytest.mark.parametrize(
    ("signer_url", "witness_url", "doubts"),
    [("http://127.0.0.1:1", "", ["no-witness", "signer-on-this-host"]), ("https://192.0.2.7", "", ["no-witness"]),
     ("https://192.0.2.7", "https://192.0.2.8", []), ("http://[::1]:1", "https://192.0.2.8", ["signer-on-this-host"]),
     ("https://192.0.2.7", "http://localhost:2", ["witness-on-this-host"]), ("nonsense", "https://192.0.2.8", [])],
)  # fmt: skip
def test_what_is_to_be_doubted_is_said(settings, signer_url, witness_url, doubts):
    settings.SIGNER_URL, settings.WITNESS_URL = signer_url, witness_url
    assert signing.doubts() == doubts
    json.dumps(doubts)
