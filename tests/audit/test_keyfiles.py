"""Key files: private, whole, and made once."""

import os

import pytest

from audit.keyfiles import KeyFileRefused, key_file


def test_a_key_that_is_missing_damaged_or_open_is_not_used(tmp_path):
    with pytest.raises(KeyFileRefused, match="key file"):
        key_file(tmp_path / "k")
    key = key_file(tmp_path / "k", make=True)
    assert key_file(tmp_path / "k", make=True).private_bytes_raw() == key.private_bytes_raw()
    os.chmod(tmp_path / "k", 0o644)
    with pytest.raises(KeyFileRefused, match="0600"):
        key_file(tmp_path / "k")
    os.chmod(tmp_path / "k", 0o600)
    (tmp_path / "k").write_bytes(b"short")
    with pytest.raises(KeyFileRefused, match="damaged"):
        key_file(tmp_path / "k")
