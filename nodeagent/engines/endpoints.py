"""Decides where the ranks of an engine publish: by the engines' rule for ports, or as the engine itself tells."""

from typing import Any

import msgspec

from nodeagent.config import ConfigError


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where one rank of an engine publishes."""

    rank: int
    engine: str
    replay: str | None = None
    topic: str = ""
    bind: bool = False


def with_port(endpoint: str, add: int) -> str:
    """The endpoint of another rank: engines add the rank to the port of both endpoints, or a suffix to a name."""
    if not add:
        return endpoint
    if endpoint.startswith("inproc://"):
        return f"{endpoint}_dp{add}"
    head, _, port = endpoint.rpartition(":")
    return f"{head}:{int(port) + add}"


def endpoints_of(engine: str, replay: str | None, *, ranks: int, bind: bool, topic: str = "") -> list[Endpoint]:
    """One endpoint per rank, by the engines' rule for ports."""
    return [
        Endpoint(
            rank=r, engine=with_port(engine, r), replay=replay and with_port(replay, r), bind=bind, topic=topic
        )
        for r in range(ranks)
    ]  # fmt: skip


def discovered(sources: dict[str, Any], host: str) -> list[Endpoint]:
    """The endpoints that `/kv_event_sources` tells, in order of rank.

    Raises:
        ConfigError: the answer is not a map of ranks to endpoints.
    """
    if not isinstance(sources, dict):
        raise ConfigError("/kv_event_sources: not a map of ranks to endpoints")
    out = []
    for rank, source in sources.items():
        endpoint = source.get("endpoint") if isinstance(source, dict) else None
        if not rank.isdigit() or not isinstance(endpoint, str):
            raise ConfigError("/kv_event_sources: not a map of ranks to endpoints")
        replay = source.get("replay_endpoint")
        out.append(
            Endpoint(rank=int(rank), engine=_reachable(endpoint, host),
                     replay=_reachable(replay, host) if isinstance(replay, str) else None,
                     topic=str(source.get("topic") or ""))
        )  # fmt: skip
    if not out or sorted(e.rank for e in out) != list(range(len(out))):
        raise ConfigError("/kv_event_sources: ranks are missing")
    return sorted(out, key=lambda e: e.rank)


def _reachable(endpoint: str, host: str) -> str:
    """The endpoint as seen from here: an engine that binds everywhere is reached by its host's name."""
    for everywhere in ("*", "0.0.0.0", "[::]"):  # noqa: S104 - read, not bound
        endpoint = endpoint.replace(f"//{everywhere}:", f"//{host}:")
    return endpoint
