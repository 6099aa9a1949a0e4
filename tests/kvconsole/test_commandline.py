"""A command of `manage.py` that finds no console says in one line what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvconsole.serverprocess import free_port
from tests.architecture.tree import CLONE

TRACE = '{"timestamp": 0, "input_length": 9, "output_length": 0, "hash_ids": [1]}\n'


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KVC_", "DJANGO_"))}
    command = [sys.executable, "manage.py", *words]
    return subprocess.run(command, env=kept | env, capture_output=True, text=True, cwd=CLONE)


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "{trace}"),
        ("resync",),
        ("node_create", "n1", "--region", "eu"),
        ("node_retire", "n1", "--reason", "gone"),
        ("seed_demo",),
        ("person_create", "ann", "--role", "viewer"),
        ("migrate",),
    ],
    ids=lambda words: words[0],
)
def test_without_a_database_one_line_says_what_to_do(tmp_path: Path, words) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(TRACE)
    port = free_port()
    done = run(*(w.format(trace=trace) for w in words), KVC_DB_PORT=str(port), KVC_COMMAND_KEY_FILE=str(tmp_path / "k"))
    assert done.returncode == 1
    line = done.stderr.strip()
    assert "\n" not in line
    assert line.startswith(f"manage.py: PostgreSQL at 127.0.0.1:{port}/kvconsole cannot be used: ")
    assert "make up" in line


def test_without_settings_all_that_is_missing_is_named() -> None:
    done = run("resync", KVC_ENV="prod")
    assert done.returncode == 1
    assert done.stderr.startswith("manage.py: the configuration is incomplete; nothing was started:\n")
    assert "KVC_SECRET_KEY" in done.stderr
    assert "Traceback" not in done.stderr
    wrong = run("resync", KVC_ENV="staging")
    assert (wrong.returncode, wrong.stderr) == (1, "manage.py: KVC_ENV is none of dev, test, prod: 'staging'\n")


def test_a_database_without_the_schema_is_told_apart(postgres) -> None:
    name = "unmigrated"
    postgres.create_database(name)
    try:
        env = {**postgres.env(name), "KVC_ENV": "test", "KVC_DB_ROLE": "operator"}
        done = run("resync", **env)
        assert done.returncode == 1
        assert done.stderr == (
            f"manage.py: the database at 127.0.0.1:{postgres.port}/{name} has another schema than this checkout: "
            "run manage.py migrate\n"
        )
    finally:
        postgres.drop_database(name)
