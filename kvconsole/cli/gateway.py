"""`kvc gateway`: a thin OpenAI-compatible proxy in front of engines, for tests and as an example for others.

It puts the namespace's salt in place of the client's, asks the router, and tells it the outcome.
"""

from typing import Annotated

import typer

from kvconsole.cli.client import UNREACHABLE, Failure
from kvconsole.cli.gateway_config import key_hash, load

gateway = typer.Typer(help="A proxy in front of engines that asks the router.", no_args_is_help=True)


@gateway.command("run")
def gateway_run(
    config: Annotated[str, typer.Option(help="JSON: console_url, router_url, engines, token_file, …")],
) -> None:
    """Serve until it is told to end; requests under way are finished for five seconds."""
    import uvicorn  # what other commands need not wait for

    from kvconsole.cli.gateway_app import Gateway
    from kvconsole.infra.heads import Heads

    found, held = load(config)
    host, port = found.address
    made = uvicorn.Config(
        Gateway(found, held), host=host, port=port, http=Heads, ws="none", lifespan="on", log_level="error",
        access_log=False, server_header=False, date_header=False, proxy_headers=False, backlog=1024,
        timeout_keep_alive=75, timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = uvicorn.Server(made)
    try:
        server.run()
    except SystemExit:
        raise Failure(UNREACHABLE, f"{found.listen} cannot be listened on.") from None


@gateway.command("check")
def gateway_check(
    config: Annotated[str, typer.Option(help="The file of `kvc gateway run`")],
) -> None:
    """Whether the file and those it names are as they must be; nothing is sent to anybody."""
    found, held = load(config)
    print(f"{len(found.engines)} engines, {len(held.tenants)} keys of clients; listens on {found.listen}")


@gateway.command("hash-key")
def gateway_hash_key() -> None:
    """The line for a client's key, which is read from standard input; the tenant's name goes behind it."""
    print(key_hash(typer.get_text_stream("stdin").readline().strip()))


def add_to(app: typer.Typer) -> None:
    """The group is a command of `app`."""
    app.add_typer(gateway, name="gateway")
