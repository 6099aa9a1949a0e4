"""Answers the pages of pins, moves and deny windows: what they show and do is in `placing` and `windows`."""

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache

from frontend.operations import placing, windows
from frontend.tenancy.forms import Form
from frontend.tenancy.people_views import caller
from frontend.tenancy.views import answer

PINS, WINDOWS = "frontend/operations/pins.html", "frontend/operations/windows.html"


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


@never_cache
def prefetch_new(request: HttpRequest) -> HttpResponse:
    """A prefix is copied to where it will be needed, if there is time for it."""
    who, now, posted = caller(request), timezone.now(), request.method == "POST"
    form = placing.prefetch_form(request.POST if posted else request.GET, who)
    if posted and (made := placing.prefetch_ask(form, who, now)):
        return redirect("page-operation", operation_id=made.id)
    return answer(request, "frontend/operations/prefetch_new.html", form, placing.prefetch_context())


@never_cache
def drain(request: HttpRequest, name: str) -> HttpResponse:
    """What a drain of the node means; posted, it is under way."""
    who, now, form = caller(request), timezone.now(), placing.drain_form(request.POST)
    node = placing.node_or_404(name, now)
    if request.method == "POST" and (made := placing.drain_ask(form, node, who, now)):
        return redirect("page-operation", operation_id=made.id)
    return answer(request, "frontend/operations/drain.html", form, placing.drain_context(node, who))


@never_cache
def cordon(request: HttpRequest, name: str, cordoned: bool) -> HttpResponse:
    """The node takes nothing new, or takes what comes again."""
    who, now, form = caller(request), timezone.now(), placing.drain_form(request.POST)
    node = placing.node_or_404(name, now)
    if placing.cordon_ask(form, node, cordoned, who, now):
        return redirect("page-node", name=name)
    return answer(request, "frontend/operations/drain.html", form, placing.drain_context(node, who))


# --- deny windows -----------------------------------------------------------------------------------------------------


@never_cache
def window_list(request: HttpRequest) -> HttpResponse:
    """When nothing destructive starts; posted, there is a window more."""
    who, now, posted = caller(request), timezone.now(), request.method == "POST"
    form = windows.window_form(request.POST if posted else request.GET)
    if posted and windows.window_make(form, who, now):
        return redirect("page-windows")
    return answer(request, WINDOWS, form, windows.window_list(now, request.GET, who))


@never_cache
def window_remove(request: HttpRequest, window_id: UUID) -> HttpResponse:
    """A window is taken away: what it held back may start."""
    who, one, form = caller(request), windows.window_or_404(window_id), Form()
    if request.method == "POST":
        windows.window_take(form, one, who)
        if not form.code:
            return redirect("page-windows")
    return answer(request, "frontend/operations/window_remove.html", form, windows.removal(one, timezone.now()))
