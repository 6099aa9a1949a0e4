"""Whose token it is: kept for a moment, refused when it is nobody's, unknown when the database is away."""

import asyncio

import pytest

from catalog.ingest import credentials
from catalog.ingest.credentials import Credentials, node_of
from kvconsole.infra.access import Principal
from tests.catalog.ingest.rig import plant_node
from tests.catalog.ingest.test_hot import plant_token


def ask(headers: list[bytes]) -> list:
    async def main():
        known = Credentials()
        try:
            return [await known.node(h) for h in headers], len(known.kept)
        finally:
            known.close()

    return asyncio.run(main())


def test_a_nodes_token_is_its_own(planted):
    node = plant_node(planted, "n1")
    token = plant_token(planted, node).encode()
    answers, _ = ask(
        [b"Bearer " + token, b"bearer  " + token, b"Basic " + token, b"Bearer", b"", b"Bearer " + b"x" * 999]
    )
    assert answers == [node, node, None, None, None, None]


def test_answers_are_kept_for_five_seconds(planted, monkeypatch):
    node = plant_node(planted, "n1")
    token = b"Bearer " + plant_token(planted, node).encode()
    clock = [100.0]
    monkeypatch.setattr(credentials.time, "monotonic", lambda: clock[0])

    async def main():
        known = Credentials()
        assert await known.node(token) == node
        planted.execute("UPDATE tenants_token SET revoked_at = now()")
        assert await known.node(token) == node
        clock[0] += 5.1
        assert await known.node(token) is None
        known.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "principal",
    [
        None,
        Principal(kind="user", id="u", roles=frozenset({"operator"})),
        Principal(kind="node", id="t", roles=frozenset({"node"}), holder="not-a-uuid"),
    ],
)
def test_others_are_no_node(principal):
    assert node_of(principal) is None
