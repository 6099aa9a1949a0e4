"""A log's side of a witness: keys, notes and bodies."""

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.keyfiles import public_bytes
from kvcore import notes, proofs
from kvcore.notes import Checkpoint, VerifierKey
from tests.audit.signer.making import ORIGIN

KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
LOGS = {ORIGIN: [VerifierKey(ORIGIN, notes.ED25519, public_bytes(KEY))]}


def note_of(log, size, *, key=KEY, name=ORIGIN):
    text = notes.checkpoint_text(Checkpoint(ORIGIN, size, log.root(size)))
    return notes.note_sign(text, name, notes.ED25519, public_bytes(key), key.sign)


def body(log, old, new, *, key=KEY, name=ORIGIN):
    """What the log sends to have its head of size `new` cosigned after that of size `old`."""
    proof = proofs.consistency(old, new, log.node)
    lines = [
        f"old {old}",
        *(base64.b64encode(one).decode() for one in proof),
        "",
        note_of(log, new, key=key, name=name),
    ]
    return "\n".join(lines).encode()
