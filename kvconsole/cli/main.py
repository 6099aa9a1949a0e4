"""The command line `kvc`: groups of commands, options that all share, and exit codes.

Exit codes: 0 done, 1 refused, 2 wrong usage, 3 not reachable, 4 the console failed, 5 not known (no good token).
"""

import getpass
import os
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from audit.verifier import kvc_verify
from kvconsole.cli import audit, commands, deletions, gateway, moves, output, people, reuse, routes, rules
from kvconsole.cli.client import DEFAULT_URL, Client, Failure, given_token, save, saved, saved_path

app = typer.Typer(
    name="kvc",
    help="Who may have what, and what is where: the KV Console from a terminal.\n\nExit codes: 0 done, 1 refused, "
    "2 wrong usage, 3 not reachable, 4 the console failed, 5 not known (no good token).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@dataclass
class Asked:
    """The options of all commands."""

    url: str
    token: str
    json: bool

    def client(self) -> Client:
        """The console that was asked for, as the caller who asked."""
        kept = saved()
        url = self.url or os.environ.get("KVC_URL", "") or kept.get("url", DEFAULT_URL)
        token = given_token(self.token)
        if not token and kept.get("url") == url:
            token = kept.get("token", "")
        return Client(url, token)


@app.callback()
def options(
    context: typer.Context,
    url: Annotated[str, typer.Option(help="Address of the console; else KVC_URL, else that of `kvc login`")] = "",
    token: Annotated[str, typer.Option(help="`-` reads the token from standard input; else KVC_TOKEN")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables")] = False,
) -> None:
    """Options that stand before the command."""
    context.obj = Asked(url, token, as_json)


@app.command()
def login(context: typer.Context) -> None:
    """Keep address and token for the next commands, after a look whether they are good."""
    asked: Asked = context.obj
    url = asked.url or os.environ.get("KVC_URL", "") or DEFAULT_URL
    token = given_token(asked.token)
    if not token:
        token = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline().strip()
    who = Client(url, token).call("GET", "/me").json()
    path = save(url, token)
    if asked.json:
        output.show_json(who)
    else:
        print(f"{output.printable(who.get('name'))} at {url}; kept in {path}")


@app.command()
def logout() -> None:
    """Forget what `kvc login` kept. The token itself stays good: revoke it with `kvc tokens revoke`."""
    saved_path().unlink(missing_ok=True)


@app.command()
def whoami(context: typer.Context) -> None:
    """Who the token stands for, and what it may."""
    commands.one(context, "/me")


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def verify(context: typer.Context) -> None:
    """Check an export bundle, a proof file or two checkpoints, offline, and without asking the console.

    Exit codes are the verifier's: 0 valid, 1 invalid, 2 malformed or wrong usage, 3 incomplete. `kvc verify --help`.
    """
    asked: Asked = context.obj
    raise typer.Exit(kvc_verify.main([*context.args, *(["--json"] if asked.json else [])]))


commands.add_to(app)
reuse.add_to(app)
people.add_to(app)
audit.add_to(app)
deletions.add_to(app)
rules.add_to(app)
routes.add_to(app)
moves.add_to(app)
gateway.add_to(app)


def main() -> None:
    """Runs one command and exits with its code."""
    try:
        app()
    except Failure as failure:
        if "--json" in sys.argv and failure.problem is not None:
            output.show_json(failure.problem)
        print(f"kvc: {failure.text}", file=sys.stderr)
        sys.exit(failure.code)


if __name__ == "__main__":
    main()
