"""Decides what a key file is: 32 raw bytes that only its owner reads, with the public half beside it."""

import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class KeyFileRefused(Exception):
    """The file is missing, damaged or open to others; says which, and where."""


def key_file(path: Path, *, make: bool = False) -> Ed25519PrivateKey:
    """The Ed25519 key of the file; beside it `<path>.pub` has the public half in hex.

    Args:
        path: 32 raw bytes, mode 0600.
        make: a key that is not there is made.

    Raises:
        KeyFileRefused: the file is missing, damaged or open to others.
    """
    if make and not path.exists():
        _make(path)
    try:
        raw, mode = path.read_bytes(), path.stat().st_mode
    except OSError as e:
        raise KeyFileRefused(f"the key file: {e.strerror}: {path}") from e
    if mode & 0o077:
        raise KeyFileRefused(f"the key can be read by others: {path} must have mode 0600")
    if len(raw) != 32:
        raise KeyFileRefused(f"the key is damaged: {path}")
    key = Ed25519PrivateKey.from_private_bytes(raw)
    public = path.with_name(f"{path.name}.pub")
    if not public.exists() or public.read_text().strip() != public_bytes(key).hex():
        public.write_text(public_bytes(key).hex() + "\n")
    return key


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The 32 bytes of the public half."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether an Ed25519 signature is good."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _make(path: Path) -> None:
    fresh = Ed25519PrivateKey.generate()
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "wb") as file:
        file.write(fresh.private_bytes_raw())
        file.flush()
        os.fsync(fd)
    try:
        os.link(part, path)  # the first one wins
    except FileExistsError:
        pass
    finally:
        part.unlink()
