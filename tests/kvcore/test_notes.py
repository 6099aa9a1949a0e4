"""Notes, checkpoints, cosignatures, keys and proof files: golden vectors, there and back, refusals."""

from collections.abc import Callable

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from kvcore import notes
from kvcore.notes import Checkpoint, NoteError, VerifierKey
from tests.kvcore.test_proofs import GOLDEN as HASHES
from tests.kvcore.test_proofs import GOLDEN_ROOT

ORIGIN = "kvconsole.example/log/test/1"
WITNESS = "witness.example/w1"
LOG_KEY = f"{ORIGIN}+fbea5ade+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"
WITNESS_KEY = f"{WITNESS}+df1c0a35+BIE5dw6ofRdfVqNUZsNMfszLjYqRtO43ol32D1uPybOU"
TEXT = f"{ORIGIN}\n3\n419nWPo4G9MkrpLivllCqrt5jxiTPFb1pPPOraEaBm0=\n"
SIGNED = (
    f"{TEXT}\n— {ORIGIN} ++pa3pv/Y806UUcvEpUN13ObwbKATFfQHFvJda6Cpe6XNuCLTgycKAJNHPxS7htLax9tUyHKdqc188sXAXISju2b/QQ=\n"
)
COSIGNED = (
    f"— {WITNESS} "
    "3xwKNQAAAABqsTuKs0b+6R3198cfAI+4FHAtXR1PgaXIdE21TzdxJPBP9BoMSElezZTDNCHYpqpeSYkCI3L1eFdfzfHiSB/VkGBYAw==\n"
)
LOG, SEER = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32), Ed25519PrivateKey.from_private_bytes(b"\x02" * 32)
KNOWN = [notes.vkey_parse(LOG_KEY), notes.vkey_parse(WITNESS_KEY)]


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def test_the_golden_keys() -> None:
    assert KNOWN[0] == VerifierKey(ORIGIN, notes.ED25519, LOG.public_key().public_bytes_raw())
    assert KNOWN[1] == VerifierKey(WITNESS, notes.COSIGNATURE, SEER.public_key().public_bytes_raw())
    assert [k.text for k in KNOWN] == [LOG_KEY, WITNESS_KEY]


def test_the_golden_checkpoint() -> None:
    checkpoint = Checkpoint(ORIGIN, 3, GOLDEN_ROOT)
    assert notes.checkpoint_text(checkpoint) == TEXT
    assert notes.checkpoint_parse(TEXT) == checkpoint
    assert notes.note_sign(TEXT, ORIGIN, notes.ED25519, KNOWN[0].public, LOG.sign) == SIGNED
    opened = notes.note_open(SIGNED + COSIGNED, KNOWN, verify)
    assert (opened.text, opened.by) == (TEXT, [ORIGIN, WITNESS])
    assert notes.cosign(SIGNED, WITNESS, KNOWN[1].public, opened.times[WITNESS], SEER.sign) == COSIGNED
    assert notes.note_text(SIGNED) == TEXT


def test_a_note_that_another_implementation_signed_is_read() -> None:
    """The example of Go's `golang.org/x/mod/sumdb/note`, where the format comes from."""
    key = notes.vkey_parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    text = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    line = (
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    )
    assert notes.note_open(f"{text}\n{line}", [key], verify).text == text


@pytest.mark.parametrize("known", [KNOWN[:1], KNOWN[1:]])
def test_signatures_of_strangers_are_passed_over(known: list[VerifierKey]) -> None:
    assert notes.note_open(SIGNED + COSIGNED, known, verify).by == [known[0].name]


def test_a_note_no_known_key_signed_is_refused() -> None:
    with pytest.raises(NoteError, match="note-unsigned"):
        notes.note_open(SIGNED, KNOWN[1:], verify)


def test_one_bad_signature_of_a_known_key_refuses_all() -> None:
    forged = SIGNED.replace("++pa3pv", "++pa3pw")
    with pytest.raises(NoteError, match="note-signature"):
        notes.note_open(forged + COSIGNED, KNOWN, verify)


