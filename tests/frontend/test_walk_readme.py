"""What the README says to type, typed: a trace is made and replayed, and the REST interface answers a token."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from kvconsole.serverprocess import CLONE
from tests.frontend.reaching import _send

pytestmark = [pytest.mark.walk, pytest.mark.browser, pytest.mark.timeout(300)]
PYTHON = ".venv/bin/python"


def lines(heading: str) -> list[str]:
    """The shell lines of a section."""
    text = (CLONE / "README.md").read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines() if line.strip()]


def typed(line: str, env: dict[str, str], here: Path) -> str:
    """What the line prints, in the environment that its section makes."""
    line = line.replace(PYTHON, sys.executable).replace("my.jsonl", str(here / "my.jsonl"))
    done = subprocess.run(["bash", "-euc", line], capture_output=True, text=True, cwd=CLONE, env=env, timeout=120)
    assert done.returncode == 0, f"{line}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def fleet(shared_console):
    """A console with one node, as `make up` makes four; of both tests."""
    console = shared_console
    console.start("signer", "web", "ingest", "worker", "beat", "router")
    console.seed()
    console.node("readme-1", profile="ref-1k")
    deadline = time.monotonic() + 60
    with psycopg.connect(console.database.dsn("superuser"), autocommit=True) as cx:
        while cx.execute("SELECT state FROM catalog_node").fetchall() != [("ready",)]:
            assert time.monotonic() < deadline, "the node is not ready within a minute"
            time.sleep(0.2)
    return console


def test_a_trace_is_made_and_replayed_as_the_readme_says(fleet, tmp_path):
    environment, make, replay = lines("A trace of your own")
    assert environment == f'eval "$({PYTHON} -m kvconsole.devserver --env)"'
    made = typed(make, fleet.env, tmp_path)
    count = int(re.match(r"(\d+) requests over 60 s", made)[1])
    assert count > 100
    assert {"timestamp", "input_length", "output_length", "hash_ids", "tenant"} <= json.loads(
        (tmp_path / "my.jsonl").read_text().splitlines()[0]
    ).keys()
    assert typed(replay, fleet.env, tmp_path).startswith(f"{count} requests replayed, 0 failed")


def test_the_rest_interface_answers_a_token_as_the_readme_says(fleet, chromium, tmp_path):
    address, secret, curl, kvc = lines("The REST interface")
    assert address == 'export KVC_URL="$KVC_CONSOLE_URL"'
    assert "export KVC_TOKEN" in secret
    page = chromium.new_context().new_page()
    fleet.login(page, "viewer")
    page.click("text=Settings")
    _send(page, "main a:has-text('New token…')")
    if "/account/confirm" in page.url:
        page.fill("#id_password", fleet.seed()["viewer"])
        _send(page, "form:has(#id_password) button[type=submit]")
    page.fill("#f-name", "readme")
    page.check("[name='roles'][value='viewer']")
    _send(page, "main form[method=post] button[type=submit]")
    token = page.inner_text("[data-once]")
    page.context.close()
    env = fleet.env | {"KVC_URL": fleet.env["KVC_CONSOLE_URL"], "KVC_TOKEN": token}
    assert [node["name"] for node in json.loads(typed(curl, env, tmp_path))["items"]] == ["readme-1"]
    assert "readme-1" in typed(kvc, env, tmp_path)
    refused = typed(curl, env | {"KVC_TOKEN": "kvc_user_nothing"}, tmp_path)
    assert json.loads(refused)["code"] == "token-invalid"
