"""A raw look from outside: what is there is found, and only counts are said."""

import io
import json
import os
import secrets
import subprocess
import sys
import time
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvconsole.embedded import Valkey
from kvcore.blocks import Tier
from kvcore.messages import Command
from kvcore.receipts import EraseTarget, ProbedDetail
from nodeagent.__main__ import main
from nodeagent.config import Home
from nodeagent.jobs import Job
from nodeagent.probe import ProbeArgs, Prober, arenas, chunks, count, media
from tests.nodeagent.ordering import Ordered, canaries, everything, fill
from tests.nodeagent.rig import blocks
from tests.nodeagent.test_main import CLONE

TIERS = {"hbm": blocks(20), "pinned": blocks(24), "dram": blocks(24), "ssd": blocks(200)}


@given(
    text=st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba"]), max_size=30),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    canaries=st.lists(st.sampled_from([b"ab", b"aab", b"ba", b"b"]), min_size=1, max_size=3, unique=True),
)
def test_a_canary_across_a_border_counts_once(text, cuts, canaries):
    whole = b"".join(text)
    at = [0, *sorted(min(c, len(whole)) for c in cuts), len(whole)]
    seen = count([whole[a:b] for a, b in pairwise(at)], canaries)
    assert seen == (len(whole), sum(whole.count(c) for c in canaries), "")


@pytest.fixture
def rig(tmp_path):
    rig = Ordered(tmp_path, TIERS, node=secrets.token_hex(8))
    Home(tmp_path).save(rig.config)
    yield rig
    rig.close()


def run(rig, tmp_path, lines, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(x.hex() for x in lines)))
    code = main(["probe", "--dir", str(tmp_path)])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


def test_what_was_planted_is_found_before_an_erase_and_not_after_it(rig, tmp_path, monkeypatch, capsys):
    key, other = fill(rig, [rig.lease(), rig.lease()])
    planted, keep = sorted(canaries(rig, key)), sorted(canaries(rig, other))
    assert len(planted) >= 64
    for tier in TIERS:  # of what is on ssd the plain content is nowhere
        assert rig.keys(Tier(tier), key.ns)
    code, told = run(rig, tmp_path, planted, monkeypatch, capsys)
    assert code == 1
    assert told["canaries"] == len(planted)
    assert {n for n, m in told["media"].items() if m["found"]} == {"hbm", "pinned", "dram"}
    assert set(told["media"]) == {"hbm", "pinned", "dram", "ssd", "files"}
    assert all(m["bytes"] for m in told["media"].values())
    for number, tier in enumerate(TIERS):
        assert rig.erase(Tier(tier), everything(key), step=f"s{number}")[0].outcome == "done"
    code, told = run(rig, tmp_path, planted, monkeypatch, capsys)
    assert (code, [m["found"] for m in told["media"].values()]) == (0, [0] * 5)
    assert run(rig, tmp_path, keep, monkeypatch, capsys)[0] == 1
    assert not any(c.hex() in json.dumps(told) for c in planted)


