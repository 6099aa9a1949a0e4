"""The `web` process: Django for HTTP, Channels for `/ws/…`.

An Origin that is not ours is refused before a socket is accepted. A socket path that nobody serves is closed, not
answered with an exception.
"""

import os
import warnings
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"kvconsole.settings.{os.environ.get('KVC_ENV', 'dev')}")

from django.core.asgi import get_asgi_application

pages = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter  # type: ignore[import-untyped]
from channels.security.websocket import AllowedHostsOriginValidator  # type: ignore[import-untyped]
from channels.sessions import SessionMiddlewareStack  # type: ignore[import-untyped]
from django.urls import re_path

from catalog.consumers import websocket_urlpatterns
from kvconsole.plumbing import refuse_bad_start
from routing.replica import replica

# WhiteNoise answers with files, whose iterators are synchronous; they are small and compressed ahead, or from memory.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
refuse_bad_start()
replica()  # loads beside the first requests; its lease says how far it has applied the fences


async def nobody(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Closes a socket whose path nobody serves (HTTP 403 before the handshake)."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


rest = re_path(r"", nobody)  # type: ignore[arg-type]
sockets = URLRouter([*websocket_urlpatterns, rest])
application = ProtocolTypeRouter(
    {"http": pages, "websocket": AllowedHostsOriginValidator(SessionMiddlewareStack(sockets))}
)
