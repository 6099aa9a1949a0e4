"""`kvc` in a process of its own, and who it acts for."""

import os
import subprocess
import sys

import pytest

from tests.architecture.tree import CLONE


@pytest.fixture
def kvc(live_server, tmp_path):
    """`kvc(*words, token=…, url=…, text=…)` runs it; answers code, output and errors."""

    def run(*words, token="", url=live_server.url, text=None):
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "KVC_CONFIG_HOME": str(tmp_path / "c"),
            "KVC_URL": url,
        }
        env |= {"KVC_TOKEN": token} if token else {}
        done = subprocess.run(
            [sys.executable, "-m", "kvconsole.cli.main", *words], capture_output=True, text=True, cwd=CLONE, env=env,
            input=text or "", timeout=60,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def staff():
    from tenants import services

    return services.token_issue("service", roles=["operator", "viewer"])[1]
