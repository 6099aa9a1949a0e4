"""Answers the pages of pins and migrations: what they show and do is in `placing`."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache

from frontend.operations import placing
from frontend.tenancy.forms import Form
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer

PINS = "frontend/operations/pins.html"


@never_cache
def pins(request: HttpRequest) -> HttpResponse:
    """What stays where it lies; posted, something is pinned."""
    who, now, posted = caller(request), timezone.now(), request.method == "POST"
    form = placing.pin_form(request.POST if posted else request.GET)
    if posted and placing.pin_make(form, who, now):
        return redirect("page-pins")
    return answer(request, PINS, form, placing.pin_list(now, request.GET, who))


@never_cache
def pin_remove(request: HttpRequest, pin_id: UUID) -> HttpResponse:
    """A pin is taken away: what it kept may be evicted and moved again."""
    who, now, one, form = caller(request), timezone.now(), placing.pin_or_404(pin_id), Form()
    placing.pin_take(form, one, who, now)
    if not form.code:
        return redirect("page-pins")
    return answer(request, PINS, form, placing.pin_list(now, request.GET, who))


@never_cache
def migration_new(request: HttpRequest) -> HttpResponse:
    """What goes to another tier or node is said."""
    who, now, posted = caller(request), timezone.now(), request.method == "POST"
    form = placing.move_form(request.POST if posted else request.GET)
    if posted and (made := placing.move_ask(form, who, now)):
        return redirect("page-operation", operation_id=made.id)
    return answer(request, "frontend/operations/migration_new.html", form, placing.move_context())
