"""What a place for secrets has to be able to do: the file provider does."""

import pytest

from kvconsole.infra.keyprovider import KeyProvider
from kvconsole.infra.keystore import KeyDestroyed, KeyStore, namespace_name
from kvcore.erasure import SAFE_KEY_MEDIA


def test_the_file_provider_keeps_every_promise(tmp_path):
    store: KeyProvider = KeyStore(tmp_path / "keys")
    assert isinstance(store, KeyProvider)
    assert store.medium not in SAFE_KEY_MEDIA, "files cannot vouch for what they lie on"
    digest = bytes(range(32))
    first, second = namespace_name(digest, 1), namespace_name(digest, 2)
    assert store.ensure(first) == store.ensure(first) == store.secret(first)
    assert store.generations() == {digest: 1}
    store.ensure(second)
    assert store.destroy(first)
    assert not store.destroy(first)
    assert (store.was(first), store.exists(first), store.was(second)) == (True, False, False)
    assert store.generations() == {digest: 2}
    store.destroy(second)
    assert store.generations() == {digest: 3}, "nothing of a destroyed generation is ever used again"
    for ask in (store.ensure, store.secret):
        with pytest.raises(KeyDestroyed):
            ask(first)


def test_the_newest_fence_is_never_set_back(tmp_path):
    store = KeyStore(tmp_path / "keys")
    assert store.fence_mark() is None
    store.mark_fence(7, "a")
    store.mark_fence(6, "b")
    assert store.fence_mark() == (7, "a")
    assert KeyStore(tmp_path / "nowhere").generations() == {}
    assert store.problems() == []
