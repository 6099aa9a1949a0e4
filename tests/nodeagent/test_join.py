import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kvcore.messages import EnrolmentQuestion, enrolment_bytes, signed_bytes
from nodeagent.config import ConfigError, Home, TierConfig
from nodeagent.join import NotJoined, draft_of, join, listen_address
from tests.nodeagent.conftest import SMALL


def attempt(far, home, *, token=None, url=None, **more):
    fields = dict(name="n1", listen="127.0.0.1:0", agent_url="", profile="ref-64", tiers=SMALL, remote_url="")
    draft = draft_of(**fields | more)
    with httpx.Client(trust_env=False, timeout=2) as client:
        return join(home, console_url=url or far.url, token=token or far.enrolment_token, draft=draft, client=client)


def test_the_node_is_enrolled_with_a_key_made_here(far, tmp_path):
    home = Home(tmp_path / "a")
    config = attempt(far, home, tiers=SMALL | {"remote": TierConfig(capacity_bytes=1)})
    assert home.load() == config
    assert (config.node, config.ingest[0].url, config.console_public_key) == (far.node, far.url, far.public.hex())
    assert not config.listen.endswith(":0")
    assert config.agent_url == f"http://{config.listen}"
    seed = bytes.fromhex(home.read_secret("node.key").decode())
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert far.enrolled["public_key"] == public.hex()
    tiers = {t["tier"]: t for t in far.enrolled["tiers"]}
    assert list(tiers) == ["hbm", "pinned", "dram", "ssd"]  # no store was given for remote
    assert tiers["hbm"]["emulated"]
    assert tiers["ssd"]["encrypted"]
    assert far.enrolled["engine"]["capabilities"]["inventory"] is True
    assert {p.stat().st_mode & 0o777 for p in home.path.iterdir()} == {0o600}
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert far.enrolled["name"] == "n1"
    with pytest.raises(NotJoined, match="belongs to an agent"):
        attempt(far, home)


def test_another_console_never_sees_the_token(far, tmp_path):
    token = far.enrolment_token.split(".")[0] + "." + "0" * 32
    with pytest.raises(NotJoined, match="key differs"):
        attempt(far, Home(tmp_path / "a"), token=token)
    assert far.counts["enrol"] == 0
    assert not (tmp_path / "a").exists()


def recorded(far):
    """The proof of a call that somebody has listened to: a question of another node of the same minute."""
    asked = EnrolmentQuestion(console="127.0.0.1", nonce="00" * 32, public_key="11" * 32, node="n1")
    return far.key.sign(enrolment_bytes(asked)).hex()


@pytest.mark.parametrize(
    "proof",
    [
        lambda far: "",
        lambda far: "no hex",
        lambda far: "00" * 64,
        recorded,
        lambda far: Ed25519PrivateKey.generate().sign(enrolment_bytes(far.asked())).hex(),
        lambda far: far.key.sign(signed_bytes("command", msgspec.to_builtins(far.asked()))).hex(),
        *(
            lambda far, field=field, value=value: far.key.sign(
                enrolment_bytes(msgspec.structs.replace(far.asked(), **{field: value}))
            ).hex()
            for field, value in (("node", "n2"), ("public_key", "22" * 32), ("console", "relay.example"))
        ),
    ],
)
def test_who_shows_the_key_and_does_not_have_it_never_sees_the_token(far, tmp_path, proof):
    far.prove = lambda: proof(far)
    with pytest.raises(NotJoined, match="did not prove to have it; the token was not sent"):
        attempt(far, Home(tmp_path / "a"))
    assert far.counts["enrol"] == 0
    assert not (tmp_path / "a").exists()


def test_every_question_is_new(far, tmp_path):
    asked = []
    prove = far.prove
    far.prove = lambda: asked.append(far.asked()) or prove()
    for name in "ab":
        attempt(far, Home(tmp_path / name))
    assert len({q.nonce for q in asked} | {q.public_key for q in asked}) == 4
    assert {(q.node, q.console) for q in asked} == {("n1", "127.0.0.1")}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"console_public_key": "00" * 32}, "another key"),
        ({"node": ""}, "which node"),
        ({"node_token": 5}, "nodes:enrol"),
    ],
)
def test_an_odd_answer_writes_nothing(far, tmp_path, answer, why):
    far.enrol_answer = answer
    with pytest.raises(NotJoined, match=why):
        attempt(far, Home(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_refusals_are_passed_on(far, tmp_path):
    far.enrol = lambda body: (409, b'{"code":"token-used"}', b"application/problem+json")
    with pytest.raises(NotJoined, match="409 token-used"):
        attempt(far, Home(tmp_path / "a"))
    far.enrol = lambda body: (409, b'{"code":"node-name-mismatch"}', b"application/problem+json")
    with pytest.raises(NotJoined, match=r"made for a node of another name; .* --name\. The token was not used"):
        attempt(far, Home(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    far.enrol = lambda body: (500, b"oops", b"text/plain")
    with pytest.raises(NotJoined, match="500"):
        attempt(far, Home(tmp_path / "a"))
    with pytest.raises(NotJoined, match="ConnectError"):
        attempt(far, Home(tmp_path / "a"), url="http://127.0.0.1:1")
    with pytest.raises(NotJoined, match="no fingerprint"):
        attempt(far, Home(tmp_path / "a"), token="kvc_enrol_x_y")
    with pytest.raises(ConfigError, match="plain HTTP"):
        attempt(far, Home(tmp_path / "a"), url="http://console.example")
    far.public = b""
    with pytest.raises(NotJoined):
        attempt(far, Home(tmp_path / "a"), token="kvc_enrol_x_y.z")


def test_several_shards(far, tmp_path):
    far.enrol_answer = {"shards": 2, "ingest": [{"shard": 0, "url": far.url}, {"shard": 1, "url": far.url}]}
    assert attempt(far, Home(tmp_path / "a")).shards == 2


def test_listen_addresses():
    assert listen_address("127.0.0.1:80") == "127.0.0.1:80"
    assert int(listen_address("127.0.0.1:0").rsplit(":", 1)[1]) > 0
    for wrong in ("80", "host:", "host:x", "127.0.0.1:65536", "192.0.2.1:0", "no host:0"):
        with pytest.raises(ConfigError):
            listen_address(wrong)


def test_what_cannot_be_kept_or_served_is_found_before_the_token_is_sent(far, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="no directory that this user may write to"):
        attempt(far, Home(tmp_path / "file"))
    with pytest.raises(ConfigError, match="no directory that this user may write to"):
        attempt(far, Home(tmp_path / "file" / "a"))
    for ranks in (0, -1, 1025):
        with httpx.Client() as client, pytest.raises(NotJoined, match="--ranks"):
            join(
                Home(tmp_path / "a"),
                console_url=far.url,
                token=far.enrolment_token,
                draft={},
                client=client,
                ranks=ranks,
            )
    with pytest.raises(NotJoined, match="is no file: nothing was sent"):
        attempt(far, Home(tmp_path / "a"), tls_cert=str(tmp_path / "none"), tls_key=str(tmp_path / "none"))
    assert not far.counts
    for wrong in ({"name": "a b"}, {"tpot_ms": -1.0}):
        with pytest.raises((ConfigError, NotJoined)):
            attempt(far, Home(tmp_path / "a"), **wrong)
    assert far.counts["enrol"] == 0
    assert not (tmp_path / "a").exists()
