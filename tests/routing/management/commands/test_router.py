import asyncio

import httpx
import pytest
from django.core.management import CommandError, call_command

from routing.management.commands.router import application


@pytest.mark.parametrize("port", ["0x", "-1", "70000", ""])
def test_a_port_is_a_port(port):
    with pytest.raises((CommandError, SystemExit)):
        call_command("router", f"--port={port}")


@pytest.mark.django_db(transaction=True)
def test_the_application_begins_loads_answers_and_ends():
    hot = application(role="router")

    async def life():
        told: list[dict] = []
        messages: asyncio.Queue = asyncio.Queue()

        async def send(message):
            told.append(message)

        task = asyncio.create_task(hot({"type": "lifespan"}, messages.get, send))
        await messages.put({"type": "lifespan.startup"})
        async with httpx.AsyncClient(transport=httpx.ASGITransport(hot), base_url="http://router") as client:
            for _ in range(600):
                ready = await client.get("/readyz")
                if ready.status_code == 200:
                    break
                await asyncio.sleep(0.1)
            alive = await client.get("/healthz")
        await messages.put({"type": "lifespan.shutdown"})
        await task
        return ready, alive, [m["type"] for m in told]

    ready, alive, told = asyncio.run(life())
    assert (ready.status_code, alive.status_code) == (200, 200)
    assert ready.json()["parts"]["index"] == "live"
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
