"""The record by which a log goes on under another name and key: what was signed, what of it was kept, who agreed.

A signed note of both logs' keys; its text is also in the first leaf of the new log. Pure. Made by the signer
(`audit.signer.setup`), told in bundles, checked by `kvc-verify`.
Source: docs/bundle.md.
"""

import re
from typing import NamedTuple

from kvcore.notes import ED25519, NoteError, note_text, vkey_parse

HEAD = "kvconsole/epoch/v1"
REASONS = ("restore", "key-stolen", "key-replaced")
_FORM = re.compile(
    rf"{HEAD}\n"
    r"old (\S+) (0|[1-9][0-9]{0,17}) ([0-9a-f]{64})\n"
    r"kept (0|[1-9][0-9]{0,17}) ([0-9a-f]{64})\n"
    r"new (\S+)\n"
    r"export (\S+)\n"
    r"approval ([0-9a-f-]{36})\n"
    r"approvers ([0-9a-f]{32}) ([0-9a-f]{32})\n"
    r"at ([0-9TZ:-]{20})\n"
    rf"reason ({'|'.join(REASONS)})\n",
    re.ASCII,
)


class EpochRecord(NamedTuple):
    """What one says.

    Attributes:
        old: vkey of the log that ended.
        old_size, old_root: what was signed last under its name.
        kept, kept_root: the part of it that is still there: its first leaves.
        new: vkey of the log that begins.
        export: vkey of its bundles.
        approval: under which two people agreed.
        approvers: their names in the log.
        at: when, RFC 3339 in UTC.
        reason: one of `REASONS`.
    """

    old: str
    old_size: int
    old_root: bytes
    kept: int
    kept_root: bytes
    new: str
    export: str
    approval: str
    approvers: tuple[str, str]
    at: str
    reason: str

    @property
    def old_origin(self) -> str:
        """Name of the log that ended."""
        return vkey_parse(self.old).name

    @property
    def origin(self) -> str:
        """Name of the log that begins."""
        return vkey_parse(self.new).name


def record_text(said: EpochRecord) -> str:
    """The text that both keys sign.

    Raises:
        NoteError: it is not in the form of one.
    """
    text = (
        f"{HEAD}\nold {said.old} {said.old_size} {said.old_root.hex()}\nkept {said.kept} {said.kept_root.hex()}\n"
        f"new {said.new}\nexport {said.export}\napproval {said.approval}\napprovers {' '.join(said.approvers)}\n"
        f"at {said.at}\nreason {said.reason}\n"
    )
    _parse(text)
    return text


def record_parse(note: str) -> EpochRecord:
    """What a signed record says; its signatures are not looked at.

    Raises:
        NoteError: it is none.
    """
    return _parse(note_text(note))


def _parse(text: str) -> EpochRecord:
    found = _FORM.fullmatch(text)
    if found is None:
        raise NoteError("epoch-record")
    old, old_size, old_root, kept, kept_root, new, export, approval, one, other, at, reason = found.groups()
    if {vkey_parse(key).kind for key in (old, new, export)} != {ED25519} or one == other or int(kept) > int(old_size):
        raise NoteError("epoch-record")
    return EpochRecord(
        old, int(old_size), bytes.fromhex(old_root), int(kept), bytes.fromhex(kept_root), new, export, approval,
        (one, other), at, reason,
    )  # fmt: skip
