"""The client connects to no network that is not public, follows nobody, and waits for nobody."""

import asyncio
import ipaddress
import time

import pytest

from audit.webhooks import client
from audit.webhooks.client import Refused, allowed, check, check_form, check_wish, post
from tests.audit.webhooks.receiver import receiving

PRIVATE = (
    "127.0.0.1", "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "255.255.255.255", "192.0.0.1", "198.18.0.1", "240.0.0.1", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254",
    "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "2002:7f00:1::",
    "2002:a9fe:a9fe::1", "::7f00:1", "fec0::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _closed(settings):
    settings.WEBHOOK_NETWORKS = []


@pytest.mark.parametrize("address", PRIVATE)
def test_no_connection_into_networks_that_are_not_public(address):
    assert not allowed(ipaddress.ip_address(address))
    literal = f"[{address}]" if ":" in address else address
    assert isinstance(check(f"https://{literal}/x"), Refused)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101"])
def test_public_addresses_are_allowed(address):
    assert allowed(ipaddress.ip_address(address))


@pytest.mark.parametrize("url", [
    "ftp://a.example/", "https:///x", "https://u:p@a.example/", "https://a.example/#f", "https://a.example:22/",
    "https://a.example:99999/", "https://a b.example/", "http\\://a", "https://ä.example/", "", "https://a.example\n/",
    "https://" + "a" * 600,
])  # fmt: skip
def test_urls_of_other_forms_are_refused(url):
    assert check_form(url).code == "webhook-url-refused"


@pytest.mark.parametrize("url", [
    "http://169.254.169.254/", "https://10.0.0.5/in", "https://[::1]/", "http://1.1.1.1/", "http://hooks.example/in",
    "ftp://a.example/",
])  # fmt: skip
def test_what_can_never_be_reached_is_refused_when_it_is_asked_for(url):
    assert check_wish(url).code == "webhook-url-refused"


def test_what_may_be_reached_can_be_asked_for(settings):
    assert check_wish("https://hooks.example/in") is check_wish("https://1.1.1.1:8443/") is None
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8", "10.0.0.0/8"]
    for url in ("http://127.0.0.1:9000/in", "http://localhost:9000/", "https://10.0.0.5/in"):
        assert check_wish(url) is None
    assert check_wish("http://10.0.0.5/in").detail == "https, as plain HTTP is for loopback alone"


@pytest.mark.parametrize("url", ["https://2130706433/", "https://0x7f000001/", "https://127.1/", "https://localhost/"])
def test_other_ways_to_write_loopback_are_loopback(url):
    assert check(url).code in ("webhook-address-refused", "webhook-unresolved")


def test_named_networks_are_open_but_never_all_of_them(settings):
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8", "0.0.0.0/0", "::/0"]
    assert allowed(ipaddress.ip_address("127.0.0.1"))
    assert not allowed(ipaddress.ip_address("169.254.169.254"))
    assert not allowed(ipaddress.ip_address("::1"))
    settings.WEBHOOK_NETWORKS = ["10.0.0.0/8"]
    assert check("http://10.0.0.1/").code == "webhook-url-refused", "plain HTTP is for loopback"
    assert check("https://10.0.0.1:8443/x?y=1").url == "https://10.0.0.1:8443/x?y=1"


def test_the_connection_goes_to_the_address_that_was_checked(settings, monkeypatch):
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    asked = []

    def resolve(host, port, **_):
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "169.254.169.254"
        return [(2, 1, 6, "", (address, port))]

    with receiving() as (receiver, url):
        port = url.rpartition(":")[2]
        monkeypatch.setattr(client.socket, "getaddrinfo", resolve)
        answer = asyncio.run(post(f"http://hooks.example:{port}/in", b"{}", {}))
    assert answer.taken
    assert asked == ["hooks.example"]
    assert receiver.got[0][0]["host"] == f"hooks.example:{port}"


def test_one_private_address_among_several_is_enough(monkeypatch):
    monkeypatch.setattr(client.socket, "getaddrinfo", lambda *_, **__: [
        (2, 1, 6, "", ("1.1.1.1", 443)), (2, 1, 6, "", ("10.0.0.1", 443))])  # fmt: skip
    assert check("https://hooks.example/").code == "webhook-address-refused"


def test_redirects_are_failures_and_large_answers_are_left(settings):
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    with receiving() as (receiver, url):
        receiver.answers = [(302, [(b"location", b"http://169.254.169.254/")], b"", 0)]
        answer = asyncio.run(post(url, b"{}", {}))
        assert (answer.status, answer.code, answer.taken, len(receiver.got)) == (302, "webhook-redirect", False, 1)
        receiver.answers = [(200, [], b"x" * 2_000_000, 0)]
        assert asyncio.run(post(url, b"{}", {})).taken


def test_nobody_is_waited_for(settings, monkeypatch):
    settings.WEBHOOK_NETWORKS = ["127.0.0.0/8"]
    monkeypatch.setattr(client, "SECONDS", 0.5)
    with receiving() as (receiver, url):
        receiver.answers = [(200, [], b"", 5)]
        begin = time.monotonic()
        assert asyncio.run(post(url, b"{}", {})).code in ("webhook-too-slow", "webhook-unreachable")
        assert time.monotonic() - begin < 3
    assert asyncio.run(post("http://127.0.0.1:1/", b"{}", {})).code in ("webhook-url-refused", "webhook-unreachable")
