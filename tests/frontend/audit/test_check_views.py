"""The public check: who may, what is refused, and that nothing is kept."""

import os
from pathlib import Path

import pytest

from frontend.audit import checking

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


@pytest.mark.parametrize("proof", ["x", "PK\x03\x04 nothing", "c2sp.org/tlog-proof@v1\nextra AAAA\nindex 0\n\nnote\n"])
def test_what_is_no_proof_is_never_valid(client, proof):
    page = client.post("/verify", {"proof": proof})
    assert page.status_code == 200
    assert 'data-verdict="valid"' not in page.content.decode()
    assert "data-verdict" in page.content.decode()


def test_nothing_at_all_is_asked_for_again(client):
    page = client.post("/verify", {})
    assert page.status_code == 400
    assert "data-verdict" not in page.content.decode()


def test_anybody_may_take_the_verifier(client):
    taken = client.get("/verify/kvc_verify.py")
    assert taken.content == Path(checking.kvc_verify.__file__).read_bytes()
    assert client.get("/verify").status_code == 200


def test_keys_come_from_the_signer_or_not_at_all(client, sealed):
    assert client.get("/verify/keys.txt").content.decode().count("\n") == 2


def test_without_a_signer_there_are_no_keys(client, settings):
    settings.SIGNER_URL = "http://127.0.0.1:9"
    assert client.get("/verify/keys.txt").status_code == 503


def test_two_checks_at_once_and_no_more(client):
    for _ in range(checking.TOGETHER):
        assert checking._places.acquire(blocking=False)
    try:
        answer = client.post("/verify", {"proof": "x"})
    finally:
        for _ in range(checking.TOGETHER):
            checking._places.release()
    assert answer.status_code == 429


def test_no_file_is_left_open():
    before = len(os.listdir("/proc/self/fd"))
    checking.check(b"x", body=b"y", keys="nothing")
    assert len(os.listdir("/proc/self/fd")) == before


def test_paths_of_the_call_are_not_told():
    found = checking.check(b"PK\x03\x04", body=b"y", keys="log+00000000+AQ==")
    assert "/proc/" not in repr(found.facts)
