"""The agent's command line: `run | join | listen | status | inventory | probe`."""

import argparse
import asyncio
import getpass
import importlib
import logging
import os
import signal
import ssl
import sys
import threading
import time
from pathlib import Path

import httpx

from nodeagent import probe
from nodeagent.agent import DRIVE_FILE, Agent
from nodeagent.config import PROFILES, ConfigError, Home, parse_tier
from nodeagent.join import NotJoined, draft_of, join, remote_url
from nodeagent.reporter import begin_log, begun, ended
from nodeagent.server import serve
from nodeagent.tiers.memory import wipe_freed

DEFAULT_TIERS = ("hbm=64MiB", "pinned=64MiB", "dram=256MiB", "ssd=1GiB", "remote=1GiB")


def main(argv: list[str] | None = None) -> int:
    """Exit code of one command."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["listen"]:  # has a command line of its own
        return int(importlib.import_module("nodeagent.listen").main(argv[1:]) or 0)
    args = _parser().parse_args(argv)
    home = Home(Path(args.dir))
    try:
        code: int = args.command(home, args)
        sys.stdout.flush()
    except (ConfigError, NotJoined) as e:
        print(f"nodeagent: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # who read what we print has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nodeagent", description="The process on each cache node.")
    commands = parser.add_subparsers(required=True, metavar="run|join|listen|status|inventory|probe")
    for name, command, text in (
        ("run", _run, "work as the node that was enrolled"),
        ("join", _join, "enrol this node with a console"),
        ("status", _show, "what the running agent says of itself"),
        ("inventory", _show, "everything the running agent holds"),
        ("probe", probe.show, "how often given byte strings lie on the raw media of the node"),
    ):
        sub = commands.add_parser(name, help=text)
        sub.add_argument("--dir", required=True, help="the agent's directory")
        sub.set_defaults(command=command, name=name)
        if name == "run":
            sub.add_argument("--supervised", action="store_true", help="end when standard input is closed")
        if name == "join":
            _join_options(sub)
        if name == "probe":
            probe.options(sub)
    commands.add_parser("listen", help="speak for an engine on whose host nothing may be installed")
    return parser


def _join_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--console", required=True, help="base URL of the console")
    sub.add_argument("--token", required=True, help="enrolment token; - reads it from standard input")
    sub.add_argument("--name", required=True, help="the node's name")
    sub.add_argument("--listen", default="127.0.0.1:0", help="host:port to listen on; port 0 takes a free one")
    sub.add_argument("--agent-url", default="", help="how the console reaches the agent; default: http://<listen>")
    sub.add_argument("--profile", default="ref-1k", choices=sorted(PROFILES))
    sub.add_argument("--tier", action="append", default=[], help="hbm=64MiB[,high,low[,ttl seconds]]; repeated")
    remote = sub.add_mutually_exclusive_group()
    remote.add_argument(
        "--remote", default="", help="URL of the Valkey that holds the tier remote; - reads it from standard input, "
        "after the token where that is read there too; with a password it may not stand here",
    )  # fmt: skip
    remote.add_argument("--remote-file", default="", help="private file with that URL in its first line")
    sub.add_argument("--policy", default="value", choices=("value", "lru"))
    sub.add_argument("--tpot-ms", type=float, default=0.0, help="pace of decode; 0 = at once")
    sub.add_argument("--ranks", type=int, help="data-parallel ranks of the engine; else its listener says it")
    sub.add_argument("--tls-cert", default="")
    sub.add_argument("--tls-key", default="")


def _asked(prompt: str) -> str:
    """A line of standard input; a person at a terminal is asked for it and does not see it."""
    return (getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline()).strip()


def _join(home: Home, args: argparse.Namespace) -> int:
    token = _asked("Enrolment token: ") if args.token == "-" else args.token  # noqa: S105 - a way to say "read it"
    remote = remote_url(args.remote, args.remote_file, sys.stdin.readline)
    tiers = [parse_tier(x) for x in args.tier or DEFAULT_TIERS]
    if len(dict(tiers)) < len(tiers):
        raise ConfigError("--tier: one of them is given twice")
    draft = draft_of(
        name=args.name, listen=args.listen, agent_url=args.agent_url, profile=args.profile,
        tiers=dict(tiers), remote_url=remote, policy=args.policy,
        tpot_ms=args.tpot_ms, tls_cert=args.tls_cert, tls_key=args.tls_key,
    )  # fmt: skip
    with httpx.Client(timeout=30, trust_env=False, follow_redirects=False) as client:
        config = join(home, console_url=args.console, token=token, draft=draft, client=client, ranks=args.ranks)
    print(f"{config.name} is enrolled as {config.node}; start it with: python -m nodeagent run --dir {home.path}")
    return 0


def _run(home: Home, args: argparse.Namespace) -> int:
    begin_log()
    wipe_freed()
    agent, began, why = Agent(home), time.monotonic(), "it was told to"
    say = logging.getLogger("nodeagent").info
    say(begun(agent.config))
    try:
        asyncio.run(_serve(agent, supervised=args.supervised))
    except (Exception, SystemExit) as e:
        why = f"{type(e).__name__}: see above" if isinstance(e, SystemExit) else type(e).__name__
        raise
    finally:
        say(ended(agent.config, seconds=time.monotonic() - began, why=why))
    return 0


async def _serve(agent: Agent, *, supervised: bool) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if supervised:
        threading.Thread(target=_watch_parent, args=(loop, stop), daemon=True).start()
    await serve(agent, stop)


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Ends the process when the pipe on standard input closes: whoever started it is gone."""
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(stop.set)


def _show(home: Home, args: argparse.Namespace) -> int:
    config = home.load()
    token = home.read_secret(DRIVE_FILE).decode().strip()
    scheme = "https" if config.tls_cert else "http"
    url = f"{scheme}://{config.listen}/v1/{args.name}"
    verify = ssl.create_default_context(cafile=config.tls_cert) if config.tls_cert else True
    try:
        with httpx.Client(timeout=30, trust_env=False, verify=verify) as client:
            answer = client.get(url, headers={"authorization": f"Bearer {token}"})
    except httpx.HTTPError as e:
        print(f"nodeagent: no agent answers at {config.listen} ({type(e).__name__})", file=sys.stderr)
        return 1
    print(answer.text)
    return 0 if answer.status_code == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
