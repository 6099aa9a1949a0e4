"""Where a request comes from, and from whom that is believed."""

import pytest
from django.test import RequestFactory

from kvconsole.infra.addresses import client_address, neighbourhood, within


@pytest.mark.parametrize(
    ("remote", "said", "trusted", "address"),
    [
        ("10.0.0.1", "", [], "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4", [], "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4", ["10.0.0.0/8"], "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", ["10.0.0.0/8"], "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.2", ["10.0.0.0/8"], "1.2.3.4"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", ["10.0.0.0/8"], "10.0.0.3"),
        ("10.0.0.1", "nonsense", ["10.0.0.0/8"], "nonsense"),
        ("", "1.2.3.4", ["10.0.0.0/8"], ""),
        ("10.0.0.1", "6.6.6.6," * 1000 + "1.2.3.4", ["10.0.0.0/8"], "1.2.3.4"),
    ],
)
def test_only_trusted_proxies_are_believed(settings, remote, said, trusted, address):
    settings.TRUSTED_PROXIES = trusted
    headers = {"X-Forwarded-For": said} if said else {}
    assert client_address(RequestFactory().get("/", REMOTE_ADDR=remote, headers=headers)) == address


def test_networks():
    assert within("10.1.1.1", ["192.0.2.0/24", "10.0.0.0/8"])
    assert not within("10.1.1.1", ["192.0.2.0/24"])
    assert not within("nonsense", ["10.0.0.0/8"])
    assert not within("10.1.1.1", ["nonsense"])


def test_a_neighbourhood_is_what_one_subscriber_has():
    assert neighbourhood("2001:db8::1") == neighbourhood("2001:db8::ffff") != neighbourhood("2001:db8:0:1::1")
    assert neighbourhood("::ffff:10.0.0.1") == neighbourhood("10.0.0.1") == "10.0.0.1"
    assert neighbourhood("nonsense") == "unknown"
