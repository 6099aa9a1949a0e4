"""`kvc` in a process of its own, and who it acts for."""

import os

import pytest

from tests.kvconsole.cli.forked import Forked


@pytest.fixture(scope="session")
def forked():
    running = Forked()
    yield running
    running.close()


@pytest.fixture
def kvc(forked, live_server, tmp_path):
    """`kvc(*words, token=…, url=…, text=…)` runs it; answers code, output and errors."""

    def run(*words, token="", url=live_server.url, text=None):
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "KVC_CONFIG_HOME": str(tmp_path / "c"),
            "KVC_URL": url,
        }
        env |= {"KVC_TOKEN": token} if token else {}
        code, out, err = forked.run(words, env, text or "", tmp_path)
        assert "Traceback" not in err, err
        return code, out, err

    return run


@pytest.fixture
def staff():
    from tenants import services

    return services.token_issue("service", roles=["operator", "viewer"])[1]
