"""Language, theme and single keys: in cookies, and with the person."""

import pytest
from django.http import HttpRequest, HttpResponse

from frontend import preference


def request(**cookies):
    made = HttpRequest()
    made.COOKIES.update(cookies)
    return made


def test_only_what_exists_is_kept():
    given = {"theme": "pink", "language": "zh-hans", "keys": "off", "next": "/", "password": "x"}
    assert preference.valid(given) == {"language": "zh-hans", "keys": "off"}


def test_cookies_of_somebody_who_is_not_logged_in():
    answer = HttpResponse()
    preference.store(answer, None, {"theme": "dark", "keys": "off"})
    assert answer.cookies["kvc_theme"].value == "dark"
    assert answer.cookies["kvc_theme"]["httponly"]
    assert answer.cookies["kvc_keys"].value == "off"


def test_what_is_read_back():
    assert preference.theme(request()) == "system"
    assert preference.theme(request(kvc_theme="dark")) == "dark"
    assert preference.theme(request(kvc_theme="</script>")) == "system"
    assert preference.keys(request())
    assert not preference.keys(request(kvc_keys="off"))


@pytest.mark.django_db
def test_another_browser_gets_what_the_person_chose(person):
    first = person("viewer")
    assert first.post("/preferences", {"theme": "dark", "language": "zh-hans", "next": "/nodes"}).url == "/nodes"
    other = type(first)(headers={"accept": "text/html"})
    answer = other.post("/login", {"username": "mira-okafor", "password": "a long enough password 1"})
    assert answer.status_code == 302
    assert other.cookies["kvc_theme"].value == "dark"
    assert other.cookies["django_language"].value == "zh-hans"
    assert 'lang="zh-Hans" data-theme="dark"' in other.get("/docs/problems").content.decode()


@pytest.mark.django_db
def test_nobody_is_sent_to_another_host(client):
    assert client.post("/preferences", {"theme": "dark", "next": "https://evil.example/"}).url == "/"
    assert client.post("/preferences", {"theme": "dark", "next": "//evil.example/"}).url == "/"
