"""Shred epochs: secrets go over to the next one, copies of destroyed ones end with theirs, and nothing else does."""

import shutil
import threading

import pytest

from kvconsole.infra.keyepochs import SEALED_BYTES, EpochOver, KeyEpochs, NotSealed
from kvconsole.infra.keystore import KeyDestroyed, KeyStore, KeyStoreUnavailable


@pytest.fixture
def store(tmp_path):
    return KeyStore(tmp_path / "keys", KeyEpochs(tmp_path / "epochs"))


def test_a_copy_of_a_destroyed_secret_is_unreadable_once_the_epoch_is_over(store, tmp_path):
    gone, kept = store.ensure("a"), store.ensure("b")
    assert store.epochs.numbers() == [1]
    backup = KeyStore(tmp_path / "backup", store.epochs)
    shutil.copytree(store.directory, backup.directory)
    store.destroy("a")
    assert backup.secret("a") == gone  # until then
    assert gone not in b"".join(path.read_bytes() for path in backup.directory.iterdir())
    assert store.turn() == 1
    assert store.epochs.numbers() == [2]
    for name in ("a", "b"):
        with pytest.raises(KeyDestroyed):
            backup.secret(name)
    assert store.secret("b") == kept
    with pytest.raises(KeyDestroyed):
        store.ensure("a")


def test_what_was_made_before_there_were_epochs_goes_over_too(store):
    plain = KeyStore(store.directory)
    secret = plain.ensure("a")
    assert store.secret("a") == secret
    assert store.turn() == 1
    assert (store.directory / "a.key").stat().st_size == SEALED_BYTES
    assert secret not in (store.directory / "a.key").read_bytes()
    assert store.secret("a") == secret
    with pytest.raises(KeyStoreUnavailable):
        plain.secret("a")


def test_a_turn_that_was_cut_off_loses_nothing_and_is_ended_by_the_next(store, monkeypatch):
    secrets = {name: store.ensure(name) for name in ("a", "b", "c")}
    went = []

    def dies(path, epoch, whole=KeyStore._went_over):
        if len(went) == 2:
            raise SystemExit
        went.append(path)
        return whole(store, path, epoch)

    monkeypatch.setattr(store, "_went_over", dies)
    with pytest.raises(SystemExit):
        store.turn()
    monkeypatch.undo()
    assert store.epochs.numbers() == [1, 2]
    assert {name: store.secret(name) for name in secrets} == secrets
    assert store.turn() == 3
    assert store.epochs.numbers() == [3]
    assert {name: store.secret(name) for name in secrets} == secrets


def test_secrets_that_are_made_read_and_destroyed_meanwhile_are_what_they_are(store):
    stop, wrong = threading.Event(), []
    store.ensure("first")

    def work(who):
        number = 0
        while not stop.is_set():
            name, number = f"{who}-{number}", number + 1
            made = store.ensure(name)
            if store.secret(name) != made:
                wrong.append(name)
            if number % 2:
                store.destroy(name)
                if store.exists(name):
                    wrong.append(name)

    threads = [threading.Thread(target=work, args=(who,)) for who in ("a", "b")]
    for thread in threads:
        thread.start()
    for _ in range(5):
        store.turn()
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(store.epochs.numbers()) == 1
    for path in store.directory.glob("*.gone"):
        assert not path.with_suffix(".key").exists()
        with pytest.raises(KeyDestroyed):
            store.secret(path.stem)
    for path in store.directory.glob("*.key"):
        assert len(store.secret(path.stem)) == 32


def test_a_secret_that_went_over_while_it_was_read_is_read_again(store, monkeypatch):
    secret, read = store.ensure("a"), KeyStore._read

    def slow(path, name):
        blob = read(store, path, name)
        if store.epochs.numbers() == [1]:
            store.turn()
        return blob

    monkeypatch.setattr(store, "_read", slow)
    assert store.secret("a") == secret


def test_an_epoch_whose_key_is_wiped_and_not_yet_unlinked_is_over(store, tmp_path, monkeypatch):
    store.ensure("a")
    blob, path = (store.directory / "a.key").read_bytes(), tmp_path / "epochs" / "epoch-00000001.key"
    key, read = path.read_bytes(), KeyEpochs._key
    torn = iter([key[:16] + bytes(16)])
    monkeypatch.setattr(KeyEpochs, "_key", lambda epochs, number: next(torn, None) or read(epochs, number))
    path.write_bytes(bytes(32))
    for _ in ("torn", "wiped"):
        with pytest.raises(EpochOver):
            store.epochs.unseal(blob, "a")
    with pytest.raises(KeyDestroyed):
        store.secret("a")


def test_what_is_sealed_is_bound_to_its_name_and_kept_from_others(store, tmp_path):
    store.ensure("a")
    path, other = store.directory / "a.key", store.directory / "b.key"
    shutil.copy(path, other)
    with pytest.raises(KeyStoreUnavailable):
        store.secret("b")
    blob = bytearray(path.read_bytes())
    blob[-1] ^= 1
    with pytest.raises(NotSealed):
        store.epochs.unseal(bytes(blob), "a")
    key = tmp_path / "epochs" / "epoch-00000001.key"
    key.chmod(0o644)
    with pytest.raises(KeyStoreUnavailable):
        store.secret("a")
    store.epochs.end(1)
    with pytest.raises(EpochOver):
        store.epochs.unseal(path.read_bytes(), "a")


def test_a_directory_that_others_may_enter_is_a_problem(store, tmp_path):
    assert store.problems() == []
    (tmp_path / "epochs").chmod(0o755)
    assert ["shred epochs" in problem for problem in store.problems()] == [True]
    (tmp_path / "file").touch()
    assert KeyStore(store.directory, KeyEpochs(tmp_path / "file" / "x")).problems()
