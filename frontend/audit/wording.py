"""Decides the words of the log, its jobs, webhooks and verdicts, in the active language.

As `frontend.wording`: services and selectors speak in codes, and a code that is not listed shows itself.
"""

from typing import NamedTuple

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from frontend.wording import Text, Tone


class Plan(NamedTuple):
    """What somebody is about to do: its name, what it means, what goes, and the words of both ways out."""

    title: Text
    means: Text
    points: tuple[Text, ...]
    act: Text
    keep: Text


OUTCOMES: dict[str, Tone] = {
    "success": Tone("ok", "check", pgettext_lazy("outcome", "done")),
    "failure": Tone("warn", "warn", pgettext_lazy("outcome", "failed")),
    "denied": Tone("danger", "x", pgettext_lazy("outcome", "refused")),
    "unknown": Tone("unknown", "unknown", pgettext_lazy("outcome", "unknown")),
}
SIGNER: dict[str, Tone] = {
    "ok": Tone("ok", "ok", pgettext_lazy("signer", "signs")),
    "refused": Tone("danger", "danger", pgettext_lazy("signer", "refuses to sign")),
    "away": Tone("warn", "warn", pgettext_lazy("signer", "does not answer")),
    "none": Tone("unknown", "unknown", pgettext_lazy("signer", "there is none")),
}
JOB_STATES: dict[str, Tone] = {
    "queued": Tone("info", "clock", pgettext_lazy("job state", "waits")),
    "running": Tone("info", "work", pgettext_lazy("job state", "at work")),
    "cancelling": Tone("warn", "work", pgettext_lazy("job state", "is being cancelled")),
    "done": Tone("ok", "ok", pgettext_lazy("job state", "finished")),
    "failed": Tone("danger", "danger", pgettext_lazy("job state", "failed")),
    "cancelled": Tone("unknown", "x", pgettext_lazy("job state", "cancelled")),
    "removed": Tone("unknown", "x", pgettext_lazy("job state", "file removed")),
}
JOB_KINDS: dict[str, Text] = {
    "export": pgettext_lazy("job", "Export"),
    "verify": pgettext_lazy("job", "Verification"),
}
FORMATS: dict[str, Text] = {"jsonl": _("JSON lines"), "csv": "CSV", "ocsf": "OCSF", "parquet": "Parquet"}
HOOK_STATES: dict[str, Tone] = {
    "active": Tone("ok", "ok", pgettext_lazy("webhook state", "active")),
    "paused": Tone("unknown", "pause", pgettext_lazy("webhook state", "paused")),
    "disabled": Tone("danger", "danger", pgettext_lazy("webhook state", "disabled after days of failures")),
}
DELIVERY_STATES: dict[str, Tone] = {
    "pending": Tone("info", "clock", pgettext_lazy("delivery", "on its way")),
    "delivered": Tone("ok", "check", pgettext_lazy("delivery", "delivered")),
    "failed": Tone("danger", "danger", pgettext_lazy("delivery", "given up")),
    "dropped": Tone("unknown", "x", pgettext_lazy("delivery", "dropped")),
}
APPROVAL_STATES: dict[str, Tone] = {
    "open": Tone("info", "work", pgettext_lazy("approval", "waits for a second person")),
    "approved": Tone("warn", "work", pgettext_lazy("approval", "approved, not carried out yet")),
    "denied": Tone("unknown", "x", pgettext_lazy("approval", "denied")),
    "withdrawn": Tone("unknown", "x", pgettext_lazy("approval", "withdrawn")),
    "expired": Tone("unknown", "clock", pgettext_lazy("approval", "expired")),
    "retired": Tone("ok", "check", pgettext_lazy("approval", "carried out")),
}
HOOK_KINDS: dict[str, Text] = {
    "checkpoint.signed": _("the log grew and its head was signed; at most one a minute"),
    "log.gap": _("something is missing from the log or differs from what was sealed"),
    "receipt.concluded": _("a node has answered an order"),
    "certificate.issued": _("a certificate of a deletion was issued"),
    "quota.refused": _("a quota, class or region barred blocks, or quotas changed"),
    "source.degraded": _("what an engine holds is not known exactly any more, or is again"),
    "webhook.test": _("a try, which says nothing"),
}
CLASSES: dict[int, Text] = {
    1: pgettext_lazy("event class", "people and rights"),
    2: pgettext_lazy("event class", "quotas and rules"),
    3: pgettext_lazy("event class", "models and namespaces"),
    4: pgettext_lazy("event class", "nodes"),
    5: pgettext_lazy("event class", "deletions"),
    6: pgettext_lazy("event class", "keys"),
    7: pgettext_lazy("event class", "exports"),
    8: pgettext_lazy("event class", "emergencies"),
}
DOUBTS: dict[str, tuple[Text, Text]] = {
    "no-witness": (
        _("No witness."),
        _("Nobody outside keeps what was signed: operator and signer together could show two readers two logs."),
    ),
    "signer-on-this-host": (
        _("The signer is on this host."),
        _("Whoever rules this machine rules the signing key too. Exports that you keep elsewhere still hold."),
    ),
    "witness-on-this-host": (
        _("The witness is on this host."),
        _("It sees what this machine sees, so it is no second pair of eyes."),
    ),
}
"""Code → (title, what follows from it)."""
FINDINGS: dict[str, Text] = {
    "producer-gap": _("numbers of a writer are missing"),
    "signer-set-back": _("the signer has forgotten what it signed"),
    "producer-doubled": _("a writer's number comes twice"),
    "event-unsealed": _("an event was not sealed"),
    "signer-refused": _("the signer refused this log"),
    "leaf": _("a leaf is not what was sealed"),
    "event": _("an event is not what its leaf says"),
    "body": _("a body is not what its leaf says"),
    "tile": _("a hash of the tree is not that of its leaves"),
    "checkpoint": _("a checkpoint is not that of the tree"),
    "frontier": _("the edge of the tree is not that of its leaves"),
    "log-shrunk": _("the log has become shorter than it was signed"),
    "gap": _("numbers of a writer are missing"),
    "signature": _("the newest checkpoint is not signed by the log's key"),
}
_REWRITTEN = (
    _("What is stored is not what was sealed: somebody changed it in the database, or a disk did."),
    _(
        "Keep the database as it is. Let an auditor check the newest export offline: it names what was signed. Then "
        "find out who could write there; a change of the log's tables leaves traces in the database's own logs."
    ),
)
_MISSING = (
    _("Events were numbered and are not there: a process ended before it committed them, or somebody removed them."),
    _("Look which process it was, and whether it crashed then. If no crash explains it, treat it as a removal."),
)
_REFUSED = (
    _("The signer has signed another or a longer log than this one. Nothing is signed until that is explained."),
    _(
        "If the database was restored on purpose, the log ends and another one goes on after it: see Ended logs. If "
        "nobody restored it, somebody rewrote it: keep everything, and compare it with the newest export."
    ),
)
ORIGINS: dict[str, tuple[Text, Text]] = {
    **dict.fromkeys(
        ("leaf", "event", "body", "tile", "checkpoint", "frontier", "signature", "producer-doubled"), _REWRITTEN
    ),
    **dict.fromkeys(("producer-gap", "gap"), _MISSING),
    **dict.fromkeys(("signer-refused", "log-shrunk"), _REFUSED),
    "event-unsealed": (
        _("An event is in the trail and waits for too long to be put into the log."),
        _("Look whether the sequencer runs; once the event is sealed, this closes by itself."),
    ),
    "signer-set-back": (
        _("The signer had forgotten what it signed: its state was set back, or state and key are new."),
        _("Compare the key with that of the newest export and both with the witness; the runbook says what follows."),
    ),
    "": (_("Something is not as it must be."), _("The detail says what; the runbook says what to do.")),
}
"""Kind of a finding → (what it means, what to do)."""
ENDS: dict[str, Text] = {
    "restore": _("the database was restored from a backup"),
    "key-stolen": _("the key of the log may be in wrong hands"),
    "key-replaced": _("the key of the log is replaced"),
}
"""Why a log ends."""
FLAGS: dict[str, Text] = {
    "personal_data": pgettext_lazy("event flag", "has personal data"),
    "agent_signed": pgettext_lazy("event flag", "signed by an agent"),
    "break_glass": pgettext_lazy("event flag", "emergency access"),
    "late": pgettext_lazy("event flag", "recorded late"),
    "approval": pgettext_lazy("event flag", "approval"),
    "restore": pgettext_lazy("event flag", "restore"),
    "unreadable": pgettext_lazy("event flag", "not written by the console"),
}
ACTORS: dict[str, Text] = {
    "user": pgettext_lazy("actor", "person"),
    "service": pgettext_lazy("actor", "service account"),
    "gateway": pgettext_lazy("actor", "gateway"),
    "node": pgettext_lazy("actor", "node"),
    "system": pgettext_lazy("actor", "the console itself"),
    "log": pgettext_lazy("actor", "the log itself"),
    "nobody": pgettext_lazy("actor", "nobody known"),
    "": pgettext_lazy("actor", "not kept any more"),
}
VERDICTS: dict[str, Tone] = {
    "valid": Tone("ok", "ok", pgettext_lazy("verdict", "valid")),
    "invalid": Tone("danger", "danger", pgettext_lazy("verdict", "not valid")),
    "malformed": Tone("danger", "danger", pgettext_lazy("verdict", "unreadable")),
    "incomplete": Tone("warn", "warn", pgettext_lazy("verdict", "incomplete")),
}
TRUST: dict[str, Text] = {
    "given": _("Checked with the keys you gave."),
    "console": _("Checked with the keys of this console; who distrusts it checks offline with keys of their own."),
    "none": _("The signer did not answer, so there were no keys to check with."),
}
WHY: dict[str, Text] = {
    "keys-not-given": _("No key was given, so the file only agrees with itself."),
    "quorum": _("Too few witnesses have cosigned."),
    "producer-gap": _("Numbers of a writer are missing in what was exported."),
    "body-not-kept": _("Some bodies are no longer kept; their leaves are proven."),
    "body-not-given": _("Only the leaf is proven; give the body to prove what the event says."),
    "clock-back": _("The clock went back between two events."),
    "another-log": _("It is of another log than the keys."),
    "unsigned": _("No known key has signed it."),
    "inclusion": _("The path does not lead to the signed root."),
    "index": _("The index is not the one in the leaf."),
    "body": _("The body is not what the leaf commits to."),
    "pii": _("The personal data is not what the leaf commits to."),
    "proof-not-given": _("What shows that the log only grew is missing."),
    "head-not-here": _("This console's log does not have the newer head, so it cannot show how it grew."),
    "lost": _("This log ended before so much of it was kept: what is beyond that was lost."),
    "log-ended": _("This log has ended; another one goes on after it."),
    "not-a-checkpoint": _("There is no signed head in it."),
    "not-used": _("Body and personal data are checked with a proof; an export has its own."),
    "sha256": _("The content is not what was signed."),
    "consistency": _("The log did not only grow since the export before."),
    "fork": _("Two different logs of one size were signed."),
    "shrunk": _("The log has become shorter."),
    "zip": _("The archive was changed or damaged."),
    "not-a-proof": _("It is no proof file."),
    "not-a-bundle": _("It is no export of a log."),
    "proof": _("It does not have the form of a proof."),
    "too-large": _("It is larger than is checked here; check it offline."),
    "key": _("The keys cannot be read."),
    "note": _("The signed note does not have its form."),
    "signature": _("The signature does not fit."),
    "not-a-certificate": _("It is no certificate."),
    "canonical": _("It is not written in the one form that a certificate has."),
    "form": _("It does not have the form of a certificate."),
    "version": _("A newer verifier is wanted."),
    "receipt-forked": _("Two receipts of a node follow on the same one."),
    "receipt-of-another": _("A receipt is of another order or place."),
    "receipts": _("The receipts are not those of its copies."),
    "root": _("The root is not that of its receipts."),
    "evidence": _("What it says was seen is not what the receipts say."),
    "class": _("It claims another class than its receipts carry."),
    "exceptions": _("Its exceptions or its seal are not what follows from its copies."),
    "times": _("A time is before what it follows."),
    "order": _("The event in the log ordered something else."),
    "order-not-given": _("Whether its order is in the log was not checked."),
}
"""Code of the verifier → what it means; others are shown with the verifier's own words."""
PLACES: dict[str, Text] = {
    "file": pgettext_lazy("place", "in the file"),
    "field": pgettext_lazy("place", "in the field"),
    "line": pgettext_lazy("place", "in line"),
    "index": pgettext_lazy("place", "at the entry"),
    "byte": pgettext_lazy("place", "at byte"),
    "owner": pgettext_lazy("place", "of the place"),
    "key": pgettext_lazy("place", "of the key"),
}
"""Where the verifier found it."""
FILTERS: dict[str, tuple[Text, Text]] = {
    "actor": (pgettext_lazy("filter", "Actor"), _("log-in name, or a subject such as node:fra-p1")),
    "action": (pgettext_lazy("filter", "Action"), _("token.issued, or token for all of them")),
    "object": (pgettext_lazy("filter", "Object"), _("a kind, or kind:id")),
    "tenant": (pgettext_lazy("filter", "Tenant"), _("short name; platform for the fleet")),
    "outcome": (pgettext_lazy("filter", "Outcome"), ""),
    "request_id": (pgettext_lazy("filter", "Request"), _("id that the answer carried")),
    "from": (pgettext_lazy("filter", "From, UTC"), _("2026-11-01 00:00")),
    "to": (pgettext_lazy("filter", "To, UTC"), _("the moment after the last")),
    "format": (_("Format"), ""),
    "url": (pgettext_lazy("filter", "Address"), _("https only; what it resolves to is checked at each delivery")),
    "name": (pgettext_lazy("filter", "Name"), ""),
    "month": (pgettext_lazy("filter", "Month"), _("2025-01, at least twelve months ago")),
    "class": (pgettext_lazy("filter", "Class of events"), ""),
    "reason": (pgettext_lazy("filter", "Reason"), ""),
    "end": (pgettext_lazy("filter", "Why it ends"), ""),
    "note": (pgettext_lazy("filter", "Note"), _("in your own words; it is sealed in the event")),
    "phrase": (pgettext_lazy("filter", "Type it to go on"), ""),
    "old": (pgettext_lazy("filter", "Entries of the one you kept"), _("the second line of the checkpoint")),
    "new": (pgettext_lazy("filter", "Entries of the newer one"), _("the newest signed one, if nothing is typed")),
}
"""Name of a field → (label, hint)."""
POWERS: dict[str, Text] = {
    "approvals:destroy/person": _("decide what another person asked for"),
    "audit:destroy": _("ask that bodies of old events go, or that the log ends"),
    "audit:destroy/person": _("let bodies of old events go, or a log end, after another person asked"),
    "deny-windows:destroy": _("take a deny window away"),
    "deletions:destroy": _("delete what is cached, end an epoch, or stop a deletion"),
    "holds:destroy/person": _("ask that a legal hold begins or ends"),
    "people:destroy": _("remove people, and erase what the log knows of them"),
    "share-groups:destroy": _("end a share group and fence what it cached"),
    "share-groups:destroy/person": _("let tenants share blocks, after another person asked"),
    "tenants:destroy": _("close a tenant, or make its blocks leave"),
}
"""Scope (`/person`: for people alone, no token) → what cannot be taken back."""
PLANS: dict[str, Plan] = {
    "webhook-remove": Plan(
        _("Remove a webhook"),
        _("It would be gone for good, and nobody at this address would be told of anything."),
        (
            _("Its secret goes, and so does every message that is still on its way to it."),
            _("The list of what was sent to it goes; that there was a webhook stays in the log."),
        ),
        _("Remove with its secret"),
        pgettext_lazy("webhook", "Keep it"),
    ),
    "webhook-rotate": Plan(
        _("A new secret"),
        _("The receiver has to learn the new secret within 24 hours; it is shown once."),
        (
            _("For 24 hours messages are signed with both secrets, so that none is missed."),
            _("After that a receiver that only knows the old one refuses every message."),
        ),
        _("Make a new secret"),
        pgettext_lazy("webhook", "Keep the secret"),
    ),
    "job-cancel": Plan(
        _("Stop a job"),
        _("It would end at its next step."),
        (
            _("What was made of it so far goes; nothing of the log changes."),
            _("It can be asked for again, and begins anew."),
        ),
        _("Stop it"),
        _("Let it go on"),
    ),
}
"""What is confirmed on a page of its own."""
