"""A receiver of webhooks over real HTTP: keeps what came and answers as it is told."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
from collections.abc import Iterator

from tests.audit.sealed import serving


class Receiver:
    """`got` are (headers, body); `answers` are (status, headers, body, seconds) of the next calls, the last of all."""

    def __init__(self):
        self.got, self.answers = [], [(200, [], b"", 0)]

    async def __call__(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body")
        self.got.append(({k.decode(): v.decode() for k, v in scope["headers"]}, body))
        status, headers, answer, seconds = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await asyncio.sleep(seconds)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@contextlib.contextmanager
def receiving() -> Iterator[tuple[Receiver, str]]:
    """A receiver, and its address."""
    made = Receiver()
    with serving(made) as url:
        yield made, url


def verified(secret, headers, body):
    """As a receiver checks a message, by the words of Standard Webhooks."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body.decode()}".encode()
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{wanted}" in headers["webhook-signature"].split()
