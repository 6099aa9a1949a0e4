"""Where a page goes that needs a fresh proof."""

import pytest
from django.test import RequestFactory

from kvconsole.infra.proof import to_proof


@pytest.mark.parametrize(
    ("method", "referer", "back"),
    [
        ("get", "", "%2Fplace%3Fx%3D1"),
        ("post", "", "%2F"),
        ("post", "http://testserver/form", "http%3A%2F%2Ftestserver%2Fform"),
        ("post", "https://evil.example/form", "%2F"),
    ],
)
def test_it_comes_back_to_a_page_of_ours(method, referer, back):
    headers = {"Referer": referer} if referer else {}
    request = getattr(RequestFactory(), method)("/place?x=1", headers=headers)
    assert to_proof(request).url == f"/account/confirm?next={back}"


def test_htmx_is_told_to_go_there():
    answer = to_proof(RequestFactory().get("/place", headers={"HX-Request": "true"}))
    assert answer.headers["HX-Redirect"] == "/account/confirm?next=%2Fplace"
