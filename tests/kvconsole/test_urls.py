"""Every app's routes are composed, and the REST interface describes itself without another host."""

import contextlib
import re

import pytest
from django.test import Client
from django.urls import resolve

from kvconsole.infra.access import unregistered

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "path",
    [
        "/", "/map", "/nodes", "/login", "/api/schema", "/api/docs", "/api/v1/tenants", "/api/v1/nodes",
        "/api/v1/map/tiles", "/api/v1/prefixes:lookup", "/api/v1/key-leases",
    ],
)  # fmt: skip
def test_every_room_answers(path: str) -> None:
    assert resolve(path)


def test_every_route_is_in_the_registry() -> None:
    assert unregistered() == []


def test_the_schema_is_open_and_names_what_apps_offer(client: Client) -> None:
    schema = client.get("/api/schema").json()
    assert schema["openapi"].startswith("3.")
    assert "/api/v1/prefixes:lookup" in schema["paths"]


def test_the_description_loads_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/api/docs")
    assert page.status_code == 200
    text = page.content.decode()
    assert not re.findall(r"""(?:src|href)=["']https?://""", text)
    assert "<style" not in text
    assert not re.findall(r"<script>(?!\s*</script>)", text)
    for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', text):
        with contextlib.closing(client.get(path)) as answer:
            assert answer.status_code == 200, path
