"""Roles and database are made from an environment, as in production."""

import psycopg
import pytest

from kvconsole.embedded import Postgres
from kvconsole.roles import ROLES, make, statements
from kvconsole.settings.env import Env


def test_every_placeholder_is_filled() -> None:
    text = statements({role: f"pw-{role}" for role in ROLES})
    assert not [role for role in ROLES if f"{{kv_{role}_password}}" in text]
    assert all(f"'pw-{role}'" in text for role in ROLES)


@pytest.mark.parametrize("password", ["", "it's", "a b", "{x}", "back\\slash"])
def test_a_password_that_could_leave_its_quotes_is_refused(password: str) -> None:
    with pytest.raises(ValueError, match="kv_tenant"):
        statements({role: "good" for role in ROLES} | {"tenant": password})


def test_what_is_missing_is_named_and_nothing_is_done() -> None:
    problems = make(Env({}))
    assert len(problems) == 1 + len(ROLES)


def test_a_production_database_is_made_twice_over(postgres: Postgres) -> None:
    env = postgres.env("made_by_roles") | {"KVC_DB_SUPERUSER_PASSWORD": postgres.secrets["superuser"]}
    assert make(Env(env)) == []
    assert make(Env(env)) == []
    with psycopg.connect(postgres.dsn("operator", "made_by_roles")) as c:
        assert c.execute("SELECT current_user").fetchone() == ("kv_operator",)
        owner = c.execute("SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database()").fetchone()
    assert owner == ("kv_owner",)
    postgres.drop_database("made_by_roles")
