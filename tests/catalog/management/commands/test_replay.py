"""`replay` refuses what it cannot replay before anything runs, and says that nothing was replayed."""

import math
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from catalog.management.commands.replay import _speed
from tenants.services import epoch_create, model_register, tenant_create
from tests.catalog.test_reference_fleet import CONFIG

LINE = '{"timestamp": 0, "input_length": 9, "output_length": 0, "hash_ids": [1]}\n'


@pytest.mark.parametrize(
    ("content", "options", "why"),
    [
        (None, (), "No such file"),
        ("", (), "no requests"),
        ("{}", (), "line 1"),
        (LINE, ("--tenant", "nobody"), "tenant nobody"),
    ],
)
@pytest.mark.django_db
def test_bad_input_is_refused_and_nothing_is_replayed(tmp_path: Path, content, options, why) -> None:
    path = tmp_path / "trace.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CommandError, match="nothing was replayed") as error:
        call_command("replay", str(path), *options)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "words",
    [*(f"--speed={x}" for x in ("0", "-1", "fast", "nan", "inf")),
     *(f"--{name}={x}" for name in ("concurrency", "limit") for x in ("0", "-1", "1.5", "many")), "--nodes=,"],
)  # fmt: skip
def test_an_argument_that_would_replay_nothing_or_hang_is_refused_by_its_name(tmp_path: Path, words) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(LINE)
    with pytest.raises(CommandError, match=words.split("=")[0]):
        call_command("replay", str(path), words)


@pytest.mark.django_db
def test_nodes_that_nobody_has_are_named_before_anything_is_replayed(tmp_path: Path) -> None:
    tenant_create(slug="acme", name="Acme", classes=["internal"])
    model = model_register(name="toy", config=CONFIG | {"torch_dtype": "float16"})
    epoch_create(model=model, weights_digest="sha256:1")
    path = tmp_path / "trace.jsonl"
    path.write_text(LINE)
    with pytest.raises(CommandError, match="not a node: a, b; nothing was replayed"):
        call_command("replay", str(path), "--tenant", "acme", "--model", "toy", "--nodes", "b, a")


def test_what_is_no_speed_is_told_apart_from_as_fast_as_may_be() -> None:
    assert (_speed("max"), _speed("2.5")) == (math.inf, 2.5)
