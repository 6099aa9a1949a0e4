"""Decides which namespace a request is of from what was read before, without asking anybody: routers keep it in memory.

What is not known yet is read by `routable` and made by `namespace_resolve`; whoever remembers says for how long.
"""

from uuid import UUID

import msgspec
from django.db import connections

from kvconsole.infra.access import plane
from kvconsole.infra.rest import Problem
from kvconsole.infra.sql import PLATFORM
from kvcore.keys import namespace_digest
from kvcore.rollout import request_key
from tenants.services.namespace import Context, _context, _refuse, _separable, _spec

_SIZES = "SELECT bytes_per_token, config FROM tenants_model WHERE id = %s"


class Routable(msgspec.Struct, frozen=True):
    """What is known of a tenant's model. `vocabulary`: token ids are below it; None = the model does not say."""

    of: Context
    bytes_per_token: int
    vocabulary: int | None


def routable(*, tenant: str, model: str, adapter: str) -> Routable:
    """The tenant's model as the current plane shows it.

    Raises:
        Problem: not-found or unknown-model.
    """
    of = _context(tenant, model, adapter)
    with connections[plane()].cursor() as cursor:
        cursor.execute(_SIZES, (of.model_id,))
        row = cursor.fetchone()
    config = msgspec.json.decode(row[1]) if row and isinstance(row[1], str) else (row[1] if row else {})
    said = config.get("vocab_size") if isinstance(config, dict) else None
    return Routable(of, row[0] if row else 0, said if type(said) is int and said > 0 else None)


def routable_digest(
    found: Routable,
    *,
    adapter: str,
    data_class: str,
    label: str,
    subject: str,
    session: str,
    group: UUID | None,
) -> tuple[UUID, bytes]:
    """Whose the namespace of such a request is, and its digest; that it was ever made is not said.

    Args:
        found: of the request's tenant, model and adapter.
        group: the share group that the tenant was found to be in.

    Raises:
        Problem: tenant-closed, not-found (adapter), validation-failed (data class), no-epoch or
            share-group-not-separable.
    """
    of = found.of
    _refuse(of, adapter, data_class)
    kept = _separable(of, data_class=data_class, label=label, subject=subject, session=session)
    if group and any(kept.values()):
        raise Problem("share-group-not-separable")
    key = request_key(session=session, subject=subject, label=label)
    return PLATFORM if group else of.tenant_id, namespace_digest(_spec(of, adapter, kept, key, group, "content"))
