"""Settings: everything wrong is said at once; production cannot be started by halves."""

import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured

from kvconsole.roles import make
from kvconsole.settings import outside
from kvconsole.settings.env import Env
from tests.architecture.tree import CLONE

GOOD = {
    "KVC_SECRET_KEY": "k" * 64,
    "KVC_CONSOLE_URL": "https://console.example.org",
    "KVC_INGEST_URLS": "https://ingest.example.org,http://127.0.0.1:8001",
    "KVC_SIGNER_URL": "http://127.0.0.1:8002",
    "KVC_ALLOWED_HOSTS": "console.example.org",
}


def load(kind: str, show: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Import a settings module in a process of its own with only these variables."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KVC_", "DJANGO_"))}
    code = f"import kvconsole.settings.{kind} as s; print({show or 'None'})"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=kept | env, capture_output=True, text=True, cwd=CLONE)


def test_a_secret_comes_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("from the file\n")
    assert Env({"A_FILE": str(path), "A": "from the variable"}).text("A") == "from the file"


def test_values_are_typed() -> None:
    env = Env({"N": "7", "YES": "true", "NO": "0", "LIST": "a, b,,c "})
    assert (env.number("N"), env.flag("YES"), env.flag("NO"), env.items("LIST")) == (7, True, False, ["a", "b", "c"])
    assert (env.number("MISSING", 3), env.flag("MISSING"), env.items("MISSING")) == (3, False, [])
    env.check()


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    env = Env({"N": "many", "B": "perhaps", "S_FILE": str(tmp_path / "absent")})
    env.number("N"), env.flag("B"), env.text("S"), env.text("T", None)
    with pytest.raises(ImproperlyConfigured) as e:
        env.check()
    assert all(name in str(e.value) for name in ("N is not", "B is neither", "S_FILE", "T (or T_FILE) is not set"))


def test_production_starts_with_what_it_needs() -> None:
    show = (
        "s.DEBUG, s.DEMO, s.SESSION_COOKIE_NAME, s.CSRF_COOKIE_NAME, s.SECURE_HSTS_SECONDS > 0, s.SESSION_COOKIE_SECURE"
    )
    done = load("prod", show, **GOOD)
    assert done.stdout.strip() == "False False __Host-kvc __Host-kvc-csrf True True", done.stderr


@pytest.mark.parametrize(
    ("kind", "env", "asked"),
    [
        ("prod", GOOD, "True"),
        ("prod", GOOD | {"KVC_REQUIRE_SECOND_FACTOR": "off"}, "False"),
        ("dev", {}, "False"),
        ("dev", {"KVC_REQUIRE_SECOND_FACTOR": "on"}, "True"),
    ],
)
def test_production_asks_for_a_second_factor_unless_told_not_to(kind: str, env: dict[str, str], asked: str) -> None:
    assert load(kind, "s.REQUIRE_SECOND_FACTOR", **env).stdout.strip() == asked


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("KVC_SECRET_KEY", "short", "KVC_SECRET_KEY"),
        ("KVC_SECRET_KEY", "development-only-" + "0" * 64, "made for development"),
        ("KVC_CONSOLE_URL", "http://console.example.org", "must be https"),
        ("KVC_INGEST_URLS", "http://ingest.example.org", "plain HTTP off loopback"),
        ("KVC_SIGNER_URL", "http://10.0.0.7:8002", "plain HTTP off loopback"),
        ("KVC_WITNESS_URL", "http://10.0.0.8", "plain HTTP off loopback"),
        ("KVC_ALLOWED_HOSTS", "*", "no wildcard"),
        ("KVC_ALLOWED_HOSTS", "elsewhere.example.org", "must name the host"),
        ("KVC_BEHIND_PROXY", "on", "KVC_TRUSTED_PROXIES must name"),
        ("KVC_TRUSTED_PROXIES", "proxy.example.org", "is no network"),
        ("KVC_TRUSTED_PROXIES", "10.0.0.1, 0.0.0.0/0", "0.0.0.0/0 is everybody"),
        ("KVC_TRUSTED_PROXIES", "::/0", "is everybody"),
        ("KVC_DB_HOST", "db.example.org", "KVC_DB_SSLROOTCERT must name"),
        ("KVC_DB_HOST", "10.0.0.5", "sslmode verify-full"),
        ("KVC_DB_SSLMODE", "prefer", "KVC_DB_SSLMODE is none of"),
        ("KVC_DB_SSLMODE", "verify-ca", "KVC_DB_SSLROOTCERT must name"),
        ("KVC_VALKEY_URL", "redis://:x@valkey.example.org:6379/0", "needs rediss://"),
        ("KVC_VALKEY_URL", "rediss://:x@valkey.example.org:6379/0?ssl_cert_reqs=none", "believes any certificate"),
    ],
)
def test_production_refuses(name: str, value: str, said: str) -> None:
    done = load("prod", **GOOD | {name: value})
    assert done.returncode
    assert said in done.stderr


