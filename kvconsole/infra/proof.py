"""Decides how a page asks for a fresh proof of who somebody is, and where it comes back to."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.utils.http import url_has_allowed_host_and_scheme, urlencode


def to_proof(request: HttpRequest) -> HttpResponseBase:
    """The page that asks, and comes back to the page that needs the proof; a form is not sent again by itself."""
    back = request.get_full_path() if request.method == "GET" else request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure()):
        back = settings.LOGIN_REDIRECT_URL
    where = f"{settings.STEP_UP_URL}?{urlencode({'next': back})}"
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": where})
    return HttpResponseRedirect(where)
