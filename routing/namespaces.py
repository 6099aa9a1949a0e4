"""Decides which namespace a request is of, from memory: tenants, models, share groups and generations as last read.

What is asked for the first time is resolved in a thread, as the tenant, and made if it is new. A thread reads all that
is in use again every second, so nothing older than some seconds is used while PostgreSQL answers; while it does not,
what was known before stays usable for `KEPT_SECONDS`. Fences do not wait for that: they come with the replica. Keys
and salts are in memory here and nowhere else.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from django.db import close_old_connections

from catalog.workers import refusals
from kvconsole.infra.access import Principal, tenant_context
from kvconsole.infra.keystore import KeyMissing, KeyStoreUnavailable, keystore, namespace_name
from kvconsole.infra.rest import Problem
from kvcore.keys import engine_salt, subkey
from routing.codes import Refusal
from tenants.selectors import namespaces_by_digest, tenant_id_of
from tenants.services.namespace import namespace_resolve
from tenants.services.routable import Routable, routable, routable_digest

KEPT_SECONDS = 300.0
USED_SECONDS = 600.0
"""What nobody asked for in this time is forgotten."""
MOST = 50_000
Key = tuple[str, ...]
"""tenant, model, adapter, data_class, share_group, label, subject, session."""


class Place(msgspec.Struct, kw_only=True):
    """A namespace generation that requests are sent to. `tenant_id` is whose request it is, not whose namespace.

    `refused`: node → reason. `read`: when the database last said so (steady clock). `salt`, `blk`: "" and b"" until
    they are needed.
    """

    digest: bytes
    generation: int
    owner: UUID
    tenant_id: UUID
    model: str
    block_tokens: int
    block_bytes: int
    vocabulary: int | None
    refused: dict[str, str]
    read: float
    used: float
    salt: str = ""
    blk: bytes = b""


class Namespaces:
    """What is known of namespaces in this process. Look-ups are the event loop's; `learn` and `again` are threads'."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.places: dict[tuple[Any, ...], Place] = {}
        """(tenant's plane, *key) → place."""
        self.models: dict[tuple[Any, ...], tuple[Routable, float]] = {}
        self.groups: dict[tuple[Any, ...], tuple[UUID, float]] = {}
        self.by_digest: dict[tuple[UUID, UUID, bytes], Place] = {}
        """(whose request, whose namespace, digest) → place."""

    def find(self, plane: UUID | None, key: Key) -> Place | None:
        """The place if it is known and may be used; its generation may have been fenced since."""
        now = self.clock()
        place = self.places.get((plane, *key))
        if place is None:
            place = self._derived(plane, key, now)
            if place is not None:
                self._put((plane, *key), place)
        if place is None or now - place.read >= KEPT_SECONDS:
            return None
        place.used = now
        return place

    def known_tenant(self, plane: UUID | None, key: Key) -> Routable | None:
        """What is known of the request's tenant and model, if it may be used."""
        found = self.models.get((plane, *key[:3]))
        return found[0] if found and self.clock() - found[1] < KEPT_SECONDS else None

    def stand_in(self, plane: UUID | None, key: Key) -> Place | None:
        """A place without a namespace, while it cannot be asked which one it is: nothing is found or shared under it.

        Only for a tenant and model that are known, and only where any of the tenant's requests may go.
        """
        model, now = self.known_tenant(plane, key), self.clock()
        if model is None or model.of.tenant_state != "active":
            return None
        whose = [p for (tenant, _, _), p in list(self.by_digest.items()) if tenant == model.of.tenant_id]
        if not whose:
            return None
        of, refused = model.of, {node: why for place in whose for node, why in place.refused.items()}
        return Place(
            digest=b"", generation=0, owner=of.tenant_id, tenant_id=of.tenant_id, model=of.model,
            block_tokens=of.block_tokens, block_bytes=of.block_tokens * model.bytes_per_token,
            vocabulary=model.vocabulary, refused=refused, read=now, used=now,
        )  # fmt: skip

    def _derived(self, plane: UUID | None, key: Key, now: float) -> Place | None:
        found = self.known_tenant(plane, key)
        if found is None:
            return None
        _, _, adapter, data_class, share_group, label, subject, session = key
        group = self.groups.get((plane, key[0], share_group)) if share_group else None
        if share_group and (group is None or now - group[1] >= KEPT_SECONDS):
            return None
        try:
            owner, digest = routable_digest(
                found, adapter=adapter, data_class=data_class, label=label, subject=subject, session=session,
                group=group[0] if group else None,
            )  # fmt: skip
        except (Problem, KeyStoreUnavailable, KeyMissing):
            return None  # the database words it, or the log does
        return self.by_digest.get((found.of.tenant_id, owner, digest))

    def _put(self, key: tuple[Any, ...], place: Place) -> None:
        if len(self.places) >= MOST:
            self.places.clear()
        self.places[key] = place

    # ---------------------------------------------------------------- threads
    def learn(self, principal: Principal, key: Key) -> Place:
        """The place of a request, resolved now and made if it is new; runs in a thread.

        Raises:
            Refusal: as `tenants.services.namespace_resolve`; foreign and unknown tenants alike.
        """
        asked = self.clock()
        close_old_connections()
        try:
            acting = _within(principal, key[0])
            with tenant_context(acting):
                found = namespace_resolve(
                    tenant=key[0], model=key[1], adapter=key[2] or None, data_class=key[3],
                    share_group=key[4] or None, label=key[5], subject=key[6], session=key[7], actor=acting,
                    now=datetime.now(UTC),
                )  # fmt: skip
                model = routable(tenant=key[0], model=key[1], adapter=key[2])
                if found.state != "active":
                    raise Problem("namespace-closed")
        except Problem as e:
            raise _worded(e) from None
        digest, of = bytes(found.digest), model.of
        place = Place(
            digest=digest, generation=found.generation, owner=found.tenant_id, tenant_id=of.tenant_id, model=of.model,
            block_tokens=of.block_tokens, block_bytes=of.block_tokens * model.bytes_per_token,
            vocabulary=model.vocabulary, refused=_refused([digest]).get(digest, {}), read=asked, used=asked,
        )  # fmt: skip
        plane = principal.tenant_id
        self.models[(plane, *key[:3])] = (model, asked)
        if key[4] and found.share_group:
            self.groups[plane, key[0], key[4]] = (found.share_group, asked)
        self.by_digest[of.tenant_id, found.tenant_id, digest] = place
        self._put((plane, *key), place)
        return place

    def again(self) -> None:
        """All that is in use is as the database says now, in a few statements; what is over is forgotten.

        Raises:
            Error: the database is away; everything stays as it was read.
        """
        now = self.clock()
        for at, old in list(self.by_digest.items()):
            if now - old.used > USED_SECONDS:
                self._forget(at, old)
        digests = list({digest for _, _, digest in self.by_digest})
        rows, refused = namespaces_by_digest(digests), _refused(digests)
        for at, old in list(self.by_digest.items()):
            row = rows.get(old.digest)
            if row is None or row.state != "active" or row.generation != old.generation:
                self._forget(at, old)  # its next request learns it anew, with the keys of its generation
                continue
            old.refused, old.read = refused.get(old.digest, {}), now
        self._models_again(now)

    def _models_again(self, now: float) -> None:
        used = {(p[0], *p[1:4]) for p, place in list(self.places.items()) if now - place.used < USED_SECONDS}
        for at in list(self.models):
            if at not in used:
                del self.models[at]
                continue
            try:
                model = routable(tenant=at[1], model=at[2], adapter=at[3])
            except Problem:
                self._drop(at)
                continue
            if model != self.models[at][0]:  # closed, or its epochs or shares moved: requests are derived anew
                self._drop(at)
            if model.of.tenant_state == "active":
                self.models[at] = (model, now)
        for place_key in [k for k in list(self.places) if k[5]]:  # share groups are asked for anew: grants end
            if now - self.groups.get((place_key[0], place_key[1], place_key[5]), (None, 0.0))[1] > 2.0:
                self.places.pop(place_key, None)
        for group, (_, at_time) in list(self.groups.items()):
            if now - at_time > 2.0:
                del self.groups[group]

    def _drop(self, at: tuple[Any, ...]) -> None:
        """Nothing of this tenant's model is known any more."""
        self.models.pop(at, None)
        for key in [k for k in list(self.places) if (k[0], *k[1:4]) == at]:
            self.places.pop(key, None)

    def _forget(self, at: tuple[UUID, UUID, bytes], place: Place) -> None:
        self.by_digest.pop(at, None)
        for key in [k for k, v in list(self.places.items()) if v is place]:
            self.places.pop(key, None)


