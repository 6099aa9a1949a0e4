"""Decides how a message is signed, so that who receives it knows that it is ours, whole and fresh.

Source: Standard Webhooks, https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def secret_text(secret: bytes) -> str:
    """The secret as its owner gets it."""
    return PREFIX + base64.b64encode(secret).decode()


def signature(secret: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """`v1,` and the base64 of the HMAC-SHA256 of id, time and body."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()


def headers(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of a message; while a secret is replaced, with a signature of each."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(one, message_id, timestamp, body) for one in secrets),
    }
