"""An engine's publisher as seen on the wire: PUB, and a ROUTER that replays a ring of the last batches."""

import threading
from collections import OrderedDict
from typing import Any

import zmq

END = b"\xff" * 8


class Publisher:
    """Publishes batches with a growing sequence; may lose some on the way.

    Args:
        ring: batches kept for replay.
        old: replies of before 0.26, without the topic.
        connect: endpoint to connect to instead of binding.
        ports: of the publisher and of the replay endpoint; 0 = any.
    """

    def __init__(
        self, *, ring: int = 10_000, old: bool = False, connect: str | None = None, mute: bool = False,
        ports: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._pub.setsockopt(zmq.LINGER, 500)
        if connect:
            self._pub.connect(connect)
            self.endpoint = connect
        else:
            self._pub.bind(f"tcp://127.0.0.1:{ports[0] or '*'}")
            self.endpoint = self._pub.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0")
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.bind(f"tcp://127.0.0.1:{ports[1] or '*'}")
        self.replay = self._router.getsockopt(zmq.LAST_ENDPOINT).decode().rstrip("\0")
        self._ring, self._ring_max, self._old, self._mute = OrderedDict[int, bytes](), ring, old, mute
        self.seq, self.asked = 0, 0
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def publish(self, payload: bytes, *, lose: bool = False) -> None:
        """The batch is in the ring, and on its way unless it is lost."""
        with self._lock:
            self._ring[self.seq] = payload
            while len(self._ring) > self._ring_max:
                self._ring.popitem(last=False)
            if not lose:
                self._pub.send_multipart([b"kv", self.seq.to_bytes(8, "big"), payload])
            self.seq += 1

    def raw(self, *parts: bytes) -> None:
        """Any message."""
        self._pub.send_multipart(parts)

    def restart(self) -> None:
        """A new process behind the same endpoints: the sequence begins anew, the ring is empty."""
        with self._lock:
            self._ring.clear()
            self.seq = 0

    def _serve(self) -> None:
        while not self._stop.is_set():
            if not self._router.poll(20):
                continue
            who, _, start = self._router.recv_multipart()
            self.asked += 1
            if self._mute:
                continue
            with self._lock:
                batches = [(s, x) for s, x in self._ring.items() if s >= int.from_bytes(start, "big")]
            topic = [] if self._old else [b"kv"]
            for seq, payload in batches:
                self._router.send_multipart([who, b"", *topic, seq.to_bytes(8, "big"), payload])
            self._router.send_multipart([who, b"", *([] if self._old else [b""]), END, b""])

    def close(self) -> None:
        """Nothing runs any more."""
        self._stop.set()
        self._thread.join()
        self._router.close()
        self._pub.close()
        self._context.term()

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
