"""Speaking to a node: where the console dials, what it takes for an answer."""

# ruff: noqa: F811

import time
import uuid

import pytest

from audit import signing
from audit.signing import NotAnswered
from catalog import agents
from catalog.agents import Answered, check_address
from kvcore.messages import PROTOCOL, Command, fingerprint
from tests.catalog.fleet_fixtures import enrolled, far, running_signer, signer  # noqa: F401

pytestmark = pytest.mark.django_db


def ping(node, kind="ping"):
    now = time.time()
    return Command(v=PROTOCOL, step=str(uuid.uuid4()), kind=kind, node=str(node.id), order_hash="00" * 32,
                   issued_at=now, expires_at=now + 60)  # fmt: skip


# --- addresses ------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9000",
        "http://127.0.0.1:9000/",
        "http://localhost:9000",
        "https://127.0.0.1",
        "http://[::ffff:127.0.0.1]:80",
    ],
)
def test_loopback_may_be_plain(url):
    assert not isinstance(check_address(url), NotAnswered)


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "ftp://127.0.0.1", "http://", "http://u:p@127.0.0.1", "http://127.0.0.1/path", "http://127.0.0.1?x",
        "http://127.0.0.1#x", "http://127.0.0.1:99999", "http://10.0.0.1", "http://169.254.169.254", "http://0.0.0.0:80",
        "http://[::1]:80", "https://192.0.2.1", "file:///etc/passwd", "http://2130706433.example.invalid",
        "http://..:80", f"http://{'a' * 64}.invalid", "http://１２７.0.0.1:80", "http://ⓛocalhost:80",
        "http://127.0.0.1:80\n", "http://a\0b",
    ],
)  # fmt: skip
def test_nothing_else_is_dialled(url):
    assert isinstance(check_address(url), NotAnswered)


def test_off_loopback_only_with_tls_and_inside_the_networks(settings):
    settings.AGENT_NETWORKS = ["10.0.0.0/8"]
    assert check_address("http://10.0.0.1").detail == "plain HTTP off loopback"
    assert check_address("https://10.0.0.1:8443").url == "https://10.0.0.1:8443"
    assert check_address("https://10.0.0.1:8443").host == "10.0.0.1"
    assert check_address("https://11.0.0.1").detail == "outside KVC_AGENT_NETWORKS"


# --- calls ------------------------------------------------------------------------


def test_a_node_answers_with_a_receipt_it_signed(enrolled):
    node, side = enrolled()
    answer = agents.call(node, ping(node))
    assert isinstance(answer, Answered)
    assert answer.receipt.outcome == "done"
    assert answer.hash == side.prev
    assert side.seen[0][0] == "/v1/commands"


@pytest.mark.parametrize(
    ("mood", "code"),
    [
        ("redirect", "agent-refused"),
        ("refuses", "command-signature"),
        ("huge", "agent-answer-too-large"),
        ("slow", "agent-too-slow"),
        ("nonsense", "receipt-malformed"),
        ("nested", "receipt-malformed"),
        ("nested-refusal", "agent-refused"),
        ("other-key", "receipt-signature"),
        ("other-step", "receipt-not-for-this-command"),
        ("other-node", "receipt-not-for-this-command"),
        ("other-kind", "receipt-not-for-this-command"),
    ],
)
def test_anything_else_is_no_answer(enrolled, mood, code):
    node, side = enrolled(mood)
    began = time.monotonic()
    answer = agents.call(node, ping(node))
    assert isinstance(answer, NotAnswered)
    assert answer.code == code
    assert time.monotonic() - began < 8
    assert len(side.seen) == 1  # no redirect was followed


def test_a_node_that_is_away_is_unreachable_and_may_be_asked_again(enrolled):
    node, side = enrolled()
    side.close()
    side.close = lambda: None
    answer = agents.call(node, ping(node))
    assert (answer.code, answer.final) == ("agent-unreachable", False)


def test_what_was_never_enrolled_is_never_dialled(enrolled):
    node, side = enrolled()
    node.public_key = None
    assert agents.call(node, ping(node)).code == "node-not-enrolled"
    node.public_key, node.agent_url = side.public, "http://10.0.0.1"
    assert agents.call(node, ping(node)).final
    assert side.seen == []


def test_the_signer_signs_nothing_that_destroys_without_an_order(enrolled):
    node, side = enrolled()
    for kind in ("purge", "erase", "drop", "clear"):
        answer = agents.call(node, ping(node, kind))
        assert (answer.code, answer.final) == ("order-missing", True), kind
    for kind in ("", "Inventory"):
        assert agents.call(node, ping(node, kind)).code == "kind-not-allowed"
    assert side.seen == []


def test_without_signer_nothing_is_sent_but_the_key_is_known(enrolled, settings, signer):
    node, side = enrolled()
    key = signing.command_key()
    settings.SIGNER_URL = "http://127.0.0.1:1"
    assert agents.call(node, ping(node)).code == "signer-unavailable"
    assert signing.command_key() == key
    settings.COMMAND_KEY_FILE = "/nonexistent"
    assert signing.command_key() is None
    assert len(fingerprint(key)) == 32
    assert side.seen == []


def test_a_wrong_token_gets_nothing_from_the_signer(enrolled, settings):
    node, _ = enrolled()
    settings.SIGNER_TOKEN = "x" * 40
    assert agents.call(node, ping(node)).code == "not-authenticated"
