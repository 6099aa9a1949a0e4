"""What machines ask: answered without an account, and honest when a part is not well."""

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from kvconsole import plumbing
from kvconsole.embedded import Postgres, Valkey

pytestmark = pytest.mark.django_db
Heard = Callable[[float], None]


class Ready(http.server.BaseHTTPRequestHandler):
    """A far side that says it is the writer."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def parts(client: Client, status: int) -> dict[str, dict[str, object]]:
    answer = client.get("/readyz")
    assert answer.status_code == status, answer.content
    assert answer.json()["ready"] == (status == 200)
    return answer.json()["parts"]


@pytest.fixture
def heard(postgres: Postgres, valkey: Valkey) -> Iterator[Callable[[float], None]]:
    """Says when the writer of shard 0 was last heard, in seconds before now. Committed, as another process would."""
    dsn = postgres.superuser_dsn(settings.DB_NAME)

    def say(seconds_ago: float) -> None:
        with psycopg.connect(dsn) as c:
            c.execute("DELETE FROM catalog_shard")
            c.execute(
                "INSERT INTO catalog_shard (id, next_owner, next_keyspace, next_seg, next_source, seen_at)"
                " VALUES (0, 1, 1, 1, 1, now() - make_interval(secs => %s))",
                (seconds_ago,),
            )

    yield say
    with psycopg.connect(dsn) as c:
        c.execute("DELETE FROM catalog_shard")


def test_healthz_looks_at_nothing(client: Client, django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        answer = client.get("/healthz", headers={"host": "10.1.2.3"})
    assert (answer.status_code, answer.content) == (200, b"ok\n")


def test_only_reading_is_offered(client: Client) -> None:
    assert client.post("/readyz").status_code == 405


def test_ready_when_every_part_is_well(client: Client, heard: Heard) -> None:
    heard(0.5)
    assert all(part["ok"] for part in parts(client, 200).values())


def test_no_writer_yet(client: Client, valkey: Valkey) -> None:
    assert parts(client, 503)["ingest"]["detail"] == "no writer has been heard yet"


def test_a_silent_writer(client: Client, heard: Heard) -> None:
    heard(plumbing.INGEST_LAG_SECONDS + 5)
    found = parts(client, 503)
    assert [name for name, part in found.items() if not part["ok"]] == ["ingest"]
    assert "the last commit was" in str(found["ingest"]["detail"])


def test_an_idle_writer_is_asked(client: Client, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    heard(plumbing.INGEST_LAG_SECONDS + 5)
    with http.server.HTTPServer(("127.0.0.1", 0), Ready) as writer:
        threading.Thread(target=writer.serve_forever, daemon=True).start()
        monkeypatch.setattr(settings, "INGEST_URLS", ["http://127.0.0.1:1", f"http://127.0.0.1:{writer.server_port}"])
        assert "idle" in str(parts(client, 200)["ingest"]["detail"])
        writer.shutdown()


def test_a_broker_that_is_away_is_named_without_its_address(
    client: Client, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard(0.5)
    monkeypatch.setattr(settings, "VALKEY_URL", "redis://:secret@127.0.0.1:1/0")
    found = parts(client, 503)
    assert [name for name, part in found.items() if not part["ok"]] == ["broker"]
    assert "secret" not in str(found)


def test_a_key_store_that_others_may_enter(
    client: Client, heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard(0.5)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    monkeypatch.setattr(settings, "KEYSTORE_DIR", str(open_to_all))
    assert "others" in str(parts(client, 503)["key_store"]["detail"])
    open_to_all.chmod(0o700)
    heard(0.5)
    assert parts(client, 200)["key_store"]["ok"]
    (tmp_path / "epochs").mkdir(mode=0o755)
    monkeypatch.setattr(settings, "SHRED_DIR", str(tmp_path / "epochs"))
    assert "shred epochs" in str(parts(client, 503)["key_store"]["detail"])
    monkeypatch.setattr(settings, "KEYSTORE_DIR", str(tmp_path / "absent"))
    assert not parts(client, 503)["key_store"]["ok"]


def test_metrics_count_by_route_and_never_by_tenant(client: Client, heard: Heard) -> None:
    heard(1.0)
    client.get("/login")
    client.get("/no/such/page/at-all")
    client.get("/api/v1/tenants/somebodys-slug")
    text = client.get("/metrics").content.decode()
    assert 'kvc_http_requests_total{method="GET",route="login",status="200"}' in text
    assert "at-all" not in text
    assert "somebodys-slug" not in text
    assert "tenant" not in re.sub(r'route="[^"]*"', "", text)
    assert "kvc_ingest_lag_seconds 1." in text
    for name in ("leaves", "unsigned_leaves", "pending", "pending_seconds", "findings"):
        assert re.search(rf"^kvc_log_{name} \d", text, re.MULTILINE), name


def test_metrics_say_when_nobody_was_heard(client: Client) -> None:
    assert "kvc_ingest_lag_seconds NaN" in client.get("/metrics").content.decode()


def test_metrics_ask_for_their_bearer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "METRICS_TOKEN", "scraper")
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"authorization": "Bearer guess"}).status_code == 401
    assert client.get("/metrics", headers={"authorization": "Bearer scraper"}).status_code == 200


def test_production_pages_do_not_start_without_key_store_and_metrics_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DEMO", False)
    monkeypatch.setattr(settings, "KEYSTORE_DIR", "")
    monkeypatch.setattr(settings, "METRICS_TOKEN", "")
    with pytest.raises(ImproperlyConfigured) as e:
        plumbing.refuse_bad_start()
    assert [line.split()[0] for line in str(e.value).splitlines()] == ["KVC_KEYSTORE_DIR", "KVC_METRICS_TOKEN"]


@pytest.mark.parametrize(("peer", "believed"), [("10.9.0.1", True), ("192.0.2.7", False), ("", False)])
def test_only_trusted_proxies_say_that_a_request_was_encrypted(
    settings, client: Client, peer: str, believed: bool
) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_SSL_REDIRECT, settings.TRUSTED_PROXIES = True, ["10.9.0.0/16"]
    answer = client.get("/login", headers={"x-forwarded-proto": "https"}, REMOTE_ADDR=peer)
    assert answer.status_code == (200 if believed else 301)
    assert ("strict-transport-security" in answer.headers) == (believed and bool(settings.SECURE_HSTS_SECONDS))
