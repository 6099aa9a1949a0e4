"""The way from the code on a printed certificate to what anybody is told: of a real operation, with a real log."""

import json
import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from audit.certifying import certificate_of_operation
from catalog.operation_reads import operation_row
from catalog.operation_views import operation_view
from catalog.operations.certificate import certificate_text
from frontend.operations import sheets
from tests.catalog.operations.conftest import sealed, world
from tests.catalog.operations.test_certificate import held
from tests.catalog.operations.world import asked
from tests.frontend.operations.test_views import text

__all__ = ["sealed", "world"]
pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
ISSUED, NOT_ISSUED = "This console issued a certificate with this", "This console issued no certificate with this"


@pytest.fixture
def ended(world, settings):
    """A deletion that ran to its end where certificates are sealed."""
    settings.PRODUCTION = True
    held(world)
    operation = asked(world)
    world.acknowledged()
    assert world.go_on(operation, rounds=8) == "completed"
    return certificate_of_operation(operation.id)


def brought(file: bytes):
    """What the public page answers to the file, logged in as nobody."""
    return Client(headers={"accept": "text/html"}).post("/verify", {"proof": file.decode()})


def test_a_sealed_certificate_is_valid_and_no_changed_one_is(ended, person):
    whole = certificate_text(ended)
    page = brought(whole)
    assert (page.status_code, page.context["found"].verdict) == (200, "valid")
    assert "It bears the seal." in text(page)
    said = json.loads(whole)
    assert said["body"]["seal"]
    raw = whole.decode()
    said["body"]["copies"][0]["class"] += 1
    changed = {
        "a class is raised": json.dumps(said, separators=(",", ":"), sort_keys=True) + "\n",
        "no receipts": re.sub(r'"receipts":\[\{"body".*?\}\],"receipts_root"', '"receipts":[],"receipts_root"', raw),
        "another plan": raw.replace(said["body"]["plan_hash"], "0" * 64),
        "another operation": raw.replace(str(ended.operation), "0190aaaa-0000-7000-8000-00000000dead"),
        "half of it": raw[: len(raw) // 2],
    }
    for how, file in changed.items():
        assert file != raw, how
        found = brought(file.encode()).context["found"]
        assert found.verdict in ("invalid", "malformed"), how
    page = text(brought(changed["another operation"].encode()))
    assert page.count("what was signed") == 2, "the verdict and what it is of, each once"
    assert "in the field body" in page

    shown = operation_view(operation_row(ended.operation), now=datetime.now(UTC))["progress"]["cells"]
    assert {c["owner"]: c["class"] for c in shown} == {
        c["owner"]: c["class"] for c in json.loads(whole)["body"]["copies"]
    }

    sheet = person("auditor").get(f"/certificates/{ended.id}")
    assert "It bears the seal" in text(sheet)
    address = urlsplit(sheet.context["verify"])
    assert sheet.context["qr"] == sheets.qr(sheet.context["verify"]), "the code says this address"
    assert (address.path, parse_qs(address.query)) == ("/verify", {"certificate": [ended.body_hash.hex()]})
    anybody = Client(headers={"accept": "text/html"})
    assert ISSUED in text(anybody.get(f"{address.path}?{address.query}"))
    assert NOT_ISSUED in text(anybody.get(f"{address.path}?certificate={'0' * 64}"))
