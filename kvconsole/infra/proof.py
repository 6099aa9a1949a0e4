"""Decides where a page leads somebody who has to do something first: a fresh proof, an own password or factor."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils.http import url_has_allowed_host_and_scheme, urlencode

PROOF = "step-up-required"
DUTIES = {PROOF: "", "own-password-needed": "/account/password", "second-factor-needed": "/account"}
"""Code of a refusal → the page where what is missing can be done."""


def to_duty(request: HttpRequest, code: str) -> HttpResponseBase:
    """The page where the person does what is asked of them first; only a proof comes back to where it was needed."""
    return to_proof(request) if code == PROOF else _leading(request, DUTIES[code])


def to_proof(request: HttpRequest) -> HttpResponseBase:
    """The page that asks, and comes back to the page that needs the proof; a form is not sent again by itself."""
    back = request.get_full_path() if request.method == "GET" else request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure()):
        back = settings.LOGIN_REDIRECT_URL
    return _leading(request, f"{settings.STEP_UP_URL}?{urlencode({'next': back})}")


def _leading(request: HttpRequest, where: str) -> HttpResponseBase:
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": where})
    return HttpResponseRedirect(where)
