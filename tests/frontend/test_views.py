"""Pages as the server writes them: who may, what is in them, how many queries they cost."""

import re
from datetime import timedelta
from itertools import pairwise

import psycopg
import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.conftest import TEST_DATABASE
from tests.frontend import plant

pytestmark = pytest.mark.django_db
PAGES = ("/", "/map", "/nodes", "/nodes/fra-p2", "/docs/ui", "/docs/problems", "/docs/problems/queue-full")
BUDGET = {"/": 30, "/map": 40, "/nodes": 16, "/nodes/fra-p2": 45}
"""Queries of a page, with session and principal; independent of the number of nodes and blocks."""


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_a_page_is_complete_without_scripts(planted, person, path, language):
    client = person("viewer")
    client.cookies["django_language"] = language
    answer = client.get(path)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert f'lang="{"zh-Hans" if language != "en" else "en"}"' in text
    assert text.count("<h1") == 1
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert sorted(set(ids)) == sorted(ids), "a refresh finds its part by id: two of one id would be mixed up"
    assert "style=" not in text.replace("data-style=", "")
    assert "<script>" not in text
    assert "onclick" not in text


@pytest.mark.parametrize("path", list(BUDGET))
def test_a_page_stays_in_its_budget_of_queries(planted, person, path):
    client = person("viewer")
    client.get(path)
    with CaptureQueriesContext(connections["default"]) as spent:
        assert client.get(path).status_code == 200
    assert len(spent) <= BUDGET[path], "\n".join(q["sql"][:110] for q in spent)


def test_what_nodes_say_is_escaped(planted, person):
    text = person("viewer").get("/nodes/fra-p2").content.decode()
    assert "<b>not markup" not in text


# --- refusals and log-in --------------------------------------------------------------------------------------------


def test_an_unknown_address_is_a_page_for_people_and_a_problem_for_programs(client, person):
    answer = person("viewer").get("/nodes/nobody")
    assert answer.status_code == 404
    text = answer.content.decode()
    assert "There is nothing here for you" in text
    assert "Nothing was changed." in text
    assert answer.headers["X-Request-ID"] in text
    assert client.get("/api/v1/nothing").headers["Content-Type"] == "application/problem+json"
    assert client.get("/nothing", headers={"accept": "application/json"}).json()["code"] == "not-found"


def test_a_form_without_its_token_is_refused_in_the_same_look():
    from django.test import Client

    answer = Client(enforce_csrf_checks=True, headers={"accept": "text/html"}).post("/preferences", {"theme": "dark"})
    assert answer.status_code == 403
    assert "The form is too old" in answer.content.decode()


def test_a_broken_page_says_what_was_not_done_and_its_request(person, monkeypatch):
    from frontend import pages

    def broken(now):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(pages, "nodes", broken)
    client = person("viewer")
    client.raise_request_exception = False
    answer = client.get("/nodes")
    text = answer.content.decode()
    assert answer.status_code == 500
    assert "The console made a mistake" in text
    assert "secret detail" not in text
    assert answer.headers["X-Request-ID"] in text


@pytest.mark.parametrize(("accept", "shown"), [("text/html", "A part of the console is away"), ("*/*", "unavailable")])
def test_while_postgresql_is_away_a_page_says_that_and_not_that_we_erred(person, monkeypatch, accept, shown):
    from django.db import OperationalError

    from frontend import pages

    def away(now):
        raise OperationalError("secret detail")

    monkeypatch.setattr(pages, "nodes", away)
    client = person("viewer")
    client.raise_request_exception = False
    answer = client.get("/nodes", headers={"accept": accept})
    assert answer.status_code == 503
    assert shown in answer.content.decode()
    assert "secret detail" not in answer.content.decode()


def test_a_wrong_password_says_nothing_about_the_name(client, person):
    person("viewer")
    texts = set()
    for name in ("mira-okafor", "nobody-of-this-name"):
        answer = client.post("/login", {"username": name, "password": "wrong"}, headers={"accept": "text/html"})
        assert answer.status_code == 200
        texts.add(
            answer.content.decode()
            .replace(name, "")
            .partition('<form method="post" class="stack"')[2]
            .partition("token")[0]
        )
    assert len(texts) == 1


def test_log_in_and_out(client, person):
    person("viewer")
    given = {"username": "mira-okafor", "password": "a long enough password 1", "next": "/map"}
    assert client.post("/login", given).url == "/map"
    assert client.get("/docs/ui", headers={"accept": "text/html"}).context["console"]["principal"].name
    assert client.post("/logout").status_code == 302
    assert client.get("/nodes", headers={"accept": "text/html"}).status_code == 302
    assert client.post("/login", given | {"next": "https://evil.example/"}).url == "/"


def test_logging_in_and_out_and_being_refused_are_events(client, person):
    import json

    from audit.models import Event
    from tenants.services import identity

    def trail():
        rows = Event.objects.defer("pii_ct", "pii_key").filter(event_type__in=(0x0112, 0x0113, 0x0114)).order_by("id")
        return [(json.loads(bytes(e.body))["action"], e.outcome, json.loads(bytes(e.body))["data"]) for e in rows]

    identity._refused_logins = identity.Repetitions()
    person("viewer")
    given = {"username": "mira-okafor", "password": "a long enough password 1"}
    for _ in range(3):
        assert client.post("/login", given | {"password": "wrong"}).status_code == 200
    assert trail() == [("user.login_refused", 3, {"reason": "name-or-password", "repeated": 0, "calls": 1})]
    assert b"mira-okafor" not in b"".join(bytes(e.body) for e in Event.objects.only("id", "body"))
    client.post("/login", given)
    client.post("/logout")
    assert [(action, outcome) for action, outcome, _ in trail()[1:]] == [("user.logged_in", 1), ("user.logged_out", 1)]