def keys_of(place: Place) -> None:
    """The place has its generation's salt and block key.

    Raises:
        Refusal: unavailable: the key store is; or namespace-closed: the key was destroyed.
    """
    if place.salt:
        return
    try:
        secret = keystore().secret(namespace_name(place.digest, place.generation))
    except KeyMissing:
        raise Refusal("namespace-closed") from None
    except KeyStoreUnavailable:
        raise Refusal("unavailable", "The key store is not there.", retry=5) from None
    place.blk = subkey(secret, "blk")
    place.salt = engine_salt(subkey(secret, "salt"))


def _within(principal: Principal, tenant: str) -> Principal:
    """The principal as it acts for the tenant; who is of the fleet acts within it, like one of its own."""
    if principal.tenant_id is not None:
        return principal
    found = tenant_id_of(tenant)
    if found is None:
        raise Problem("not-found")
    return replace(principal, tenant_id=found, tenant_slug=tenant)


def _refused(digests: list[bytes]) -> dict[bytes, dict[str, str]]:
    told = refusals(digests) if digests else {}
    return {digest: {str(node): why for node, why in nodes.items()} for digest, nodes in told.items()}


def _worded(problem: Problem) -> Refusal:
    first = problem.errors[0] if problem.errors else {}
    return Refusal(
        problem.code, str(first.get("detail", problem.text)), pointer=str(first.get("pointer", "")),
        retry=problem.retry_after_seconds,
    )  # fmt: skip
