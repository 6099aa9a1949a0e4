"""The public check: who may, what is refused, and that nothing is kept."""

import base64
import io
import os
import re
from pathlib import Path

import psycopg
import pytest

from audit import disclosure, selectors
from frontend.audit import checking
from tests.conftest import TEST_DATABASE

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
    checking.check(checking.Brought(proof=b"x", body=b"y", earlier=b"z", keys="nothing"))
    assert len(os.listdir("/proc/self/fd")) == before


def test_paths_of_the_call_are_not_told():
    found = checking.check(checking.Brought(proof=b"PK\x03\x04", body=b"y", earlier=b"z", keys="log+00000000+AQ=="))
    assert "/proc/" not in repr(found.facts)


# --- against a log ----------------------------------------------------------------------------------------------------


def verdict(page):
    return re.search(r'data-verdict="(\w+)"', page.content.decode())[1]


@pytest.fixture
def kept(person, sealed, client):
    """What an auditor kept of a log that has grown since: (auditor, checkpoint, proof, event)."""
    who = person("auditor")
    sealed()
    event = selectors.selected(selectors.EventFilter(action="user.created")).get()
    checkpoint = who.get("/audit/checkpoint").content
    proof = who.get(f"/audit/events/{event.event_id}/proof").content
    who.get("/audit")
    sealed()
    return who, checkpoint, proof, event


def test_a_kept_checkpoint_is_compared_with_the_log_as_it_is_now(kept, client):
    who, checkpoint, proof, _ = kept
    size = checkpoint.decode().split("\n")[1]
    page = client.post("/verify", {"earlier": checkpoint.decode()})
    assert verdict(page) == "valid"
    now = who.get("/audit/checkpoint").content.decode().split("\n")[1]
    assert f"begins with the {size} that you kept" in page.content.decode()
    assert f'<td class="n">{now}</td>' in page.content.decode()
    assert verdict(client.post("/verify", {"earlier_file": io.BytesIO(proof)})) == "valid", "a proof has a checkpoint"
    assert verdict(client.post("/verify", {"proof": "x", "earlier": checkpoint.decode()})) == "malformed"


def test_two_kept_things_are_compared_with_each_other(kept, client):
    who, checkpoint, old, event = kept
    new = who.get(f"/audit/events/{event.event_id}/proof").content
    page = client.post("/verify", {"proof_file": io.BytesIO(new), "earlier": checkpoint.decode()})
    assert verdict(page) == "valid"
    assert "Its log begins with" in page.content.decode()
    later = who.get("/audit/checkpoint").content.decode()
    back = client.post("/verify", {"proof_file": io.BytesIO(old), "earlier": later})
    assert verdict(back) == "invalid"
    assert "The log has become shorter." in back.content.decode()


def test_what_the_log_did_not_sign_is_told_nothing_of_it(kept, client):
    who, checkpoint, _, _ = kept
    now = who.get("/audit/checkpoint").content.decode().split("\n")[1]
    origin, size, root, *rest = checkpoint.decode().split("\n")
    spoiled = "\n".join([origin, str(int(size) + 1), root, *rest])
    strange = "\n".join(["another.example/log", size, root, *rest])
    for one in (spoiled, strange):
        page = client.post("/verify", {"earlier": one})
        assert verdict(page) != "valid"
        assert f'<td class="n">{now}</td>' not in page.content.decode()


def test_heads_that_this_console_does_not_have_are_not_vouched_for(kept, client, postgres):
    """The signed head is there, the leaves under it are not those any more."""
    who, checkpoint, _, event = kept
    new = who.get(f"/audit/events/{event.event_id}/proof").content
    size = int(checkpoint.decode().split("\n")[1])
    with psycopg.connect(postgres.superuser_dsn(TEST_DATABASE), autocommit=True) as c:
        c.execute("ALTER TABLE audit_leaf DISABLE TRIGGER immutable")
        c.execute("UPDATE audit_leaf SET hash = sha256(hash) WHERE idx = %s", [size - 1])
        c.execute("ALTER TABLE audit_leaf ENABLE ALWAYS TRIGGER immutable")
    page = client.post("/verify", {"proof_file": io.BytesIO(new), "earlier": checkpoint.decode()})
    assert verdict(page) == "incomplete"
    assert "does not have the newer head" in page.content.decode()
    alone = client.post("/verify", {"earlier": checkpoint.decode()})
    assert verdict(alone) == "incomplete"


def test_opened_personal_data_is_checked_with_its_proof(kept, client):
    _, _, proof, event = kept
    (sealed,) = disclosure.sealed_of({event.id: event.time_us}).values()
    opened = disclosure.unsealed(sealed, event.event_id)
    said = f'{{"data":{opened.text.decode()},"salt":"{base64.b64encode(opened.salt).decode()}"}}'
    page = client.post("/verify", {"proof": proof.decode(), "pii": said})
    assert verdict(page) == "valid"
    assert "Personal data: 1 opened and as it was sealed" in page.content.decode()
    wrong = client.post("/verify", {"proof": proof.decode(), "pii": said.replace("mira", "mara")})
    assert verdict(wrong) == "invalid"
    assert "The personal data is not what the leaf commits to." in wrong.content.decode()


def test_body_and_personal_data_beside_an_export_are_said_not_to_be_used(client):
    page = client.post("/verify", {"proof_file": io.BytesIO(b"PK\x03\x04"), "pii": "{}"})
    assert "an export has its own" in page.content.decode()