def test_without_its_event_nobody_is_logged_in(client, person, settings):
    person("viewer")
    settings.KEYSTORE_DIR = ""
    client.raise_request_exception = False
    given = {"username": "mira-okafor", "password": "a long enough password 1"}
    assert client.post("/login", given).status_code == 500
    assert "_auth_user_id" not in client.session
    assert client.post("/login", given | {"password": "wrong"}).status_code == 200


def test_only_pages_with_plotly_allow_style_attributes(planted, person):
    who = person("viewer")
    assert "style-src-attr" not in who.get("/").headers["Content-Security-Policy"]
    policy = who.get("/nodes/fra-p2").headers["Content-Security-Policy"]
    assert "style-src-attr 'unsafe-inline'" in policy
    assert "script-src 'self'" in policy
    assert "'unsafe-eval'" not in policy


def test_htmx_gets_the_page_without_its_frame(planted, person):
    text = person("viewer").get("/", headers={"hx-request": "true"}).content.decode()
    assert "<html" not in text
    assert 'id="pagehead"' in text
    assert 'id="node-tiles"' in text


@pytest.mark.parametrize(
    "path",
    [
        "/map?metric=nonsense&range=forever",
        "/map?from=x&to=-1",
        "/map?from=1&to=99999999999",
        "/nodes/fra-p2?range=<script>",
        "/map?range=90d",
    ],
)
def test_a_strange_query_is_no_error(planted, person, path):
    assert person("viewer").get(path).status_code == 200


def test_the_address_of_a_window_brings_its_picture_and_says_its_means(planted, person):
    end = int(planted.timestamp())
    text = person("viewer").get(f"/map?from={end - 9000}&to={end - 7200}").content.decode()
    assert f"from={end - 9000}&amp;to={end - 7200}" in re.search(r"<link[^>]*data-picture", text)[0]
    assert "older values are means of 1 min" in text
    live = person("viewer", name="b").get("/map").content.decode()
    assert "older values are means" not in live


def test_a_silent_node_is_veiled_and_sums_are_lower_bounds(planted, person):
    text = person("viewer").get("/").content.decode()
    assert 'data-node="fra-d2"' in text
    assert text.count('data-state="silent"') >= 2
    assert "≥" in text
    assert "fra-d2 is silent: its last known bytes are veiled" in text
    assert "copies in all tiers, at least" in text
    assert "copies in all tiers, exact" not in text


@pytest.mark.parametrize("path", [*PAGES, "/nothing-of-that-name"])
def test_the_palette_finds_every_node(planted, person, path):
    text = person("viewer").get(path).content.decode()
    assert 'data-of="nodes" data-item="fra-d2" data-href="/nodes/fra-d2"' in text


def test_the_ladder_has_its_last_hour_with_the_gap_and_doubt_where_a_node_was_silent(planted, person):
    text = person("viewer").get("/").content.decode()
    step = re.search(r'<li data-step="dram">.*?</li>', text, re.S)[0]
    line, doubt = (re.search(rf'<path class="{kind}" d="([^"]+)"', step)[1] for kind in ("line", "doubt"))
    places = sorted(float(x) for x in re.findall(r"[ML]([\d.]+) ", line + doubt))
    assert places[0] < 3
    assert places[-1] > 97
    assert max(b - a for a, b in pairwise(places)) > 3, "three minutes nobody reported"
    assert float(re.findall(r"[ML]([\d.]+) ", line)[-1]) < 85, "the last eleven minutes are of three nodes of four"


@pytest.fixture
def away(planted, postgres):
    """The writer has been away for a minute; afterwards it lives again."""
    with psycopg.connect(postgres.superuser_dsn(TEST_DATABASE), autocommit=True) as cx:
        at = timezone.now()
        plant.writer(cx, at, away=True)
        yield at - timedelta(minutes=1)
        plant.writer(cx, planted)


def test_a_page_of_a_writer_that_lives_is_not_veiled(planted, person):
    text = person("viewer").get("/").content.decode()
    assert " data-old" not in text
    assert 'data-state="wait"' in text


@pytest.mark.parametrize(("language", "word"), [("en", "Stale"), ("zh-hans", "已过时")])
@pytest.mark.parametrize("path", ["/", "/map", "/nodes", "/nodes/fra-p2"])
def test_a_page_of_a_writer_that_is_away_is_veiled_before_any_script(away, person, path, language, word):
    client = person("viewer")
    client.cookies["django_language"] = language
    text = client.get(path).content.decode()
    assert re.search(r"<html[^>]* data-old>", text)
    assert f'data-state="old" data-as-of="{away.timestamp():.6f}"' in text
    assert word in text


def test_the_time_of_the_tiers_is_the_writers_not_the_pages(away, person):
    assert f"4 nodes, {away:%H:%M:%S} UTC" in person("viewer").get("/").content.decode()