FAR = {"KVC_DB_HOST": "db.example.org", "KVC_VALKEY_URL": "rediss://:x@valkey.example.org:6380/0"}
CA = {"KVC_DB_SSLROOTCERT": "/etc/ssl/db.pem"}


@pytest.mark.parametrize(
    ("env", "sslmode", "ca"),
    [
        ({}, None, None),
        ({"KVC_DB_HOST": "/run/postgresql"}, None, None),
        ({"KVC_DB_HOST": "::1", "KVC_VALKEY_URL": "redis://[::1]:6379/0"}, None, None),
        ({"KVC_DB_SSLMODE": "require"}, "require", None),
        (FAR | CA, "verify-full", "/etc/ssl/db.pem"),
        (FAR | CA | {"KVC_DB_SSLMODE": "verify-ca"}, "verify-ca", "/etc/ssl/db.pem"),
        (FAR | {"KVC_DB_SSLMODE": "disable"}, "disable", None),
        ({"KVC_VALKEY_URL": "redis://10.0.0.9:6379/0", "KVC_VALKEY_PLAIN": "on"}, None, None),
        ({"KVC_BEHIND_PROXY": "on", "KVC_TRUSTED_PROXIES": "10.0.0.0/24,192.0.2.1"}, None, None),
    ],
)
def test_what_is_elsewhere_is_reached_encrypted(env: dict[str, str], sslmode: str | None, ca: str | None) -> None:
    show = (
        "[[d['OPTIONS'].get(k) for k in ('sslmode', 'sslrootcert')] for d in s.DATABASES.values()],"
        " getattr(s, 'SECURE_PROXY_SSL_HEADER', None) is not None"
    )
    done = load("prod", show, **GOOD | env)
    assert done.stdout.strip() == f"{[[sslmode, ca]] * 2} {'KVC_BEHIND_PROXY' in env}", done.stderr


def test_every_client_of_valkey_asks_for_its_certificate() -> None:
    from kombu import Connection

    url = outside.verified(FAR["KVC_VALKEY_URL"])
    assert Connection(url).ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    assert Connection(outside.verified(f"{FAR['KVC_VALKEY_URL']}?ssl_ca_certs=/ca.pem")).ssl == {
        "ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "/ca.pem",
    }  # fmt: skip
    made = redis.ConnectionPool.from_url(url).make_connection()
    assert (made.cert_reqs, made.check_hostname) == (ssl.CERT_REQUIRED, True)
    for same in ("redis://127.0.0.1:6379/0", "rediss://v:1/0?ssl_cert_reqs=none"):
        assert outside.verified(same) == same
    done = load("prod", "s.VALKEY_URL, s.CELERY_BROKER_URL, s.CHANNEL_LAYERS['default']['CONFIG']['hosts']",
                **GOOD | FAR | CA)  # fmt: skip
    assert done.stdout.strip() == f"{url} {url} {[url]}", done.stderr


def test_connections_beside_the_orm_are_encrypted_too(settings: Any) -> None:
    from kvconsole.infra import sql

    settings.DB_SSL = {"sslmode": "verify-full", "sslrootcert": "/etc/ssl/db.pem"}
    assert "sslmode=verify-full" in sql.dsn("ingest")
    assert "sslrootcert=/etc/ssl/db.pem" in sql.dsn("ingest")
    problems = make(Env({"KVC_DB_HOST": "db.example.org"}))
    assert [p for p in problems if "KVC_DB_SSLROOTCERT" in p]


def test_production_needs_its_secret() -> None:
    done = load("prod", **{k: v for k, v in GOOD.items() if k != "KVC_SECRET_KEY"})
    assert done.returncode
    assert "KVC_SECRET_KEY" in done.stderr


def test_development_needs_nothing() -> None:
    assert load("dev", "s.DEMO").stdout.strip() == "True"


def test_settings_files_are_short() -> None:
    lengths = {p.stem: len(p.read_text().splitlines()) for p in (CLONE / "kvconsole" / "settings").glob("*.py")}
    assert lengths.pop("base") <= 250
    assert max(lengths.values()) <= 80
