"""Bodies that are too long, too slow, or end early are none."""

import asyncio

import pytest

from audit.intake import whole


def read(*pieces, most=10, seconds=1.0, pause=0.0):
    waiting = list(pieces)

    async def receive():
        await asyncio.sleep(pause)
        return waiting.pop(0)

    return asyncio.run(whole(receive, most=most, seconds=seconds))


def piece(body, more=False):
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.parametrize("pieces", [[piece(b"")], [piece(b"0123456789")], [piece(b"01234", True), piece(b"56789")]])
def test_a_body_is_whole(pieces):
    assert read(*pieces) == b"".join(p["body"] for p in pieces)


def test_too_long_too_slow_or_gone_is_none():
    assert read(piece(b"0" * 11)) is None
    assert read(piece(b"0" * 6, True), piece(b"0" * 6, True)) is None
    assert read(piece(b"0", True), {"type": "http.disconnect"}) is None
    assert read(piece(b"0", True), piece(b"0"), seconds=0.05, pause=0.04) is None
