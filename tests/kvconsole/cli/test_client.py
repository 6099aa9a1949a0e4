"""How `kvc` reaches a console, without one."""

import httpx
import pytest

from kvconsole.cli import client


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://a", "http://", "file:///etc", "http://a:b", "http://127.0.0.1:99999999"]
)
def test_what_is_no_address_is_wrong_usage(url):
    with pytest.raises(client.Failure) as caught:
        client.Client(url, "")
    assert caught.value.code == client.USAGE


@pytest.mark.parametrize(
    ("status", "code"), [(400, 1), (404, 1), (429, 1), (401, 5), (500, 4), (502, 3), (503, 3), (301, 1)]
)
def test_each_kind_of_answer_has_its_exit_code(status, code):
    assert client.refusal(httpx.Response(status, text="<html>")).code == code
    body = {"code": "x", "detail": "y", "errors": [{"pointer": "/a", "code": "b", "detail": "c"}]}
    found = client.refusal(httpx.Response(status, json=body))
    assert (found.code, found.text) == (code, "x: y\n  /a: c")


def test_a_damaged_file_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("KVC_CONFIG_HOME", str(tmp_path))
    assert client.saved() == {}
    path = client.save("http://127.0.0.1", "t")
    assert client.saved() == {"url": "http://127.0.0.1", "token": "t"}
    for damaged in ("{", "[]", "7"):
        path.write_text(damaged)
        with pytest.raises(client.Failure, match="damaged"):
            client.saved()


def test_a_place_where_nothing_can_be_kept_is_told(tmp_path, monkeypatch):
    (tmp_path / "kvc").write_text("a file")
    monkeypatch.setenv("KVC_CONFIG_HOME", str(tmp_path))
    with pytest.raises(client.Failure, match="nothing was kept"):
        client.save("http://127.0.0.1", "t")
    with pytest.raises(client.Failure, match="Not a directory"):
        client.saved()


def test_who_answers_and_is_no_console_is_told(live_server):
    with pytest.raises(client.Failure, match="is no KV Console") as caught:
        client.Client(f"{live_server.url}/healthz?", "").call("GET", "")
    assert caught.value.code == client.FAILED
