"""Decides where the console may connect for somebody else, and how: the only module that sends to a named address.

A name is resolved once, every address it has is checked, and the connection goes to the one that was checked; what the
name means a moment later is no matter. Private, loopback and link-local networks, the clouds' metadata addresses among
them, are refused unless `KVC_WEBHOOK_NETWORKS` names them. https everywhere but on loopback, no redirects, and of the
answer only its status counts.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
from django.conf import settings

SECONDS = 10.0
CONNECT_SECONDS = 4.0
ANSWER_BYTES = 64 * 1024
"""What is read of an answer, and thrown away."""
MOST_URL = 500
HTTPS = "https, as plain HTTP is for loopback alone"
PORTS = frozenset({80, 443, *range(1024, 65536)})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_REFUSED = [
    ipaddress.ip_network(text)
    for text in ("100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "64:ff9b:1::/48", "fec0::/10", "2001::/23")
]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Target:
    """An address that was checked: where to connect, and what to call it there."""

    url: str
    host: str
    authority: str


@dataclass(frozen=True)
class Refused:
    """Nothing is sent there. `final`: nothing but another address or other settings can change that."""

    code: str
    detail: str = ""
    final: bool = True


@dataclass(frozen=True)
class Answered:
    """The status of an answer, or the code of why there is none."""

    status: int | None
    code: str = ""

    @property
    def taken(self) -> bool:
        """Whether the receiver has the message."""
        return self.status is not None and 200 <= self.status < 300


def check_form(url: str) -> Refused | None:
    """Why nothing would ever be sent to this URL, as far as its text tells."""
    if len(url) > MOST_URL or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return Refused("webhook-url-refused", "printable ASCII without blanks")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        return Refused("webhook-url-refused", "not a URL")
    if parts.scheme not in ("http", "https") or not host:
        return Refused("webhook-url-refused", "http or https, and a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        return Refused("webhook-url-refused", "no user, no password, no fragment")
    if port is not None and port not in PORTS:
        return Refused("webhook-url-refused", "port 80, 443, or above 1023")
    return None


def check_wish(url: str) -> Refused | None:
    """Why nothing would ever be sent to this URL, as far as one knows without asking what its name means."""
    if (bad := check_form(url)) is not None:
        return bad
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a name
        return Refused("webhook-url-refused", HTTPS) if parts.scheme == "http" and host != "localhost" else None
    if not allowed(address):
        return Refused("webhook-url-refused", "an address in a public network, or in one that the settings name")
    if parts.scheme == "http" and not _plain(address).is_loopback:
        return Refused("webhook-url-refused", HTTPS)
    return None


def check(url: str) -> Target | Refused:
    """Where a URL leads now, or why nothing is sent there. Resolves its name; blocks."""
    if (bad := check_form(url)) is not None:
        return bad
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return Refused("webhook-unresolved", host, final=False)
    except UnicodeError:  # a label that is empty or too long
        return Refused("webhook-url-refused", "not a name")
    addresses = [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found]
    if not addresses or not all(allowed(address) for address in addresses):
        return Refused("webhook-address-refused", "it leads to a network that is not public")
    first = addresses[0]
    if parts.scheme == "http" and not _plain(first).is_loopback:
        return Refused("webhook-url-refused", "plain HTTP is for loopback alone")
    literal = f"[{first}]" if first.version == 6 else str(first)
    query = f"?{parts.query}" if parts.query else ""
    return Target(f"{parts.scheme}://{literal}:{port}{parts.path or '/'}{query}", host, parts.netloc)


def allowed(address: Address) -> bool:
    """Whether the console connects there for somebody else."""
    inner = _plain(address)
    named = [ipaddress.ip_network(text, strict=False) for text in settings.WEBHOOK_NETWORKS]
    if any(one.prefixlen > 0 and inner in one for one in named):
        return True
    private = not inner.is_global or inner.is_multicast or inner.is_reserved or inner.is_unspecified
    return not private and not any(inner in network for network in _REFUSED)


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, else itself."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and (address in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1)):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


async def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answered:
    """The answer to one message, in `SECONDS` at most, whatever the receiver does."""
    try:
        async with asyncio.timeout(SECONDS):
            target = await asyncio.to_thread(check, url)
            if isinstance(target, Refused):
                return Answered(None, target.code)
            return await _send(target, body, headers)
    except TimeoutError:
        return Answered(None, "webhook-too-slow")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as e:
        return Answered(None, "webhook-tls" if "CERTIFICATE" in str(e).upper() else "webhook-unreachable")


async def _send(target: Target, body: bytes, headers: Mapping[str, str]) -> Answered:
    said = {
        **headers,
        "Host": target.authority,
        "Content-Type": "application/json",
        "User-Agent": "kv-console-webhooks",
    }
    said["Accept-Encoding"] = "identity"
    timeout = httpx.Timeout(SECONDS, connect=CONNECT_SECONDS)
    extensions = {"sni_hostname": target.host}
    async with (
        httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False) as client,
        client.stream("POST", target.url, content=body, headers=said, extensions=extensions) as answer,
    ):
        read = 0
        async for piece in answer.aiter_raw():
            read += len(piece)
            if read > ANSWER_BYTES:
                break
        redirected = 300 <= answer.status_code < 400
        return Answered(answer.status_code, "webhook-redirect" if redirected else "")
