"""`manage.py resync` with a real agent: the order goes out, the inventory comes in, the source is verified."""

import subprocess
import sys

import psycopg
import pytest
from django.core.management import CommandError, call_command

from catalog.models import Node, NodeCommand
from kvconsole.serverprocess import CLONE
from tests.catalog.test_reference_fleet import audited
from tests.catalog.test_services import NOW


@pytest.mark.walk
@pytest.mark.timeout(300)
def test_a_real_node_is_verified(console):
    console.start("signer", "web", "ingest")
    console.seed()
    console.node("n1")
    assert console.manage("resync", "n1", "--wait", "60", timeout=120).strip() == "n1: verified"
    with psycopg.connect(console.database.dsn("operator"), autocommit=True) as cx:
        states = cx.execute("SELECT DISTINCT state FROM catalog_source").fetchall()
    assert states == [("exact",)]
    unknown = [sys.executable, "manage.py", "resync", "nobody"]
    done = subprocess.run(unknown, capture_output=True, text=True, cwd=CLONE, env=console.env)
    assert done.returncode == 1
    assert "not an enrolled node: nobody" in done.stderr


@pytest.mark.django_db
def test_who_cannot_be_asked_is_named_and_nobody_is_asked():
    with pytest.raises(CommandError, match="nobody to ask"):
        call_command("resync")
    with audited():
        Node.objects.create(name="n1", region="eu", state="ready", state_since=NOW, created_at=NOW, enrolled_at=NOW)
    with pytest.raises(CommandError, match="no node has a source 'vllm'"):
        call_command("resync", "--source", "vllm")
    with pytest.raises(CommandError, match="no source 'vllm' was heard of: n1"):
        call_command("resync", "n1", "--source", "vllm")
    for wrong in ("-1", "nan", "soon"):
        with pytest.raises(CommandError, match="--wait"):
            call_command("resync", f"--wait={wrong}")
    assert not NodeCommand.objects.exists()
