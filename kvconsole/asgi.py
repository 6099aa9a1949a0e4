"""The `web` process: Django for HTTP, Channels for `/ws/…`.

An Origin that is not ours is refused before a socket is accepted. A socket path that nobody serves is closed, not
answered with an exception.
"""

import os
import time
from typing import Any

# Requests, sockets and the short way of `tenants.hot` have threads of their own; together they need few connections.
os.environ.setdefault("KVC_DB_POOL", "20")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"kvconsole.settings.{os.environ.get('KVC_ENV', 'dev')}")

import django

django.setup(set_prefix=False)

from asgiref.sync import sync_to_async
from channels.routing import ProtocolTypeRouter, URLRouter  # type: ignore[import-untyped]
from channels.security.websocket import AllowedHostsOriginValidator  # type: ignore[import-untyped]
from channels.sessions import SessionMiddlewareStack  # type: ignore[import-untyped]
from django.urls import re_path

from audit.refusals import found_again, keep_telling
from catalog.consumers import websocket_urlpatterns
from catalog.operations.keeping import keep_reconciling
from catalog.rates import unlimited
from kvconsole.infra import rate, serving
from kvconsole.infra.access import Principal, leave_unasked
from kvconsole.infra.intake import Intake
from kvconsole.plumbing import METHODS, REQUESTS, refuse_bad_start
from routing.replica import replica
from tenants.hot import Hot

pages = serving.Handler()
refuse_bad_start()
keep_telling()
keep_reconciling()
replica()  # loads beside the first requests; its lease says how far it has applied the fences


async def nobody(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Closes a socket whose path nobody serves (HTTP 403 before the handshake)."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


policies = rate.policies()


def admit(caller: Principal) -> dict[str, str] | None:
    """Charges a call that `tenants.hot` answers as the middleware would; None: the middleware has to decide."""
    if caller.tenant_id is not None and not unlimited(caller.tenant_id):
        return None
    verdicts = rate.charge(caller, policies, now=time.monotonic())
    if any(v.wait for v in verdicts):
        return None
    REQUESTS.labels("POST", "api/v1/namespaces:resolve", "200").inc()
    found_again(caller, "namespaces-resolve", "POST")
    return rate.told(verdicts)


def unread(method: str, code: str, status: int) -> None:
    """Counts a request whose body was refused before anything looked at it."""
    REQUESTS.labels(method if method in METHODS else "other", "none", str(status)).inc()


left = sync_to_async(leave_unasked, thread_sensitive=False)
"""Puts a refused body on the trail, where its route is audited."""
rest = re_path(r"", nobody)  # type: ignore[arg-type]
sockets = URLRouter([*websocket_urlpatterns, rest])
routed = ProtocolTypeRouter(
    {"http": Hot(pages, admit=admit), "websocket": AllowedHostsOriginValidator(SessionMiddlewareStack(sockets))}
)
application = Intake(routed, tell=unread, leave=left)
serving.ready()
