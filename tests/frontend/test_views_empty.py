"""Pages over a fleet of nobody: each says what to do next, none is a blank or a zero that is not known."""

import html
import re

import pytest

pytestmark = pytest.mark.django_db


def test_an_empty_fleet_gets_the_first_steps(person):
    text = person("viewer").get("/").content.decode()
    assert "No node has joined yet" in text
    assert "python -m nodeagent join" in text
    assert "first-run" in text


def test_the_commands_to_copy_are_commands_of_the_agent(person):
    from nodeagent.__main__ import _parser

    text = html.unescape(person("viewer").get("/").content.decode())
    commands = set(re.findall(r'data-copy="python -m nodeagent ([^"]+)"', text))
    assert {c.split()[0] for c in commands} == {"join", "status"}
    for command in commands:
        assert _parser().parse_args([*command.split(), *(["T"] if command.endswith("--token ") else [])]).dir == "agent"


@pytest.mark.parametrize("path", ["/", "/map", "/nodes"])
def test_every_part_that_is_refreshed_is_there_before_the_first_node(person, path):
    text = person("viewer").get(path).content.decode()
    (parts,) = re.findall(r'hx-select-oob="([^"]+)"', text)
    assert [part for part in parts.split(",") if f'id="{part[1:]}"' not in text] == []


@pytest.mark.parametrize("path", ["/", "/map", "/nodes"])
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_no_page_fails_without_nodes(person, path, language):
    client = person("viewer")
    client.cookies["django_language"] = language
    assert client.get(path).status_code == 200


def test_rates_nobody_measured_are_unknown(person):
    text = person("viewer").get("/").content.decode()
    assert 'data-num="requests"><span class="unk"' in text
    assert 'data-num="hit"><span class="unk"' in text
