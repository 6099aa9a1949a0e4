"""Receipts and certificates as they are shown, printed and saved."""

import re

import pytest

from frontend.operations.sheets import layers
from kvcore.erasure_words import too_strong
from tests.frontend.operations.test_views import text

pytestmark = pytest.mark.django_db


def test_a_receipt_is_shown_as_it_was_signed(made, person):
    page = text(person("auditor").get(f"/receipts/{made['receipt']}"))
    assert "It is the node’s own word." in page
    assert "8 of 8 places held nothing of it" in page
    assert "&quot;prev&quot;" in page


def test_the_sheet_says_its_class_in_both_languages_and_bears_no_seal(made, person):
    for name, lead in (("completed", "Completed: class E2, evicted"),
                       ("completed_with_exceptions", "Completed with exceptions: class E1, unreachable")):  # fmt: skip
        page = person("viewer", name=f"v-{name}").get(f"/certificates/{made[f'certificate-{name}']}")
        said = text(page)
        assert lead in said
        assert re.search(r"<tfoot>.*zh-Hans.*zh-Hans.*zh-Hans.*</tfoot>", page.content.decode(), re.S)
        assert 'href="/verify/kvc_verify.py"' in page.content.decode()
        assert 'href="/verify/keys.txt"' in page.content.decode()
        assert "无印章：签发于开发环境。" in said
        assert 'data-seal="no"' in page.content.decode()
        cls = page.context["cls"]
        sheet = said.split("Deletion&nbsp;certificate")[-1]
        for word in ("sanitised", "crypto-erased", "destroyed", "shredded"):
            assert word not in sheet
        assert not too_strong(re.sub(r"E\d", "", sheet), cls) or name == "completed_with_exceptions"
        assert ("Exceptions in plain words" in said) == (name == "completed_with_exceptions")
    assert "A node did not answer." in said


def test_the_code_of_the_sheet_leads_to_whether_it_was_issued(made, person, client):
    page = person("viewer").get(f"/certificates/{made['certificate-completed']}")
    where = page.context["verify"]
    assert where.startswith("http")
    path = where[where.index("/verify") :]
    assert "issued a certificate" in text(client.get(path))
    assert "issued no certificate" in text(client.get(path[:-4] + "0000"))
    assert client.get("/verify?certificate=nonsense").context["issued"] is None
    code = page.context["qr"]
    assert code["side"] >= 33
    assert len(code["path"]) > 1_000


def test_the_code_can_be_read_again():
    """What is dark in the picture is what the library says of the text."""
    import qrcode

    from frontend.operations.sheets import qr

    made = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M, border=2)
    made.add_data("https://demo.invalid/verify?certificate=" + "ab" * 32)
    made.make(fit=True)
    dark = {(x, y) for y, row in enumerate(made.get_matrix()) for x, on in enumerate(row) if on}
    found = qr("https://demo.invalid/verify?certificate=" + "ab" * 32)
    assert {tuple(map(int, at)) for at in re.findall(r"M(\d+) (\d+)", found["path"])} == dark


def test_the_file_is_that_of_the_api(made, person):
    who = person("viewer")
    page = who.get(f"/certificates/{made['certificate-completed']}/file")
    assert page["Content-Disposition"].endswith('.json"')
    api = who.get(f"/api/v1/certificates/{made['certificate-completed']}.json", headers={"accept": "*/*"})
    assert b"".join(page) == b"".join(api)


def test_a_tier_has_the_lowest_class_of_its_copies_and_never_a_stronger_word():
    def copy(cls, technique="memset", readback="readback"):
        return {"tier": "dram", "class": cls, "blocks": 1, "bytes": 2, "receipts": [{"kind": "erase"}],
                "evidence": {"technique": technique, "readback": readback}}  # fmt: skip

    (both,) = layers([copy(3), copy(2)])
    assert (both.cls, both.copies, both.blocks) == (2, 2, 2)
    assert [en for en, _ in both.methods] == ["overwritten, read back", "removed by the store, read back"]
    (low,) = layers([copy(2)])
    assert "overwritten" not in low.methods[0][0]
    assert "覆写" not in low.methods[0][1]
