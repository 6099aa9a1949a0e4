"""Decides where the secrets of webhooks are: in the key store, one for each version; never in the database."""

from uuid import UUID

from kvconsole.infra import keystore


def name_of(webhook: UUID, version: int) -> str:
    """The secret's name in the key store."""
    return f"webhook-{webhook}-{version}"


def secret_made(webhook: UUID, version: int) -> bytes:
    """The secret of this version, made now if there was none.

    Raises:
        KeyStoreUnavailable: it can neither be read nor made.
    """
    return keystore.keystore().ensure(name_of(webhook, version))


def secrets_of(webhook: UUID, version: int, *, old: bool) -> list[bytes]:
    """The secrets a message is signed with, the newest first.

    Raises:
        KeyMissing: the secret was never made, or destroyed.
        KeyStoreUnavailable: nobody can tell now.
    """
    store = keystore.keystore()
    versions = [version, version - 1] if old and version > 1 else [version]
    return [store.secret(name_of(webhook, one)) for one in versions]


def secrets_destroy(webhook: UUID, version: int) -> None:
    """No version of the secret is anywhere any more."""
    store = keystore.keystore()
    for one in range(max(1, version - 1), version + 1):
        store.destroy(name_of(webhook, one))
