"""A passkey in software: makes and signs what a browser would send. Nothing of the console is replaced by it."""

import hashlib
import json
import os
from base64 import urlsafe_b64encode

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import ES256

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def b64(data):
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class Passkey:
    """One resident credential for one host."""

    def __init__(self, host="testserver", origin="https://testserver"):
        self.host, self.origin = host, origin
        self.key, self.id, self.count = ec.generate_private_key(ec.SECP256R1()), os.urandom(16), 0
        self.handle = ""

    def _client(self, kind, challenge, origin=None):
        data = {"type": kind, "challenge": challenge, "origin": origin or self.origin, "crossOrigin": False}
        return json.dumps(data).encode()

    def _data(self, flags, rest=b""):
        self.count += 1
        return hashlib.sha256(self.host.encode()).digest() + bytes([flags]) + self.count.to_bytes(4, "big") + rest

    def create(self, options):
        """The answer to creation options."""
        public = options["publicKey"]
        self.handle = public["user"]["id"]
        cose = cbor.encode(dict(ES256.from_cryptography_key(self.key.public_key())))
        attested = bytes(16) + len(self.id).to_bytes(2, "big") + self.id + cose
        auth = self._data(PRESENT | VERIFIED | ATTESTED, attested)
        made = cbor.encode({"fmt": "none", "attStmt": {}, "authData": auth})
        return {
            "id": b64(self.id), "rawId": b64(self.id), "type": "public-key",
            "clientExtensionResults": {"credProps": {"rk": True}},
            "response": {
                "clientDataJSON": b64(self._client("webauthn.create", public["challenge"])),
                "attestationObject": b64(made),
            },
        }  # fmt: skip

    def get(self, options, *, origin=None, verified=True):
        """The answer to request options."""
        client = self._client("webauthn.get", options["publicKey"]["challenge"], origin)
        auth = self._data(PRESENT | (VERIFIED if verified else 0))
        signature = self.key.sign(auth + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        return {
            "id": b64(self.id), "rawId": b64(self.id), "type": "public-key", "clientExtensionResults": {},
            "response": {
                "clientDataJSON": b64(client), "authenticatorData": b64(auth), "signature": b64(signature),
                "userHandle": self.handle,
            },
        }  # fmt: skip
