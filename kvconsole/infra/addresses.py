"""Decides from which address a request comes; guess protection and tokens that are bound to addresses ask."""

import ipaddress

from django.conf import settings
from django.http import HttpRequest

MOST_FORWARDED = 1024
"""Characters that are read, from the end: the nearest hops are there."""


def client_address(request: HttpRequest) -> str:
    """The address that calls: of the connection, or what the trusted proxies before it say, from the nearest on.

    What nobody trusted said of itself is not believed: the last address that a trusted proxy saw is the answer.
    """
    return origin(str(request.META.get("REMOTE_ADDR", "")), request.headers.get("X-Forwarded-For", ""))


def origin(peer: str, forwarded: str) -> str:
    """The address that calls, where `peer` is connected and said `forwarded` (X-Forwarded-For, "" = nothing)."""
    hops = [x.strip() for x in forwarded[-MOST_FORWARDED:].split(",") if x.strip()]
    while hops and within(peer, settings.TRUSTED_PROXIES):
        peer = hops.pop()
    return peer


def within(address: str, networks: list[str]) -> bool:
    """Whether the address is in one of the networks; what is no address, or no network, is in none."""
    try:
        ip = ipaddress.ip_address(address)
        return any(ip in ipaddress.ip_network(network, strict=False) for network in networks)
    except ValueError:
        return False


def neighbourhood(address: str) -> str:
    """The address as guesses are counted by it: of IPv6 the /64 that one subscriber has."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)
