"""What the accept tests of tenancy ask with: people who log in, tokens that they make, and rows that are planted."""

import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import psycopg

from kvconsole.infra.sql import PLATFORM
from tenants import tokens
from tests.running import Console

API = "/api/v1"
FRESH_SECONDS = 120.0


class Caller:
    """Speaks JSON to the API: as the owner of a token, as a person in a browser, or as nobody."""

    def __init__(self, url: str, token: str = "", **options: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.token = token
        self.http = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, **options)

    def __del__(self) -> None:
        """Whoever is dropped has hung up."""
        self.http.close()

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """The answer of the API."""
        if not self.token and "csrftoken" in self.http.cookies:
            headers = {"X-CSRFToken": self.http.cookies["csrftoken"], "Referer": str(self.http.base_url), **headers}
        content = {} if body is None else {"json": body}
        return self.http.request(method, f"{API}{path}", headers=headers, **content)

    def get(self, path: str) -> Any:
        """What a good answer says."""
        return good(self("GET", path))

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """What a good answer says."""
        return good(self("POST", path, body, **headers))

    def put(self, path: str, body: Any) -> Any:
        """The resource is this; what the answer says."""
        return good(self("PUT", path, body, **{"If-Match": "*"}))

    def log_in(self, username: str, password: str) -> "Caller":
        """Fills in the form."""
        self.http.get("/login")
        fields = {"username": username, "password": password, "csrfmiddlewaretoken": self.http.cookies["csrftoken"]}
        answer = self.http.post("/login", data=fields, headers={"Referer": str(self.http.base_url)})
        assert answer.status_code == 302, (username, answer.status_code, answer.text[:500])
        return self


def accept(browser: Caller, link: str) -> str:
    """The invitation is taken as the script of its page does it; the password that was chosen. The person is in."""
    page, _, secret = link.partition("#")
    browser.http.get(page)

    def post(**fields: str) -> httpx.Response:
        given = {**fields, "csrfmiddlewaretoken": browser.http.cookies["csrftoken"]}
        return browser.http.post(page, data=given, headers={"Referer": page})

    opened = post(token=secret)
    assert (opened.status_code, opened.headers.get("Location")) == (302, "/invitation"), opened.text[-2500:]
    browser.http.get(page)
    password = "a rather long phrase 4711"
    answer = post(password1=password, password2=password)
    assert answer.status_code == 302, (answer.status_code, answer.text[-2500:])
    return password


def good(answer: httpx.Response) -> Any:
    """The JSON of an answer that must be good."""
    assert answer.status_code < 300, (str(answer.request.url), answer.status_code, answer.text[:600])
    return answer.json() if answer.content else None


class People:
    """The demonstration's people in their browsers, and tokens made by them. Needs `web`."""

    def __init__(self, console: Console) -> None:
        self.console, self.logins = console, console.seed()
        self.browsers: dict[str, tuple[float, Caller]] = {}

    def browser(self, username: str) -> Caller:
        """The person, who has logged in lately enough for acts that need a fresh proof."""
        at, known = self.browsers.get(username, (-FRESH_SECONDS, None))
        if known is None or time.monotonic() - at > FRESH_SECONDS:
            at, known = time.monotonic(), Caller(self.console.url).log_in(username, self.logins[username])
            self.browsers[username] = at, known
        return known

    def token(self, username: str, *roles: str, tenant: str = "platform", scopes: Sequence[str] = ()) -> Caller:
        """A token that the person has made of some of the own roles."""
        body = {"name": "accept", "roles": list(roles), "scopes": list(scopes)}
        made = self.browser(username).post(f"/tenants/{tenant}/tokens", body)
        return Caller(self.console.url, made["token"])

    def service(self, tenant: str, *roles: str, kind: str = "service") -> Caller:
        """A token of a new service account of the tenant, made by the operator."""
        operator = self.browser("operator")
        fields = {"username": f"s-{uuid.uuid4().hex[:8]}", "tenant": tenant, "kind": "service", "roles": list(roles)}
        owner = operator.post("/people", fields)["id"]
        body = {"name": "accept", "owner": owner, "kind": kind, "roles": list(roles)}
        return Caller(self.console.url, operator.post(f"/tenants/{tenant}/tokens", body)["token"])


# --- planted rows ---------------------------------------------------------------------


@contextmanager
def planting(console: Console) -> Iterator[psycopg.Connection]:
    """A superuser's connection on which triggers and foreign keys rest: a test may put rows anywhere."""
    with psycopg.connect(console.database.dsn("superuser")) as cx:
        cx.execute("SET session_replication_role = replica")
        yield cx


def plant_token(
    console: Console, *roles: str, tenant: uuid.UUID = PLATFORM, kind: str = "service", holder: str = "",
    scopes: Sequence[str] = (),
) -> str:  # fmt: skip
    """A token that is good for an hour and has nobody behind it; its plaintext."""
    plaintext, parsed = tokens.generate(kind)
    values = (parsed.id, kind, tenant, holder, parsed.secret_hash, list(roles), list(scopes))
    with planting(console) as cx:
        cx.execute(
            "INSERT INTO tenants_token (id, kind, tenant_id, holder, name, secret_hash, roles, scopes, cidr,"
            " created_at, expires_at) VALUES (%s, %s, %s, %s, '', %s, %s, %s, '', now(), now() + interval '1 hour')",
            values,
        )
    return plaintext


def clone(cx: psycopg.Connection, table: str, count: int, where: str, **fresh: str) -> None:
    """`count` copies of a row, with these columns made anew by SQL; `{i}` is the copy's number."""
    names = [row[0] for row in cx.execute(f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass"
             " AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attidentity = ''")]  # fmt: skip
    columns = ", ".join(fresh.get(name, f't."{name}"').replace("{i}", "i") for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    cx.execute(
        f"INSERT INTO {table} ({listed}) SELECT {columns}"
        f" FROM (SELECT * FROM {table} WHERE {where} LIMIT 1) t, generate_series(1, {count}) i"
    )


def plain(text: str, *said: str) -> str:
    """An answer's text without what differs from call to call: ids, times, tokens of forms, what was asked for."""
    for one in sorted((s for s in said if s), key=len, reverse=True):
        text = text.replace(one, "<asked>")
    text = re.sub(r'<span data-clock>[0-9:]{8}|"age_ms":[0-9]+', "<time>", text)
    return re.sub(r'(csrfmiddlewaretoken" value=|nonce=|data-now=|X-CSRFToken": ?)"[^"]*"', r'\1"<id>"', text)
