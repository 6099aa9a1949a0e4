"""Where a page goes that needs a fresh proof."""

import pytest
from django.test import RequestFactory

from kvconsole.infra.proof import to_duty, to_proof


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


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("step-up-required", "/account/confirm?next=%2Fplace"),
        ("own-password-needed", "/account/password"),
        ("second-factor-needed", "/account"),
    ],
)
def test_each_duty_has_its_page(code, where):
    assert to_duty(RequestFactory().get("/place"), code).url == where
