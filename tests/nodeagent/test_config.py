import math

import msgspec
import pytest

from nodeagent.config import ConfigError, Home, Ingest, TierConfig, check, parse_size, parse_tier, require_private
from tests.nodeagent.conftest import SMALL, config


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 64 * 2**20), ("16 KiB", 16384), ("1gib", 2**30), ("12", 12), ("1.5KiB", 1536), ("7B", 7)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1MiB", "1TB", "1 2"])
def test_what_is_no_size(text):
    with pytest.raises(ConfigError):
        parse_size(text)


def test_tiers_of_the_command_line():
    assert parse_tier("hbm=1MiB") == ("hbm", TierConfig(capacity_bytes=2**20))
    assert parse_tier("ssd=1MiB,0.95,0.5,60") == (
        "ssd",
        TierConfig(capacity_bytes=2**20, high=0.95, low=0.5, ttl_seconds=60),
    )
    for wrong in ("hbm", "tape=1MiB", "hbm=1MiB,0.9", "hbm=1MiB,a,b"):
        with pytest.raises(ConfigError):
            parse_tier(wrong)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"tiers": {"tape": TierConfig(capacity_bytes=1)}}, "tape"),
        ({"tiers": {"hbm": TierConfig(capacity_bytes=1, high=0.5, low=0.6)}}, "hbm"),
        ({"tiers": {"dram": TierConfig(capacity_bytes=1)}}, "hbm is missing"),
        ({"profile": "ref-2"}, "profile"),
        ({"policy": "fifo"}, "policy"),
        ({"tiers": SMALL | {"remote": TierConfig(capacity_bytes=1)}}, "remote_url"),
        ({"shards": 2}, "every shard"),
        ({"console_url": "http://console.example"}, "plain HTTP"),
        ({"ingest": [Ingest(0, "http://10.0.0.1:1")]}, "plain HTTP"),
        ({"listen": "0.0.0.0:1"}, "not loopback"),
        ({"listen": "nowhere"}, "host:port"),
        ({"listen": "127.0.0.1:65536"}, "host:port"),
        ({"listen": "127.0.0.1:１"}, "host:port"),
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "n" * 64}, "name"),
        ({"tls_cert": "c"}, "without the other"),
        ({"tpot_ms": -1.0}, "tpot_ms"),
        ({"tpot_ms": math.nan}, "tpot_ms"),
        *(
            ({"tiers": SMALL | {"hbm": TierConfig(**{"capacity_bytes": 1} | wrong)}}, "tiers.hbm")
            for wrong in (
                {"capacity_bytes": 0},
                {"high": math.nan},
                {"low": math.nan},
                {"ttl_seconds": math.nan},
                {"ttl_seconds": math.inf},
            )
        ),
    ],
)
def test_what_cannot_be_run_says_why(change, names):
    with pytest.raises(ConfigError, match=names):
        check(config(**change))


def test_plain_http_is_for_loopback_only():
    for good in ("https://console.example", "http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"):
        assert require_private(good) == good
    for bad in ("http://console.example", "ftp://127.0.0.1", "http://127.0.0.1.example"):
        with pytest.raises(ConfigError):
            require_private(bad)
    check(config(listen="0.0.0.0:1", tls_cert="c", tls_key="k"))


def test_files_are_whole_and_private(tmp_path):
    home = Home(tmp_path / "d")
    with pytest.raises(ConfigError, match="join"):
        home.load()
    made = config()
    home.save(made)
    assert home.load() == made
    assert made.address == ("127.0.0.1", 1)
    assert home.config_file.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in home.path.iterdir()] == ["agent.json"]
    home.write("x.token", b"secret")
    assert home.read_secret("x.token") == b"secret"
    (home.path / "x.token").chmod(0o644)
    with pytest.raises(ConfigError, match="0600"):
        home.read_secret("x.token")
    (home.path / "x.token").unlink()
    with pytest.raises(ConfigError, match="missing"):
        home.read_secret("y.token")
    home.config_file.write_bytes(b"{")
    with pytest.raises(ConfigError):
        home.load()
    plain = msgspec.to_builtins(made) | {"profile": "no"}
    home.config_file.write_bytes(msgspec.json.encode(plain))
    with pytest.raises(ConfigError, match="profile"):
        home.load()


@pytest.mark.parametrize("name", ["agent.json", "node.key", "node.token", "objects.keys"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_files_that_others_can_read_or_change_are_refused(tmp_path, name, mode):
    home = Home(tmp_path / "d")
    home.save(config())
    for secret in ("node.key", "node.token", "objects.keys"):
        home.write(secret, b"00")
    home.write("journal.sqlite3", b"")
    assert home.load() == config()
    (home.path / name).chmod(mode)
    with pytest.raises(ConfigError, match=rf"{name} has mode {mode:04o}: others.*not used.*chmod 0600"):
        home.load()
    (home.path / name).chmod(0o600)
    assert home.load() == config()
