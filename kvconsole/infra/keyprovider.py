"""Decides what a place for secrets has to be able to do, whether it is made of files or of a service with keys.

`kvconsole.infra.keystore.KeyStore` is the provider of this console: files in a directory that no backup takes. Another
one (a KMS, an HSM behind a service) offers the same, under the same names: a secret is made once, is never changed, is
destroyed for good, and is never made again. What it cannot do it has to refuse, not to pretend: whoever cannot destroy
a version at once must not say `destroy` was done. docs/keys.md has each promise, and what a certificate says of it.
"""

from typing import Protocol, runtime_checkable


@runtime_checkable
class KeyProvider(Protocol):
    """Where secrets live. Names are those of `keystore.namespace_name` and its neighbours."""

    medium: str
    """Where a destroyed secret could still be found: memory, tpm or kms (nowhere), flash, disk, unknown (it could)."""

    def ensure(self, name: str) -> bytes:
        """The secret, made now if there never was one; durable before anybody sees it."""
        ...

    def secret(self, name: str) -> bytes:
        """The secret; `KeyDestroyed` or `KeyMissing` where there is none."""
        ...

    def exists(self, name: str) -> bool:
        """Whether it is there."""
        ...

    def was(self, name: str) -> bool:
        """Whether it was destroyed."""
        ...

    def destroy(self, name: str) -> bool:
        """Gone for good, in every copy; whether there was one. Afterwards it can never be made again."""
        ...

    def turn(self) -> int:
        """A shred epoch is over: what was destroyed before is gone in every copy, too; how many secrets went on."""
        ...

    def generations(self) -> dict[bytes, int]:
        """Of each namespace the generation below which it was fenced for sure."""
        ...

    def mark_fence(self, seq: int, name: str) -> None:
        """The newest fence of the database is at least this one."""
        ...

    def fence_mark(self) -> tuple[int, str] | None:
        """The newest fence that was noted."""
        ...

    def problems(self) -> list[str]:
        """Why it cannot be used now."""
        ...
