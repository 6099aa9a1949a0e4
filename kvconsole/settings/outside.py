"""Decides how other machines are reached: encrypted and known by their certificates, unless somebody says otherwise."""

from ipaddress import ip_address, ip_network
from urllib.parse import parse_qs, urlsplit

from kvconsole.settings.env import Env

MODES = ("disable", "require", "verify-ca", "verify-full")
"""Of libpq's modes those that say what they do; `allow` and `prefer` encrypt if the other side likes to."""


def is_here(host: str) -> bool:
    """Whether this is the own machine: loopback, or a directory with a unix socket."""
    try:
        return not host or host.startswith("/") or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def plain_http(*urls: str) -> list[str]:
    """What is wrong with these addresses of processes."""
    parts = [(url, urlsplit(url)) for url in urls]
    return [f"plain HTTP off loopback: {u}" for u, p in parts if p.scheme != "https" and not is_here(p.hostname or "?")]


def database(env: Env, host: str) -> dict[str, str]:
    """libpq's options of connections to `host`: off loopback `verify-full`, unless KVC_DB_SSLMODE says otherwise."""
    mode = env.text("KVC_DB_SSLMODE", "" if is_here(host) else "verify-full")
    root = env.text("KVC_DB_SSLROOTCERT", "")
    if mode and mode not in MODES:
        env.problems.append(f"KVC_DB_SSLMODE is none of {', '.join(MODES)}: {mode!r}")
    if mode.startswith("verify") and not root:
        env.problems.append(
            f"PostgreSQL at {host} is reached with sslmode {mode}: KVC_DB_SSLROOTCERT must name the file of its CA"
        )
    return {name: value for name, value in (("sslmode", mode), ("sslrootcert", root)) if value}


def verified(url: str) -> str:
    """The address of Valkey, with which every client of ours asks for a certificate: Celery's does not by itself."""
    parts = urlsplit(url)
    if parts.scheme != "rediss" or "ssl_cert_reqs" in parse_qs(parts.query):
        return url
    return parts._replace(query=f"{parts.query}&ssl_cert_reqs=required".lstrip("&")).geturl()


def broker(url: str, *, plain: bool) -> list[str]:
    """What is wrong with Valkey's address; `plain`: it may be reached unencrypted."""
    parts = urlsplit(url)
    if plain or parts.scheme == "unix" or is_here(parts.hostname or "?"):
        return []
    if parts.scheme != "rediss":
        return [f"Valkey at {parts.hostname} needs rediss:// in KVC_VALKEY_URL, or KVC_VALKEY_PLAIN=on"]
    asked = parse_qs(parts.query).get("ssl_cert_reqs", ["required"])[-1]
    return [] if asked == "required" else [f"KVC_VALKEY_URL: ssl_cert_reqs={asked} believes any certificate"]


def proxies(networks: list[str], *, behind: bool) -> list[str]:
    """What is wrong with the networks whose X-Forwarded-For is believed; `behind`: there is a proxy."""
    if behind and not networks:
        return ["KVC_BEHIND_PROXY is on: KVC_TRUSTED_PROXIES must name the proxy's networks, or all have its address"]
    found = []
    for network in networks:
        try:
            if not ip_network(network, strict=False).prefixlen:
                found.append(f"KVC_TRUSTED_PROXIES: {network} is everybody, who could then claim any address")
        except ValueError:
            found.append(f"KVC_TRUSTED_PROXIES: {network!r} is no network")
    return found
