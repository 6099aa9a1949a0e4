"""What an agent answers over HTTP, and what it refuses."""

import ast
import asyncio
import datetime
import secrets
from pathlib import Path

import httpx
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from kvcore import messages, tickets
from kvcore.refusals import AGENT
from kvcore.residency import REASONS
from nodeagent import erasing, executor, gathering, orders, probe, server
from nodeagent.engines import reference
from nodeagent.server import Bodies, Problem
from nodeagent.serving import computing, receiving, road, trips
from tests.nodeagent.conftest import eventually
from tests.nodeagent.test_agent import drive, results

CLONE = Path(__file__).resolve().parents[2]


def test_refusals(far, joined, running):
    ns, other = far.namespace(), far.namespace()
    loop = running(joined())
    results(drive(loop, far, ns, 1))
    assert drive(loop, far, ns, 1, ticket=far.ticket(ns, seconds=-5)).json()["code"] == "ticket-expired"
    assert drive(loop, far, ns, 1, ticket=far.ticket(ns, node="another")).json()["code"] == "ticket-invalid"
    assert drive(loop, far, ns, 1, ticket=far.ticket(other)).json()["code"] == "ticket-scope"
    unknown = secrets.token_bytes(32)
    assert drive(loop, far, unknown, 1).json()["code"] == "lease-over"
    assert loop.http.post("/v1/requests", content=b"\xff").json()["code"] == "request-malformed"
    nested = b"\x81\xa1x" + b"\x91" * 200_000 + b"\x90"
    assert loop.http.post("/v1/requests", content=nested).json()["code"] == "request-malformed"
    nested = b'{"body":{"x":' + b"[" * 200_000 + b"]" * 200_000 + b'},"signature":"","key":""}'
    assert loop.http.post("/v1/commands", content=nested).json()["code"] == "command-malformed"
    assert loop.http.get("/v1/inventory").status_code == 401
    assert loop.http.get("/nothing").status_code == 404
    assert loop.http.get("/v1/commands").status_code == 405
    assert loop.http.post("/v1/commands", content=b"{}").json()["code"] == "command-malformed"
    forged = far.command("ping", step="s", node="another")
    assert (
        loop.http.post("/v1/commands", content=msgspec.json.encode(forged)).json()["code"]
        == "command-not-for-this-node"
    )
    eventually(lambda: any(b.refused for b in far.beats))


def test_bodies_have_a_limit(far, joined, running):
    ns = far.namespace()
    loop = running(joined())
    assert loop.http.post("/v1/requests", content=bytes(9 * 2**20)).json()["code"] == "request-too-large"
    many = {
        "ticket": far.ticket(ns),
        "requests": [{"request": "r", "ns": ns, "gen": 1, "hash_ids": [], "input_length": 1}] * 1025,
    }
    assert loop.http.post("/v1/requests", content=msgspec.msgpack.encode(many)).json()["code"] == "request-too-large"


def test_without_ticket_keys_nothing_is_taken(far, joined, running):
    far.status = 503
    loop = running(joined())
    assert drive(loop, far, far.namespace(), 1).json()["code"] == "lease-over"


def test_a_body_that_ends_early():
    async def gone():
        return {"type": "http.disconnect"}

    with pytest.raises(Problem) as problem:
        asyncio.run(Bodies().read(gone))
    assert problem.value.code == "request-malformed"


def test_bodies_that_grow_together_are_bounded_together_and_in_time(monkeypatch):
    monkeypatch.setattr(server, "READING_MAX", 1000)
    monkeypatch.setattr(server, "READ_SECONDS", 0.2)
    bodies = Bodies()

    def sender(size):
        parts = iter([{"type": "http.request", "body": bytes(size), "more_body": True}])

        async def receive():
            if (part := next(parts, None)) is not None:
                return part
            await asyncio.Event().wait()

        return receive

    async def all_of_them():
        return await asyncio.gather(*(bodies.read(sender(400)) for _ in range(3)), return_exceptions=True)

    outcomes = asyncio.run(all_of_them())
    assert sorted(p.code for p in outcomes) == ["queue-full", "request-malformed", "request-malformed"]
    assert bodies.reading == 0


def certificate(path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    import ipaddress

    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (path / "tls.crt").write_bytes(made.public_bytes(Encoding.PEM))
    (path / "tls.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(path / "tls.crt"), str(path / "tls.key")


def test_off_loopback_it_speaks_https(far, joined, running, tmp_path):
    import ssl

    cert, key = certificate(tmp_path)
    home = joined(tls_cert=cert, tls_key=key)
    loop = running(home, verify=ssl.create_default_context(cafile=cert))
    assert loop.url.startswith("https://")
    assert loop.status()["node"] == far.node
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://{home.load().listen}/healthz", trust_env=False)


def literals_of(module, pick):
    """Texts among the arguments that `pick` chooses of each call or return in the module."""
    found = set()
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        for value in pick(node):
            found |= {x.value for x in ast.walk(value) if isinstance(x, ast.Constant) and isinstance(x.value, str)}
    return found


def named(node):
    return getattr(getattr(node, "func", None), "id", "")


def test_every_code_that_agents_answer_is_known_and_has_a_page():
    said = literals_of(server, lambda n: n.args[1:2] if named(n) == "Problem" else ())
    for module in (road, trips, receiving, computing):
        said |= literals_of(module, lambda n: n.args[:1] if named(n) == "Refused" else ())
    said |= literals_of(reference, lambda n: [k.value for k in getattr(n, "keywords", ()) if k.arg == "code"])
    outcomes = literals_of(executor, lambda n: [n.value] if isinstance(n, ast.Return | ast.Assign) and n.value else ())
    outcomes |= literals_of(messages, lambda n: [n.value] if isinstance(n, ast.Return) and n.value else ())
    outcomes |= literals_of(tickets, lambda n: [n.value] if isinstance(n, ast.Return) and n.value else ())
    outcomes |= literals_of(probe, lambda n: n.args[1:2] if named(n) == "Done" else ())
    outcomes |= literals_of(orders, lambda n: n.args[1:2] if named(n) == "Done" else ())
    outcomes |= literals_of(erasing, lambda n: [n.value] if isinstance(n, ast.Assign) else ())
    outcomes |= literals_of(executor, lambda n: n.args[1:2] if named(n) == "Done" else ())
    outcomes |= literals_of(gathering, lambda n: [n.value] if isinstance(n, ast.Return) and n.value else ())
    said |= {x for x in outcomes if "-" in x} | REASONS
    assert {"lease-over", "ticket-invalid", "command-expired", "kind-unknown", "agent-error", "queue-full"} <= said
    assert said == set(AGENT)
    for code in AGENT:
        text = (CLONE / "docs" / "problems" / f"{code}.md").read_text()
        assert text.startswith(f"# {code}\n")
        assert all(part in text for part in ("**What was not done.**", "**Is a retry safe?**", "**What to do.**"))


def test_a_refusal_says_what_its_code_means(far, joined, running):
    problem = running(joined()).http.get("/nothing").json()
    assert (problem["type"], problem["detail"]) == ("/docs/problems/not-found", AGENT["not-found"])
