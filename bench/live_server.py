"""The servers that `bench.live` compares: the live hub's way to its sockets, and Channels groups over Valkey.

`python -m bench.live_server ours|channels PORT`: `/ws` takes sockets; the text `go N` on one of them sends N frames of
the same bytes to all, without any cap on the rate.
"""

import asyncio
import sys
from typing import Any

import django
import uvicorn

PAYLOAD = "x" * 140


def frame(seq: int) -> str:
    """About 200 bytes, as a delta of the hub reads."""
    return f'{{"topic":"bench","seq":{10**15 + seq},"delta":{{"a":{{"x":"{PAYLOAD}"}}}}}}'


def application(side: str) -> Any:
    """The ASGI application of one side."""
    django.setup()
    from channels.generic.websocket import AsyncWebsocketConsumer
    from channels.layers import get_channel_layer
    from channels.routing import ProtocolTypeRouter, URLRouter
    from django.urls import path

    from kvconsole.infra.live import Feed, Reader, TopicKind

    feed = Feed("bench", TopicKind("bench", lambda a, n: {}, frozenset(), frozenset()), "")
    feed.seq = 10**15
    feed.take({"a": {"x": ""}})
    kept: set[asyncio.Task[None]] = set()

    async def publish(count: int) -> None:
        """All readers get every frame: the next one comes when the slowest has taken the last."""
        for i in range(count):
            feed.publish({"a": {"x": PAYLOAD + ("" if i % 2 else "y")}})
            while any(place.seq != feed.seq for r in feed.readers for place in r.places.values()):
                await asyncio.sleep(0)

    async def group(count: int) -> None:
        layer = get_channel_layer()
        for i in range(count):
            await layer.group_send("bench", {"type": "frame", "text": frame(i)})
            await asyncio.sleep(0)

    def start(job: Any) -> None:
        task = asyncio.get_running_loop().create_task(job)
        kept.add(task)
        task.add_done_callback(kept.discard)

    class Ours(AsyncWebsocketConsumer):  # type: ignore[misc]
        channel_layer_alias = "none"

        async def connect(self) -> None:
            await self.accept()
            self.reader = Reader(self.pass_on)
            start(self.reader.pump())
            self.reader.join(feed)

        async def pass_on(self, text: str) -> None:
            await self.base_send({"type": "websocket.send", "text": text})

        async def receive(self, text_data: str = "", bytes_data: bytes | None = None) -> None:
            start(publish(int(text_data[3:])))

    class Channels(AsyncWebsocketConsumer):  # type: ignore[misc]
        async def connect(self) -> None:
            await self.channel_layer.group_add("bench", self.channel_name)
            await self.accept()

        async def frame(self, event: dict[str, Any]) -> None:
            await self.send(text_data=event["text"])

        async def receive(self, text_data: str = "", bytes_data: bytes | None = None) -> None:
            start(group(int(text_data[3:])))

    consumer = Ours if side == "ours" else Channels
    return ProtocolTypeRouter({"websocket": URLRouter([path("ws", consumer.as_asgi())])})


if __name__ == "__main__":
    uvicorn.run(
        application(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), ws="websockets-sansio",
        ws_per_message_deflate=False, access_log=False, log_level="warning", lifespan="off",
    )  # fmt: skip
