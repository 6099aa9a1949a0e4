"""`python -m kvconsole.web --port N`: serves pages, REST and live sockets on uvicorn, with limits on heads.

Not a command of `manage.py`: `kvconsole.asgi` decides on the database's pool before Django reads its settings.
"""

import argparse
import signal
import sys

import uvicorn

from kvconsole.infra import arguments
from kvconsole.infra.heads import Heads


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m kvconsole.web", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=arguments.port, default=8000)
    options = parser.parse_args()
    # uvicorn raises the signal anew when it has ended: then what was counted is told (`audit.refusals`), not killed
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    uvicorn.run(
        "kvconsole.asgi:application", host=options.host, port=options.port, http=Heads, log_level="warning",
        access_log=False,  # addresses of pages can carry what is nobody's business
        proxy_headers=False,  # KVC_TRUSTED_PROXIES says who is believed (`infra.addresses`)
        server_header=False, timeout_graceful_shutdown=3,
    )  # fmt: skip


if __name__ == "__main__":
    main()
