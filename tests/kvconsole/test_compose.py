"""docker-compose.yml says what the settings and `kvconsole.programs` say."""

import os
import re
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from django.core.management import get_commands

from kvconsole.programs import PROGRAMS
from kvconsole.roles import ROLES
from kvconsole.settings import base
from tests.architecture.tree import CLONE

COMPOSE: dict[str, Any] = yaml.safe_load((CLONE / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: s for name, s in SERVICES.items() if "build" in s}
DJANGO = {name: s for name, s in OURS.items() if name in PROGRAMS or name == "migrate"}
NOT_SETTINGS = {"KVC_ENV", "KVC_DB_SUPERUSER", "KVC_DB_SUPERUSER_PASSWORD", "KVC_BEHIND_PROXY"}


def plain(name: str) -> dict[str, str]:
    """Environment of a service by the name of the setting, whether it is given itself or as a file."""
    given = OURS[name].get("environment", {})
    return {k if k in base.env.seen else k.removesuffix("_FILE"): v for k, v in given.items()}


def test_every_process_is_there_and_an_agent() -> None:
    assert set(PROGRAMS) | {"migrate", "roles", "agent"} == set(OURS)
    assert SERVICES["postgres"]["image"].startswith("postgres:18")
    assert SERVICES["valkey"]["image"].startswith("valkey/")


@pytest.mark.parametrize("name", [n for n in OURS if n != "agent"])
def test_every_variable_is_a_setting(name: str) -> None:
    assert set(plain(name)) - NOT_SETTINGS <= base.env.seen


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_process_is_started_as_in_development(name: str) -> None:
    command = [str(x) for x in OURS[name]["command"]]
    assert command[0] == "python"
    essential = [x for x in PROGRAMS[name].arguments if re.fullmatch(r"-m|[a-z]+(\.[a-z]+)*(:application)?", x)]
    wanted = [x for x in essential if x in ("kvconsole.web", "celery", "manage.py", name)]
    assert [x for x in command if x in wanted] == wanted
    if "manage.py" in command:
        assert command[command.index("manage.py") + 1] in get_commands()


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_process_gets_the_passwords_of_its_roles_and_no_other(name: str) -> None:
    env = plain(name)
    given = {role for role in ROLES if f"KVC_DB_{role.upper()}_PASSWORD" in env}
    assert given == set(PROGRAMS[name].roles)
    assert env.get("KVC_DB_ROLE") == (PROGRAMS[name].roles or (None,))[0]
    assert set(PROGRAMS[name].secrets) <= set(env)
    for secret in (
        "KVC_SIGNER_TOKEN",
        "KVC_SIGNER_LOG_TOKEN",
        "KVC_COMMAND_KEY_FILE",
        "KVC_LOG_KEY_FILE",
        "KVC_KEYSTORE_DIR",
    ):
        assert (secret in env) == (secret in PROGRAMS[name].secrets)


def test_ports_are_those_of_the_addresses() -> None:
    env = plain("web")
    listening = {"ingest": "KVC_INGEST_URLS", "signer": "KVC_SIGNER_URL", "router": "KVC_ROUTER_URL"}
    for service, url in ((name, env[setting]) for name, setting in listening.items()):
        command = [str(x) for x in OURS[service]["command"]]
        assert command[command.index("--port") + 1] == str(urlsplit(url).port)
    web = [str(x) for x in OURS["web"]["command"]]
    published = {p.rsplit(":", 1)[1] for p in SERVICES["net"]["ports"]}
    asked = {str(urlsplit(env[name]).port) for name in ("KVC_INGEST_URLS", "KVC_ROUTER_URL")}
    assert published == {web[web.index("--port") + 1], *asked}
    assert all(p.startswith("127.0.0.1:") for p in SERVICES["net"]["ports"])
    assert env["KVC_DB_PORT"] in SERVICES["postgres"]["command"]


def test_who_calls_is_what_the_proxy_says_and_nobody_else() -> None:
    """A published port is reached through the gateway of the network: from there alone X-Forwarded-For is believed."""
    (place,) = COMPOSE["networks"]["default"]["ipam"]["config"]
    for name in ("web", "ingest", "router"):
        env = plain(name)
        assert env["KVC_BEHIND_PROXY"] == "on"
        trusted = [ip_network(x.strip()) for x in env["KVC_TRUSTED_PROXIES"].split(",")]
        assert trusted == [ip_network(place["gateway"])]
        assert trusted[0].subnet_of(ip_network(place["subnet"]))
    assert "networks" not in SERVICES["net"], "the default one"


@pytest.mark.parametrize("name", list(OURS))
def test_secrets_are_declared_given_and_used(name: str) -> None:
    service = OURS[name]
    files = {v.removeprefix("/run/secrets/") for v in service.get("environment", {}).values() if "/run/secrets/" in v}
    assert files == set(service.get("secrets", []))
    assert files <= set(COMPOSE["secrets"])
    assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
    mounted = {v.split(":")[0] for v in service.get("volumes", [])}
    assert mounted <= set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", list(OURS))
def test_a_service_is_given_what_it_uses_and_no_more(name: str) -> None:
    volumes = {
        "web": ["keys:/keys", "epochs:/epochs", "exports:/exports"],
        "worker": ["keys:/keys", "epochs:/epochs", "exports:/exports"],
        "router": ["keys:/keys", "epochs:/epochs"],
        "signer": ["signer:/signer"],
    } | {
        "agent": ["agent:/data"],
        "witness": ["witness:/witness"],
    }
    assert OURS[name].get("volumes", []) == volumes.get(name, [])
    env = OURS[name].get("environment", {})
    users = {
        "KVC_VALKEY_URL_FILE": {"web", "ingest", "router", "worker", "beat", "sequencer"},
        "KVC_METRICS_TOKEN_FILE": {"web"},
        "KVC_TRUSTED_PROXIES": {"web", "ingest", "router"},
        "KVC_AGENT_NETWORKS": {"web", "worker"},
        "KVC_SECRET_KEY_FILE": set(DJANGO),
        "KVC_DB_HOST": {"roles", "migrate", "web", "ingest", "router", "worker", "sequencer"},
    }
    assert {key: key in env for key in users} == {key: name in who for key, who in users.items()}
    assert OURS[name]["read_only"]
    assert OURS[name]["cap_drop"] == ["ALL"]


@pytest.mark.parametrize("name", list(SERVICES))
def test_secrets_are_files_and_never_values(name: str) -> None:
    env = SERVICES[name].get("environment", {})
    secret = {key for key in env if re.search("PASSWORD|TOKEN|SECRET|VALKEY_URL", key)}
    assert {key for key in secret if not key.endswith("_FILE")} == set()
    assert {env[key].rpartition("/")[0] for key in secret} <= {"/run/secrets"}


@pytest.mark.parametrize("name", list(DJANGO))
def test_production_settings_accept_the_environment(name: str, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("KVC_", "DJANGO_"))}
    for key, value in OURS[name]["environment"].items():
        value = re.sub(r"\$\{KVC_HOST[^}]*\}", "console.example.org", str(value))
        value = re.sub(r"\$\{KVC_[A-Z_]+:-\}", "", value)
        if value.startswith("/run/secrets/"):
            path = tmp_path / Path(value).name
            path.write_text("redis://:x@127.0.0.1:6379/0" if path.name == "valkey_url" else "s" * 64)
            value = str(path)
        env[key] = value
    code = "import kvconsole.settings.prod as s; print(s.DATABASES['default']['USER'])"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=CLONE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"kv_{env.get('KVC_DB_ROLE', 'operator')}"