def test_another_process_of_the_user_sees_the_arenas(rig, tmp_path):
    (key,) = fill(rig, [rig.lease()])
    planted = sorted(canaries(rig, key))
    done = subprocess.run(
        [sys.executable, "-m", "nodeagent", "probe", "--dir", str(tmp_path)], check=False, cwd=CLONE, text=True,
        input="\n".join(x.hex() for x in planted), capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["media"]["hbm"]["found"] > 0


def test_what_is_no_canary_is_refused(rig, tmp_path, monkeypatch, capsys):
    for lines in ([], [b"short"]):
        code, said = run(rig, tmp_path, lines, monkeypatch, capsys)
        assert code == 1
        assert "at least" in said
    monkeypatch.setattr("sys.stdin", io.StringIO("nothex"))
    assert main(["probe", "--dir", str(tmp_path)]) == 1


def test_memory_of_an_agent_that_does_not_run_is_said_to_be_unread(tmp_path):
    rig = Ordered(tmp_path, TIERS, node=secrets.token_hex(8))
    rig.close()
    seen = media(Home(tmp_path), rig.config, [bytes(16)])
    assert {n for n, x in seen.items() if x.why} == {"hbm", "pinned", "dram"}
    assert arenas(rig.config.node) == {}


# One node looks at another


def probe(rig, **fields):
    args = ProbeArgs(**{"node": rig.config.node, "source": "reference", "tier": "hbm"} | fields)
    command = Command(
        v=1, step="p", kind="probe", node="n2", order_hash="", issued_at=0, expires_at=2e10,
        args=msgspec.to_builtins(args),
    )  # fmt: skip
    return Prober(rig.config, rig.media.remote, time.time).probe(command, Job(command, time.time))


def test_a_neighbour_on_the_same_machine_looks_into_an_arena(rig):
    (key,) = fill(rig, [rig.lease()])
    planted = [c.hex() for c in sorted(canaries(rig, key))]
    done = probe(rig, canaries=planted)
    detail = msgspec.convert(done.detail, ProbedDetail)
    assert (done.outcome, detail.method, detail.asked) == ("done", "scan", len(planted))
    assert detail.found > 0
    rig.erase(Tier.HBM, everything(key))
    assert probe(rig, canaries=planted).detail["found"] == 0


def test_what_a_neighbour_cannot_see_it_says_nothing_of(rig):
    canary = [secrets.token_hex(32)]
    assert probe(rig, canaries=canary, node="elsewhere").code == "medium-out-of-reach"
    assert probe(rig, canaries=canary, tier="ssd").code == "medium-out-of-reach"
    assert probe(rig, canaries=canary, tier="remote", boot="x").code == "medium-out-of-reach"
    whole = EraseTarget(ns="00" * 32, gen_upto="1")
    assert probe(rig, targets=[whole]).code == "medium-out-of-reach"  # slots name no namespaces
    assert probe(rig).code == probe(rig, canaries=["00"]).code == "args-malformed"
    assert probe(rig, canaries=canary, node="*").code == "args-malformed"


def test_a_neighbour_looks_into_a_shared_store_if_it_is_the_one_that_is_meant(tmp_path, service_base):
    store = Valkey(service_base / "remote-probe", persist=False, test=True)
    store.start()
    tiers = {"hbm": blocks(20), "remote": blocks(200)}
    rig = Ordered(tmp_path / "a", tiers, remote_url=store.url, node=secrets.token_hex(8))
    other = Ordered(tmp_path / "b", tiers, remote_url=store.url, node=secrets.token_hex(8))
    try:
        (key,) = fill(rig, [rig.lease()])
        more = {"node": rig.config.node, "source": "remote", "tier": "remote", "boot": rig.media.remote.boot}
        held = sum(Tier.REMOTE in r.copies for r in rig.pool.runs.values())
        assert held
        assert probe(other, targets=[everything(key)], **more).detail["found"] == held
        name = next(c.place for r in rig.pool.runs.values() if (c := r.copies.get(Tier.REMOTE)))
        assert probe(other, canaries=[name.hex()], **more).detail["found"] >= 1
        assert probe(other, targets=[everything(key)], **more | {"boot": "another"}).code == "medium-out-of-reach"
        Home(tmp_path / "a").save(rig.config)
        assert media(Home(tmp_path / "a"), rig.config, [name])["remote"].found >= 1
        rig.erase(Tier.REMOTE, everything(key))
        assert probe(other, targets=[everything(key)], **more).detail["found"] == 0
        assert media(Home(tmp_path / "a"), rig.config, [name])["remote"] == (0, 0, "")
        store.stop()
        assert media(Home(tmp_path / "a"), rig.config, [name])["remote"].why == "TierDown"
    finally:
        rig.close()
        other.close()
        store.remove()


def test_chunks_are_the_whole_file(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(os.urandom(100_000))
    assert b"".join(chunks(path)) == path.read_bytes()


def test_a_neighbour_finds_blocks_by_their_keys_and_what_is_no_block_at_all(rig):
    (key,) = fill(rig, [rig.lease()])
    keys = [k[:16].hex() for k in rig.keys(Tier.DRAM, key.ns)][:8]
    assert probe(rig, tier="dram", canaries=keys).detail["found"] == len(keys)
    rig.erase(Tier.DRAM, everything(key))
    assert probe(rig, tier="dram", canaries=keys).detail["found"] == 0
    rig.pool.tiers[Tier.DRAM]._view[5:9] = b"left"  # as by an erase that forgot something
    assert probe(rig, tier="dram", canaries=keys).detail["found"] == 1
    assert not rig.keys(Tier.DRAM, key.ns)


def test_blocks_of_others_are_nobodys_residue(rig):
    key, _ = fill(rig, [rig.lease(), rig.lease()])
    keys = [k[:16].hex() for k in rig.keys(Tier.HBM, key.ns)]
    rig.erase(Tier.HBM, everything(key))
    assert any(Tier.HBM in run.copies for run in rig.pool.runs.values())
    assert probe(rig, canaries=keys or ["00" * 16]).detail["found"] == 0
