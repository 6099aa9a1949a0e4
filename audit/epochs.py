"""Decides how people agree that a log ends and another one goes on after it, and how logs that ended are read.

Who asks and who approves are two people; then the console gives the order, which somebody brings to the signer's host
in a file (`manage.py signer --new-epoch FILE`). The rest follows by itself (`audit.beginning`). Called by REST.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections, transaction

from audit import signing
from audit.approvals import approval_request
from audit.models import Approval, Event
from audit.registry import TYPES
from audit.services import record
from audit.tree import Ask, asked, checkpoint_latest, tree_now
from kvconsole.infra.access import FLEET_PLANE, Principal, plane
from kvconsole.infra.rest import Problem, add_codes
from kvconsole.infra.sql import PLATFORM
from kvcore.epochs import REASONS as REASONS
from kvcore.notes import NoteError, checkpoint_parse, note_text
from kvcore.proofs import EMPTY_ROOT

add_codes(
    {
        "epoch-asked": (409, "Somebody asked already that the log ends"),
        "epoch-not-approved": (409, "No second person approved that the log ends"),
    }
)
KIND = "audit_epoch"
DECIDED_WITHIN = timedelta(days=7)
_NEWEST = "SELECT size, root, note FROM audit_checkpoint ORDER BY size DESC LIMIT 1"
_ENDED = (
    "SELECT number, origin, record, approval, reason, old_origin, old_key, old_size, old_root, kept, kept_root, at"
    " FROM audit_epoch ORDER BY number"
)


class Log(NamedTuple):
    """One log: the present one, or one that ended before it began."""

    number: int
    origin: str
    """"" = nothing of it was signed yet."""
    key: str
    """vkey; "" of the present one, whose signer says it."""
    size: int
    """Leaves that can be proved: of one that ended, what was kept of it."""
    root: bytes
    ended: bool
    began_at: datetime | None = None
    record: str = ""
    """How it goes on after the one before; "" of the first one."""
    reason: str = ""
    approval: UUID | None = None
    lost: int = 0
    """Leaves of the one before that were signed and not kept under its name."""


class Kept(NamedTuple):
    """The newest part of the present log that its key signed."""

    origin: str
    size: int
    root: bytes
    note: str


def logs() -> list[Log]:
    """All of them, the present one last."""
    ask = asked(FLEET_PLANE)
    found: list[Log] = []
    began: dict[str, Any] = {}
    for number, origin, said, approval, reason, old, key, size, root, kept, kept_root, at in ask(_ENDED, ()):
        found.append(Log(number - 1, old, key, kept, bytes(kept_root), True, **began))
        began = {"began_at": at, "record": said, "reason": reason, "approval": approval, "lost": size - kept}
        del origin, root
    tree, newest = tree_now(ask), checkpoint_latest(ask)
    origin = ""
    with suppress(NoteError):  # what is no note any more is a finding of the scrubber, who must come to it
        origin = checkpoint_parse(note_text(newest.note)).origin if newest else ""
    return [*found, Log(tree.epoch, origin, "", tree.size, tree.root, False, **began)]


def log_at(number: int | None) -> Log:
    """The log of this number; None = the present one.

    Raises:
        Problem: not-found.
    """
    found = logs()
    if number is None:
        return found[-1]
    if not 1 <= number <= len(found):
        raise Problem("not-found")
    return found[number - 1]


def asked_of(log: Log) -> Ask:
    """Questions to the tables of this log, under the names that those of the present one have."""
    plain = asked(FLEET_PLANE)
    if not log.ended:
        return plain

    def ask(statement: str, parameters: Sequence[Any]) -> list[Any]:
        with _aside(log.number):
            return plain(statement, parameters)

    return ask


def path_of(log: Log) -> str:
    """Where a session of its own finds the tables of this log first."""
    return f"audit_log_{log.number},public" if log.ended else "public"


@contextmanager
def _aside(number: int) -> Iterator[None]:
    with transaction.atomic(using=FLEET_PLANE), connections[FLEET_PLANE].cursor() as cursor:
        cursor.execute("SELECT current_setting('search_path')")
        before = cursor.fetchone()[0]
        cursor.execute(f"SET LOCAL search_path = audit_log_{number:d}, public")
        yield
        cursor.execute("SELECT set_config('search_path', %s, true)", (before,))


def kept_now() -> Kept:
    """What could be kept if the log that the signer signs ended now.

    Nothing where the database was set back to before it began: then all that is there is sealed anew.
    """
    rows, keys = asked(FLEET_PLANE)(_NEWEST, ()), signing.public_keys()
    kept = Kept(logs()[-1].origin, 0, EMPTY_ROOT, "")
    if rows:
        size, root, note = rows[0]
        kept = Kept(checkpoint_parse(note_text(note)).origin, size, bytes(root), note)
    if isinstance(keys, signing.PublicKeys) and keys.origin != kept.origin:
        return Kept(keys.origin, 0, EMPTY_ROOT, "")
    return kept


def epoch_request(*, reason: str, note: str, actor: Principal, now: datetime) -> Approval:
    """It waits for a second person: the present log shall end, and another one go on after it.

    Args:
        reason: one of `REASONS`.
        note: in one's own words; it is sealed.
        actor: who asks, and so may not approve.
        now: aware.

    Raises:
        Problem: not-signed (there is no log that could end) or epoch-asked; nothing was asked.
    """
    kept = kept_now()
    if not kept.origin:
        raise Problem("not-signed")
    rows = Approval.objects.filter(tenant_id=PLATFORM, kind=KIND, object_id__startswith=f"{kept.origin[-40:]}#")
    with transaction.atomic(using=plane()):
        before = list(rows.select_for_update())
        if any(a.state == "approved" or (a.state == "open" and a.expires_at > now) for a in before):
            raise Problem("epoch-asked")
        told = {"origin": kept.origin, "reason": reason, "kept": kept.size, "kept_root": kept.root.hex()}
        approval = approval_request(
            kind=KIND,
            object_id=f"{kept.origin[-40:]}#{len(before) + 1}",
            tenant_id=PLATFORM,
            what=told,
            risk="R3",
            actor=actor,
            expires_at=now + DECIDED_WITHIN,
            now=now,
        )
        record(
            event_type="epoch.requested",
            outcome="success",
            actor=actor,
            tenant_id=None,
            object_kind="approval",
            object_id=str(approval.id),
            body={**told, "approval": str(approval.id), "note": note},
        )
    return approval


def epoch_order(approval_id: UUID) -> dict[str, Any]:
    """What is brought to the signer: the order of a new epoch.

    Raises:
        Problem: not-found, or epoch-not-approved.
    """
    approval = Approval.objects.filter(id=approval_id, kind=KIND).first()
    if approval is None:
        raise Problem("not-found")
    kept = kept_now()
    if approval.state != "approved" or approval.what["origin"] != kept.origin:
        raise Problem("epoch-not-approved")
    return {
        "v": 1,
        "origin": kept.origin,
        "reason": approval.what["reason"],
        "approval": str(approval.id),
        "approvers": [_ref("epoch.requested", approval_id), _ref("approval.decided", approval_id)],
        "kept": {"size": kept.size, "root": kept.root.hex(), "note": kept.note},
    }


def epochs_asked() -> list[Approval]:
    """Requests that a log ends, newest first."""
    return list(Approval.objects.filter(tenant_id=PLATFORM, kind=KIND).order_by("-requested_at")[:100])


def _ref(event_type: str, approval_id: UUID) -> str:
    """Under which name who did this stands in the log. Index: audit_event_object."""
    rows = Event.objects.filter(object_kind="approval", object_id=str(approval_id))
    found = rows.filter(event_type=TYPES[event_type].number).order_by("-time_us").values_list("actor_ref", flat=True)
    if not found:
        raise Problem("epoch-not-approved")
    return bytes(found[0]).hex()
