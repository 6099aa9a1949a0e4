"""One site: what stays over restarts, and who is told what."""

import stat
from pathlib import Path

import pytest

from kvconsole.programs import PROGRAMS, Site
from kvconsole.roles import ROLES

DATABASE = {"KVC_DB_HOST": "127.0.0.1", "KVC_DB_PORT": "1", "KVC_DB_NAME": "x"}
DATABASE |= {f"KVC_DB_{role.upper()}_PASSWORD": f"pw-{role}" for role in ROLES}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "state", database=DATABASE, valkey_url="redis://:x@127.0.0.1:1/0")


def test_ports_and_secrets_stay(site: Site) -> None:
    again = Site(site.state, database=DATABASE, valkey_url=site.valkey_url)
    assert (again.ports, again.env("web")) == (site.ports, site.env("web"))


def test_what_is_kept_is_private(site: Site) -> None:
    assert stat.S_IMODE(site.state.stat().st_mode) == 0o700
    assert stat.S_IMODE((site.state / "site.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((site.state / "keys").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_process_knows_its_own_password_and_no_other(site: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVC_DB_MIGRATE_PASSWORD", "left over in a shell")
    env = site.env(name)
    known = {k for k in env if k.endswith("_PASSWORD") and k.startswith("KVC_DB_")}
    assert known == {f"KVC_DB_{role.upper()}_PASSWORD" for role in PROGRAMS[name].roles}
    for private in ("KVC_COMMAND_KEY_FILE", "KVC_LOG_KEY_FILE", "KVC_EXPORT_KEY_FILE", "KVC_SIGNER_STATE"):
        assert (private in env) == (name == "signer")
    assert ("KVC_SIGNER_LOG_TOKEN" in env) == (name in ("signer", "sequencer")), "who writes events has no heads signed"
    assert env.get("KVC_DB_ROLE") == (PROGRAMS[name].roles or (None,))[0]


def test_no_secret_is_on_a_command_line(site: Site) -> None:
    secrets = {v for name in PROGRAMS for k, v in site.env(name).items() if k.endswith(("_PASSWORD", "_TOKEN", "_KEY"))}
    words = {word for name in PROGRAMS for word in site.command(name)}
    assert not secrets & words
