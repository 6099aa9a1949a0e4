"""The key store: made once, read by its owner alone, destroyed for good."""

import contextlib
import os
import stat
import threading

import pytest

from kvconsole.infra.keystore import (
    PERIOD_SECONDS,
    KeyDestroyed,
    KeyMissing,
    KeyStore,
    KeyStoreUnavailable,
    keystore,
    namespace_name,
    node_name,
    subject_name,
    tenant_name,
)


@pytest.fixture
def store(tmp_path):
    return KeyStore(tmp_path / "keys")


def test_a_secret_is_made_once_and_has_32_random_bytes(store):
    one = store.ensure("ns-a-1")
    assert len(one) == 32
    assert store.ensure("ns-a-1") == one == store.secret("ns-a-1")
    assert store.ensure("ns-a-2") != one


def test_directory_and_files_are_of_their_owner_alone(store):
    store.ensure("ns-a-1")
    assert stat.S_IMODE(store.directory.stat().st_mode) == 0o700
    assert [stat.S_IMODE(p.stat().st_mode) for p in store.directory.iterdir()] == [0o600]


def test_what_was_never_made_is_missing(store):
    with pytest.raises(KeyMissing):
        store.secret("ns-a-1")


def test_a_destroyed_secret_cannot_be_read_or_made_again(store):
    store.ensure("ns-a-1")
    assert store.destroy("ns-a-1")
    with pytest.raises(KeyDestroyed):
        store.secret("ns-a-1")
    with pytest.raises(KeyDestroyed):
        store.ensure("ns-a-1")
    assert not list(store.directory.glob("*.key"))


def test_a_secret_that_is_being_wiped_is_not_read_as_what_is_left_of_it(store):
    store.ensure("ns-a-1")
    (store.directory / "ns-a-1.gone").touch(0o600)  # as `destroy` leaves it between two of its steps
    (store.directory / "ns-a-1.key").write_bytes(bytes(32))
    with pytest.raises(KeyDestroyed):
        store.secret("ns-a-1")
    with pytest.raises(KeyDestroyed):
        store.ensure("ns-a-1")


def test_what_was_destroyed_before_it_was_made_is_never_made(store):
    assert not store.destroy("ns-a-1")
    with pytest.raises(KeyDestroyed):
        store.ensure("ns-a-1")


def test_many_makers_at_once_get_the_same_secret(store):
    got, start = [], threading.Barrier(8)

    def make():
        start.wait()
        got.append(store.ensure("ns-b-1"))

    threads = [threading.Thread(target=make) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(got) == 8
    assert len(set(got)) == 1
    assert not list(store.directory.glob(".new-*"))


def test_makers_against_a_destroyer_leave_nothing_behind(store):
    for i in range(30):
        name, start = f"ns-c-{i}", threading.Barrier(2)

        def make(name=name, start=start):
            start.wait()
            with contextlib.suppress(KeyDestroyed):
                store.ensure(name)

        thread = threading.Thread(target=make)
        thread.start()
        start.wait()
        store.destroy(name)
        thread.join()
        with pytest.raises(KeyDestroyed):
            store.secret(name)


def test_an_open_directory_or_file_is_refused(store):
    store.ensure("ns-a-1")
    os.chmod(store.directory / "ns-a-1.key", 0o640)
    with pytest.raises(KeyStoreUnavailable):
        store.secret("ns-a-1")
    os.chmod(store.directory, 0o750)
    assert store.problems()
    with pytest.raises(KeyStoreUnavailable):
        store.ensure("ns-a-9")


def test_a_damaged_file_is_no_secret(store):
    store.ensure("ns-a-1")
    (store.directory / "ns-a-1.key").write_bytes(b"short")
    with pytest.raises(KeyStoreUnavailable):
        store.secret("ns-a-1")


def test_a_link_is_not_followed(store, tmp_path):
    store.ensure("ns-a-1")
    (tmp_path / "elsewhere").write_bytes(bytes(32))
    os.symlink(tmp_path / "elsewhere", store.directory / "ns-a-2.key")
    with pytest.raises(KeyStoreUnavailable):
        store.secret("ns-a-2")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", "a--b", "a.key", "ns-a\0"])
def test_a_name_cannot_leave_the_directory(store, name):
    with pytest.raises(ValueError, match="not a name"):
        store.secret(name)


def test_names_are_names(store):
    day = 1_790_000_000.0
    for name in (namespace_name(bytes(32), 3), node_name("a-b"), tenant_name("a-b"), subject_name("user:x", now=day)):
        store.ensure(name)
    assert subject_name("user:x", now=day) != subject_name("user:y", now=day)
    assert subject_name("user:x", now=day) != subject_name("user:x", now=day + PERIOD_SECONDS)


def test_without_a_directory_there_is_no_store(settings):
    settings.KEYSTORE_DIR = ""
    with pytest.raises(KeyStoreUnavailable):
        keystore()
