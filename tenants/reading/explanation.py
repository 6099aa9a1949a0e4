"""Reads why two namespaces share nothing."""

import re
from collections.abc import Mapping
from uuid import UUID

import msgspec

from kvcore.keys import NamespaceSpec
from kvcore.reuse import Difference, explain, sentence
from tenants.models import Namespace
from tenants.selectors import tenant_slugs

_DIGEST = re.compile(r"[0-9a-f]{64}")


class NamespaceView(msgspec.Struct, frozen=True):
    """One of the two."""

    namespace: str
    digest: str
    tenant: str
    model: str
    model_epoch: int
    state: str


class Explanation(msgspec.Struct, frozen=True):
    """The answer; `fields` empty = one namespace."""

    a: NamespaceView
    b: NamespaceView
    same: bool
    fields: list[Difference]
    words: str


def explanation(a: str, b: str) -> Explanation | None:
    """Why the namespaces (ids or digests in hex) share nothing; None = one of them is not there for the caller."""
    one, two = _namespace(a), _namespace(b)
    if one is None or two is None:
        return None
    slugs = tenant_slugs({one.tenant_id, two.tenant_id})
    found = explain(_spec(one), _spec(two))
    scopes = {str(n.tenant_id): slugs.get(n.tenant_id, "") for n in (one, two)}
    fields = [_named(d, scopes) for d in found]
    return Explanation(_view(one, slugs), _view(two, slugs), not found, fields, sentence(found))


def _namespace(said: str) -> Namespace | None:
    rows = Namespace.objects.select_related("model").defer("model__config", "model__per_group")
    if _DIGEST.fullmatch(said):
        return rows.filter(digest=bytes.fromhex(said)).first()
    try:
        return rows.filter(id=UUID(said)).first()
    except ValueError:
        return None


def _spec(namespace: Namespace) -> NamespaceSpec:
    return msgspec.convert(namespace.spec, NamespaceSpec)


def _view(n: Namespace, slugs: Mapping[UUID, str]) -> NamespaceView:
    digest = bytes(n.digest).hex()
    return NamespaceView(str(n.id), digest, slugs.get(n.tenant_id, ""), n.model.name, n.model_epoch, n.state)


def _named(difference: Difference, scopes: Mapping[str, str]) -> Difference:
    """Tenants by their short names where they are known, instead of their ids."""
    if difference.code != "scope":
        return difference
    a, b = (" ".join(scopes.get(part) or part for part in side.split()) for side in (difference.a, difference.b))
    return Difference(difference.code, a, b, difference.words)