def test_every_flipped_bit_of_a_note_is_noticed() -> None:
    note = SIGNED.encode()
    for at in range(8 * len(note)):
        mutant = bytearray(note)
        mutant[at // 8] ^= 1 << at % 8
        with pytest.raises((NoteError, UnicodeDecodeError)):
            notes.note_open(mutant.decode(), KNOWN, verify)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda n: n.rstrip("\n"),
        lambda n: n + "x",
        lambda n: n.replace("— ", "- "),
        lambda n: n.replace("\n\n", "\n"),
        lambda n: n.replace("/QQ=", "/QR="),
        lambda n: "\x00" + n,
        lambda n: "\ud800" + n,
        lambda n: n + COSIGNED * 70,
        lambda n: n + "— a AAAA\n",
        lambda n: n + "— a+b " + COSIGNED.split(" ")[2],
        lambda n: n + "— " + COSIGNED.split(" ")[2],
    ],
)
def test_what_is_no_note_is_refused(spoil: Callable[[str], str]) -> None:
    assert spoil(SIGNED) != SIGNED
    with pytest.raises(NoteError):
        notes.note_open(spoil(SIGNED), KNOWN, verify)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "origin\n3\n",
        TEXT + "extension\n",
        TEXT.replace("\n3\n", "\n03\n"),
        TEXT.replace("\n3\n", "\n-3\n"),
        TEXT.replace("\n3\n", "\n٣\n"),
        TEXT.replace("\n3\n", f"\n{2**63}\n"),
        TEXT.replace("\n3\n", f"\n{10**30}\n"),
        TEXT.replace("Bm0=", "Bm1="),
        f"{ORIGIN}\n3\nAAAA\n",
        TEXT.replace(ORIGIN, ""),
        TEXT[:-1],
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(NoteError, match="checkpoint-malformed"):
        notes.checkpoint_parse(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "key-malformed"),
        ("name+00000000", "key-malformed"),
        ("+00000000+AAAA", "key-malformed"),
        (LOG_KEY.replace("fbea5ade", "fbea5adf"), "key-id"),
        (LOG_KEY.replace("+AY", "+BI"), "key-id"),
        (LOG_KEY.replace("+AY", "+BY"), "key-kind"),
        (LOG_KEY[:-4], "key-kind"),
        (LOG_KEY + "!", "key-malformed"),
    ],
)
def test_what_is_no_key_is_refused(text: str, code: str) -> None:
    with pytest.raises(NoteError) as caught:
        notes.vkey_parse(text)
    assert caught.value.code == code


def test_what_must_not_be_signed_is_not() -> None:
    public = KNOWN[0].public
    for text, name, kind in (
        ("no line end", "a", 1),
        ("a\tb\n", "a", 1),
        ("a\n", "a b", 1),
        ("a\n", "a+b", 1),
        ("a\n", "a", 4),
    ):
        with pytest.raises(NoteError):
            notes.note_sign(text, name, kind, public, LOG.sign)
    for checkpoint in (Checkpoint("a", 1, b"short"), Checkpoint("a", -1, bytes(32)), Checkpoint("a\tb", 1, bytes(32))):
        with pytest.raises(NoteError):
            notes.checkpoint_text(checkpoint)


@given(st.binary(max_size=200), st.integers(0, 2**63 - 1), st.lists(st.binary(min_size=32, max_size=32), max_size=64))
def test_a_proof_file_there_and_back(leaf: bytes, index: int, path: list[bytes]) -> None:
    text = notes.proof_text(leaf, index, path, SIGNED)
    assert notes.proof_parse(text) == notes.Proof(leaf, index, path, SIGNED)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t.replace("@v1", "@v2"),
        lambda t: t.replace("extra ", "other "),
        lambda t: t.replace("index 1", "index 01"),
        lambda t: t.replace("index 1", "Index 1"),
        lambda t: t.replace("U=\n", "V=\n"),
        lambda t: t.replace("+umqikqUGrSOa9NebdS/EG7ATDn1q770BqrVUN+296s=", "AAAA"),
        lambda t: t.split("\n\n", 1)[0],
        lambda t: "",
    ],
)
def test_what_is_no_proof_file_is_refused(spoil: Callable[[str], str]) -> None:
    text = notes.proof_text(b"leaf", 1, [HASHES[0], HASHES[2]], SIGNED)
    assert "QPWuSBf+fZ2Oz94ogNXmYoWtXaviBXIH1Y2p4sh445U=\n+umqikqUGrSOa9NebdS/EG7ATDn1q770BqrVUN+296s=\n\n" in text
    with pytest.raises(NoteError, match="proof-malformed"):
        notes.proof_parse(spoil(text))
