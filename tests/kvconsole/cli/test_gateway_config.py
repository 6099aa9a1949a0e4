"""A gateway's file says everything that is wrong with it at once, and no secret lies open."""

import json

import pytest

from kvconsole.cli.client import Failure
from kvconsole.cli.gateway_config import Served, key_hash, load

KEY = "sk-of-a-client"


@pytest.fixture
def written(tmp_path):
    def write(mode=0o600, keys=f"# whose\n{key_hash(KEY)} acme\n", **fields):
        for name, text in (("token", "kvc_gateway_x"), ("keys", keys)):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(mode)
        base = {"console_url": "http://127.0.0.1:1", "router_url": "https://router.example", "engines": {"n1": "http://10.0.0.1:8000"},
                "token_file": str(tmp_path / "token"), "keys_file": str(tmp_path / "keys")}  # fmt: skip
        path = tmp_path / "gateway.json"
        path.write_text(json.dumps({k: v for k, v in (base | fields).items() if v is not None}))
        return str(path)

    return write


def test_a_good_file_is_taken(written):
    config, held = load(written(served={"fast": {"model": "llama", "adapter": "d"}}, listen="[::1]:8401"))
    assert config.address == ("::1", 8401)
    assert config.served == {"fast": Served("llama", "d")}
    assert (held.token, held.tenants) == ("kvc_gateway_x", {key_hash(KEY): "acme"})
    assert KEY not in repr(held)


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"engines": {}}, "there are none"), ({"engines": {"n": "ftp://x"}}, "no address"),
     ({"engines": {"n": "http://user:pw@x"}}, "no address"), ({"router_url": "http://router.example"}, "https"),
     ({"console_url": "http://10.0.0.9"}, "https"), ({"listen": "8400"}, "no host and port"),
     ({"listen": "h:70000"}, "no host and port"), ({"without_lease": "old"}, "neither"),
     ({"renew_seconds": 900}, "renew_seconds"), ({"limits": {"body_bytes": 0}}, "limits.body_bytes"),
     ({"token_file": "/nowhere/at/all"}, "token_file"), ({"mystery": 1}, "mystery"),
     ({"token_file": None}, "token_file"),
     ({"mode": 0o644}, "can be read by others"), ({"keys": "acme sk-plain"}, "line 1")],
)  # fmt: skip
def test_what_is_wrong_is_named(written, fields, said):
    with pytest.raises(Failure) as refused:
        load(written(**fields))
    assert (refused.value.code, said in refused.value.text) == (2, True), refused.value.text


def test_all_of_it_at_once(written):
    with pytest.raises(Failure) as refused:
        load(written(engines={}, listen="x", renew_seconds=0, mode=0o640))
    assert len(refused.value.text.splitlines()) == 5


def test_an_engines_key_is_sent_over_https_only(written, tmp_path):
    (tmp_path / "key").write_text("k")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(Failure, match="https"):
        load(written(engine_key_file=str(tmp_path / "key")))


@pytest.mark.parametrize("path", ["/nowhere.json", ""])
def test_a_file_that_is_not_there(path):
    with pytest.raises(Failure):
        load(path)
