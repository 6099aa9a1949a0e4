"""Decides what a look-up may answer: whose namespace it is, which generation, and nothing of what is fenced."""

from kvconsole.infra.access import Principal
from kvcore.keys import KEY_BYTES
from routing.replica import Found, Replica, replica
from routing.view import Space
from tenants.selectors import namespaces_by_digest
from tenants.whole import need_fences

KEYS_MAX = 8_192
"""Keys of one look-up; a prompt of 131,072 tokens in blocks of 16."""


def prefix_lookup(
    *,
    principal: Principal,
    digest: bytes,
    generation: int | None,
    group: int,
    keys: bytes,
    index: Replica | None = None,
) -> Found:
    """Who holds how much of a prefix, deepest last.

    Unknown, foreign and fenced namespaces answer alike: nothing. A tenant's own namespaces are those its connection
    shows; unclaimed ones are answered to the fleet alone.

    Args:
        principal: who asks; inside its `tenant_context`.
        digest: the namespace.
        generation: None = the present one.
        group: cache group.
        keys: packed, 32 bytes each.
        index: another replica than the process's own.
    """
    need_fences()
    return (index or replica()).lookup(_space(principal, digest, generation, group), fingerprints(keys))


def _space(principal: Principal, digest: bytes, generation: int | None, group: int) -> Space:
    """The space that is asked for; one that no index has where the namespace is not the principal's to see."""
    row = namespaces_by_digest([digest]).get(digest)
    wanted = generation if generation is not None else (row.generation if row else -1)
    hidden = row.min_gen > wanted if row else principal.tenant_id is not None
    return Space(b"" if hidden else digest, wanted, group)


def fingerprints(keys: bytes) -> bytes:
    """The first 8 bytes of each packed key."""
    return b"".join(keys[i : i + 8] for i in range(0, len(keys), KEY_BYTES))
