import errno
import fcntl
import os

import pytest

from kvcore.blocks import Tier
from nodeagent.tiers.base import BlockRefused, LeaseOver, Look, TierFull
from nodeagent.tiers.disk import WRITERS, DiskTier
from nodeagent.tiers.objects import KeyFile
from tests.nodeagent.tiers.conftest import CAPACITY, enc, run


def test_files_are_private(again, tmp_path):
    tier = again(Tier.SSD)
    tier.write([run(2)])
    (path,) = (tmp_path / "ssd").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ssd").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["truncated", "temporary", "nonsense", "no value", "misnamed"])
def test_what_is_not_whole_is_removed_at_the_next_start(again, tmp_path, kind):
    tier = again(Tier.SSD)
    good, bad = run(2), run(2)
    places = tier.write([good, bad])
    path = tmp_path / "ssd" / f"{places[1].hex()}.kvo"
    match kind:
        case "truncated":
            os.truncate(path, path.stat().st_size - 1)
        case "temporary":
            path.rename(path.with_suffix(".tmp"))
        case "nonsense":
            path.write_bytes(b"x" * 10_000)
        case "no value":
            KeyFile(tmp_path / "objects.keys").destroy([places[1]])
        case "misnamed":
            path.rename(path.with_name("zz.kvo"))
    found = list(again(Tier.SSD).stored())
    assert [x.place for x in found] == [places[0]]
    assert len(list((tmp_path / "ssd").iterdir())) == 1


def test_a_lost_file_is_refused(again, tmp_path):
    tier = again(Tier.SSD)
    meta, raw = run(2)
    (place,) = tier.write([(meta, raw)])
    next((tmp_path / "ssd").iterdir()).unlink()
    with pytest.raises(BlockRefused):
        tier.read(meta, place)
    tier.free([(meta, place)])
    assert tier.used_bytes == 0


def test_a_full_disk_leaves_nothing_behind(again, tmp_path, monkeypatch):
    tier = again(Tier.SSD)
    real = os.rename
    calls = []

    def rename(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(TierFull, match="No space"):
        tier.write([run(2), run(2), run(2)])
    assert list((tmp_path / "ssd").iterdir()) == []
    assert tier.used_bytes == 0
    assert KeyFile(tmp_path / "objects.keys").names() == set()


def test_without_a_lease_nothing_is_written_or_read(tmp_path):
    leased = True

    def key(ns, gen):
        if not leased:
            raise LeaseOver
        return enc(ns, gen)

    tier = DiskTier(tmp_path / "ssd", capacity_bytes=CAPACITY, keys=KeyFile(tmp_path / "k"), enc_key=key)
    meta, raw = run(2)
    (place,) = tier.write([(meta, raw)])
    leased = False
    with pytest.raises(LeaseOver):
        tier.write([run(2)])
    with pytest.raises(LeaseOver):
        tier.read(meta, place)
    leased = True
    assert tier.read(meta, place) == raw


def test_a_value_that_stays_in_the_key_file_is_not_clean(again, tmp_path, monkeypatch):
    tier = again(Tier.SSD)
    meta, raw = run(2)
    (place,) = tier.write([(meta, raw)])
    readonly = os.open(tmp_path / "objects.keys", os.O_RDONLY)
    with monkeypatch.context() as m:
        m.setattr(tier._keys, "_fd", readonly)  # overwriting it fails
        with pytest.raises(OSError, match="Bad file descriptor"):
            tier.erase([(meta, place)], Look())
    os.close(readonly)


def test_a_name_that_stays_in_the_directory_is_not_clean(again, tmp_path):
    tier = again(Tier.SSD)
    meta, raw = run(2)
    (place,) = tier.write([(meta, raw)])
    path = tmp_path / "ssd" / f"{place.hex()}.kvo"
    path.unlink()
    path.with_suffix(".tmp").mkdir()  # what cannot be unlinked
    with pytest.raises(OSError, match="directory"):
        tier.erase([(meta, place)], Look())


def test_files_of_any_name_are_found_and_scoured(again, tmp_path):
    tier = again(Tier.SSD)
    (place,) = tier.write([run(2)])
    directory = tmp_path / "ssd"
    blob = (directory / f"{place.hex()}.kvo").read_bytes()
    (directory / "a.tmp").write_bytes(blob[:300])
    (directory / "b.kvo").write_bytes(b"nonsense")
    (directory / f"{'AB' * 16}.kvo").write_bytes(blob)
    found = {x.place: x.meta is not None for x in tier.lying()}
    assert found == {place: True, "a.tmp": True, "b.kvo": False, f"{'AB' * 16}.kvo": True}
    look = Look()
    assert tier.remains([*found, "c.kvo"]) == list(found)
    tier.scour([p for p in found if isinstance(p, str)], look)
    assert (look.sampled, look.clean) == (3, 3)
    assert [x.place for x in tier.lying()] == [place]


def _file_of(fd):
    """Its path: from /proc on Linux, from F_GETPATH on macOS. No test is left out for want of it."""
    if os.path.exists(f"/proc/self/fd/{fd}"):
        return os.readlink(f"/proc/self/fd/{fd}")
    return fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0").decode()


@pytest.mark.parametrize("look", [False, True], ids=["written", "read back"])
def test_a_batch_costs_one_fsync_a_file_and_two_more(again, monkeypatch, look):
    tier = again(Tier.SSD)
    fsync, rename, done = os.fsync, os.rename, []

    def synced(fd):
        fsync(fd)
        done.append(_file_of(fd).rpartition("/")[2].rpartition(".")[2])

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", lambda *names: (done.append("rename"), rename(*names)))
    runs = [run(2) for _ in range(20)]
    places = tier.write(runs, look=look)
    assert sorted(done[:21]) == sorted(["keys", *["tmp"] * 20])  # whatever has its name is durable, and so is its value
    assert done[21:] == [*["rename"] * 20, "ssd"]
    assert [tier.read(meta, place) for (meta, _), place in zip(runs, places, strict=True)] == [raw for _, raw in runs]


def test_who_writes_works_in_the_same_bytes_again(again):
    tier = again(Tier.SSD)
    for blocks in (1, 5, 2, 5):
        meta, raw = run(blocks)
        (place,) = tier.write([(meta, raw)], look=True)
        assert tier.read(meta, place) == raw
    assert len(tier._writers._threads) <= WRITERS


def test_of_a_batch_of_which_one_cannot_be_read_nothing_stays(again, tmp_path):
    tier = again(Tier.SSD)
    lazy = [(meta, lambda raw=raw: raw) for meta, raw in (run(2) for _ in range(12))]

    def broken():
        raise BlockRefused("digest")

    with pytest.raises(BlockRefused, match="digest"):
        tier.write([*lazy, (run(2)[0], broken), *lazy], look=True)
    assert list((tmp_path / "ssd").iterdir()) == []
    assert (tier.used_bytes, KeyFile(tmp_path / "objects.keys").names()) == (0, set())


def test_what_is_not_read_back_as_it_was_written_is_not_stored(again, tmp_path, monkeypatch):
    tier = again(Tier.SSD)
    fsync = os.fsync

    def damaged(fd):
        if _file_of(fd).endswith(".tmp"):
            os.pwrite(fd, b"?", os.fstat(fd).st_size - 1)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", damaged)
    with pytest.raises(BlockRefused, match="readback"):
        tier.write([run(2)], look=True)
    assert list((tmp_path / "ssd").iterdir()) == []
