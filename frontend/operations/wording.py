"""Decides the words of operations, their plans, cells and approvals, in the active language.

No word here claims more than that somebody was asked or looked: what a class may be called is in
`kvcore.erasure_words`, and a test holds every word of this module against it.
"""

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from frontend.wording import Text, Tone

STATES: dict[str, Tone] = {
    "planned": Tone("info", "clock", pgettext_lazy("operation state", "asked for")),
    "awaiting_approval": Tone("warn", "inbox", pgettext_lazy("operation state", "waits for a second person")),
    "fenced": Tone("info", "fence", pgettext_lazy("operation state", "fenced")),
    "erasing": Tone("info", "work", pgettext_lazy("operation state", "being removed")),
    "verifying": Tone("info", "work", pgettext_lazy("operation state", "being looked at again")),
    "moving": Tone("info", "work", pgettext_lazy("operation state", "being moved")),
    "held": Tone("warn", "lock", pgettext_lazy("operation state", "on hold")),
    "completed": Tone("ok", "ok", pgettext_lazy("operation state", "completed")),
    "completed_with_exceptions": Tone("warn", "warn", pgettext_lazy("operation state", "completed with exceptions")),
    "failed": Tone("danger", "danger", pgettext_lazy("operation state", "failed")),
    "denied": Tone("unknown", "x", pgettext_lazy("operation state", "denied")),
    "expired": Tone("unknown", "clock", pgettext_lazy("operation state", "expired")),
    "stopped": Tone("unknown", "stop", pgettext_lazy("operation state", "stopped")),
}
CELLS: dict[str, Tone] = {
    "pending": Tone("unknown", "clock", pgettext_lazy("cell", "not begun")),
    "erasing": Tone("info", "work", pgettext_lazy("cell", "at work")),
    "erased": Tone("info", "check", pgettext_lazy("cell", "answered, not looked at")),
    "verified": Tone("ok", "ok", pgettext_lazy("cell", "looked at again")),
    "blocked": Tone("warn", "lock", pgettext_lazy("cell", "held back")),
    "silent": Tone("unknown", "fence", pgettext_lazy("cell", "waits for the node")),
    "none": Tone("unknown", "unknown", pgettext_lazy("cell", "nothing known")),
}
"""From what is said of several in one cell the first of `WORST` counts."""
WORST = ("silent", "blocked", "pending", "erasing", "erased", "verified")
KINDS: dict[str, Text] = {
    "deletion": pgettext_lazy("operation", "Deletion"),
    "epoch": pgettext_lazy("operation", "End of an epoch"),
    "residency": pgettext_lazy("operation", "Change of residency"),
    "quota_trim": pgettext_lazy("operation", "Trim to a quota"),
    "migration": pgettext_lazy("operation", "Migration"),
    "drain": pgettext_lazy("operation", "Drain of a node"),
    "prefetch": pgettext_lazy("operation", "Prefetch"),
    "cordon": pgettext_lazy("operation", "Cordon of a node"),
    "uncordon": pgettext_lazy("operation", "End of a cordon"),
}
TRIGGERS: dict[str, Text] = {
    "user": pgettext_lazy("trigger", "a person or program"),
    "ttl": pgettext_lazy("trigger", "retention"),
    "session_end": pgettext_lazy("trigger", "end of a session"),
    "epoch": pgettext_lazy("trigger", "end of an epoch"),
    "residency": pgettext_lazy("trigger", "change of residency"),
    "quota": pgettext_lazy("trigger", "quota"),
}
STEPS: dict[str, Text] = {
    "fence": pgettext_lazy("step", "fence"),
    "erase": pgettext_lazy("step", "removal"),
    "verify": pgettext_lazy("step", "look afterwards"),
    "purge": pgettext_lazy("step", "directory"),
    "shred": pgettext_lazy("step", "keys of files"),
    "keys": pgettext_lazy("step", "keys of the generation"),
    "probe": pgettext_lazy("step", "probe by another node"),
}
STEP_STATES: dict[str, Tone] = {
    "waiting": Tone("info", "clock", pgettext_lazy("step state", "waits")),
    "done": Tone("ok", "check", pgettext_lazy("step state", "answered")),
    "partial": Tone("warn", "warn", pgettext_lazy("step state", "answered in part")),
    "failed": Tone("danger", "danger", pgettext_lazy("step state", "failed")),
    "refused": Tone("danger", "danger", pgettext_lazy("step state", "refused")),
    "cancelled": Tone("unknown", "x", pgettext_lazy("step state", "cancelled")),
}
RISKS: dict[str, Tone] = {
    "R0": Tone("ok", "ok", pgettext_lazy("risk", "R0, small and your own")),
    "R1": Tone("info", "info", pgettext_lazy("risk", "R1, one part")),
    "R2": Tone("warn", "warn", pgettext_lazy("risk", "R2, much at once")),
    "R3": Tone("danger", "danger", pgettext_lazy("risk", "R3, needs two persons")),
}
REASONS: dict[str, Text] = {
    "several-tenants": _("More than one tenant is affected."),
    "shared": _("Other tenants read some of it through a share group."),
    "restricted": _("It has data of a restricted class."),
    "crypto-erase": _("Keys go first: nothing under them can be read again, on any node."),
    "tier-part-20": _("It is more than 20 % of a tier."),
    "everything": _("It selects everything."),
    "whole-class": _("A whole data class goes."),
    "whole-epoch": _("A whole epoch goes."),
    "whole-tenant": _("A whole tenant goes."),
    "whole-fleet": _("The whole fleet is meant."),
    "tier-part-1": _("It is 1 % of a tier or more."),
    "pins-overridden": _("Pins are overridden."),
    "one-subject": _("One subject goes."),
    "one-label": _("One label goes."),
    "one-namespace": _("One namespace goes."),
    "one-older_than": _("Only what is old goes."),
    "not-own": _("It is not of the tenant of who asks."),
    "one-gib": _("It is 1 GiB or more."),
}
BLOCKERS: dict[str, Tone] = {
    "hold": Tone("danger", "lock", pgettext_lazy("blocker", "legal hold")),
    "pin": Tone("warn", "pin", pgettext_lazy("blocker", "pin")),
    "key_lease": Tone("info", "clock", pgettext_lazy("blocker", "lease of the key")),
    "transfer": Tone("info", "flow", pgettext_lazy("blocker", "being moved")),
}
BLOCKED: dict[str, Text] = {
    "hold": _("It is fenced at once, and stays where it lies until the hold is released."),
    "pin": _("It does not go unless pins are overridden."),
    "key_lease": _(
        "Its key is out on lease. The fence lets nobody take a new one; that the key is gone is said once all are over."
    ),
    "transfer": _("It is told at its destination too."),
}
CONDITIONS: dict[str, tuple[Text, bool]] = {
    "Approved": (_("May begin"), True),
    "Held": (_("A legal hold stands"), False),
    "Paused": (_("Paused"), False),
    "Stopped": (_("Stopped"), False),
    "Failed": (_("Failed"), False),
    "Fenced": (_("Fenced"), True),
    "Unroutable": (_("No router or gateway can address it"), True),
    "NodesReachable": (_("All nodes answer"), True),
    "Consistent": (_("All answers agree"), True),
    "Erased": (_("All places have answered"), True),
    "Verified": (_("All places were looked at again"), True),
    "Probed": (_("All places were looked at by another node, where one can"), True),
    "Purged": (_("The directory is empty of it"), True),
    "Moved": (_("All ways between places are at their end"), True),
    "Complete": (_("Nothing was left behind"), True),
    "KeysDestroyed": (_("Its keys are gone"), True),
    "Unreadable": (_("Nobody can read what lies on nodes that do not answer"), True),
    "Concluded": (_("Concluded"), True),
}
"""Type → (statement, whether it is good where it is true)."""
STATUSES: dict[str, Text] = {
    "true": pgettext_lazy("condition", "yes"),
    "false": pgettext_lazy("condition", "no"),
    "unknown": pgettext_lazy("condition", "unknown"),
}
WHY: dict[str, Text] = {
    "waiting": _("a second person has not decided"),
    "denied": _("a second person refused"),
    "expired": _("nobody decided in time"),
    "legal-hold": _("its bytes are kept until the hold is released"),
    "paused": _("nothing more is sent"),
    "stopped": _("it ended where it was"),
    "not-needed": _("this kind needs none"),
    "not-acknowledged": _("some have not acknowledged the fence"),
    "silent": _("a node does not answer"),
    "contradicted": _("what a node said does not agree with what was seen"),
    "order-not-logged": _("its order is not in a signed log yet"),
    "working": _("some have not answered yet"),
    "grace": _("the time to change one's mind is not over"),
    "not-fenced": _("it is not fenced yet"),
    "no-places": _("no place is known that could be asked"),
    "no-answers": _("no node has answered yet"),
    "nobody-else": _("no other node looked: none can see these places, or none answered"),
    "not-started": _("nothing was sent yet"),
    "leased": _("some blocks are still being read"),
    "not-verified": _("some were not looked at again"),
    "not-encrypted": _("some of it is no ciphertext"),
    "others": _("other ways between places come first"),
    "catalog": _("the catalog has not let go of the old places yet"),
    "not-probed": _("Another node has not looked yet"),
    "deny-window": _("a deny window has to end first"),
    "draining": _("it is being drained: what is there stays readable until then"),
    "still-in-directory": _("the directory still knows some"),
    "not-destroyed": _("the key of the generation is still kept"),
    "leases-out": _("somebody still has a lease of the key"),
    "not-shredded": _("keys of files are still kept on a node"),
    "with-exceptions": _("the certificate says which"),
    "targets-foreign": _("it reached for what is another's"),
    "bytes-differ": _("bytes have changed by more than 5 %"),
    "tenant-entered": _("another tenant is affected now"),
    "agent-unreachable": _("the agent does not answer"),
    "agent-unresolved": _("the agent's name has no address"),
    "agent-too-slow": _("the agent did not answer in time"),
    "agent-answer-too-large": _("the agent answered more than is read"),
    "agent-refused": _("the agent refused the command"),
    "step-running": _("the agent is still at work on it"),
    "receipt-malformed": _("its receipt cannot be read"),
    "receipt-signature": _("its receipt is not signed by the node"),
    "receipt-not-for-this-command": _("its receipt is of another command"),
    "stale-size": _("the signer had another size of the log"),
}
"""Reason of a condition, of a drift, or of how it failed."""
PARTS: dict[str, tuple[Text, Text]] = {
    "tenant": (pgettext_lazy("selector", "Tenant"), _("Its short name.")),
    "namespace": (pgettext_lazy("selector", "Namespace"), _("Id or digest.")),
    "epoch": (pgettext_lazy("selector", "Epoch"), _("Model and number, with a slash between them.")),
    "class": (pgettext_lazy("selector", "Data class"), ""),
    "label": (pgettext_lazy("selector", "Label"), _("As requests name it.")),
    "subject": (pgettext_lazy("selector", "Subject"), _("Its keyed digest, 64 characters of hex; never a name.")),
    "session": (pgettext_lazy("selector", "Session"), _("As requests name it.")),
    "prefix": (
        pgettext_lazy("selector", "Keys of blocks"),
        _("64 characters of hex each, or the first 32; never a prompt. What continues them goes too."),
    ),
    "older_than": (pgettext_lazy("selector", "Older than, UTC"), _("2026-11-01 00:00")),
    "collateral": (_("The rest of the namespace"), _("Of keys of blocks and age it has to be said.")),
    "share_groups": (_("Share groups"), _("Ids of those whose blocks go too; others read them.")),
    "csv": (
        _("Table of subjects, namespaces or labels"),
        _("CSV with one of these words, or tenant and one of them, as its first line; at most 100 rows."),
    ),
    "reason": (_("Reason"), _("It stands in the log. No names of persons.")),
    "confirm_phrase": (_("Type it"), ""),
    "grace": (_("Time to change one's mind"), _("Minutes between the fence and the first command; 0 is none.")),
    "throttle": (_("Throttle a second and node"), _("With MiB or GiB; empty is none.")),
    "authority": (_("Authority"), _("Who demands it, and its reference.")),
    "review_at": (_("Look again on"), _("A day ahead, 2027-06-30 for example.")),
    "days": (_("Days"), _("1 to 90; after that it is void.")),
    "from_tier": (_("From tier"), ""),
    "to_tier": (_("To tier"), ""),
    "to_node": (_("To node"), _("None: each stays on its own node.")),
    "to_that_node": (_("To node"), ""),
    "node": (pgettext_lazy("selector", "Node"), ""),
    "window_tenant": (pgettext_lazy("selector", "Tenant"), _("Its short name; none is the whole fleet.")),
    "need": (_("Needed in, minutes"), _("1 to 1,440. What cannot be there in time is not begun.")),
    "begin": (_("Begins at, UTC"), _("A time of the day, 08:00 for example.")),
    "minutes": (_("Lasts, minutes"), _("1 to 10,080, a week.")),
    "cron": (_("Or a cron line, UTC"), _("Five fields; it takes the place of time and days.")),
    "from_risk": (_("Holds back"), _("What runs already goes on; what rules ask for waits.")),
    "model": (_("Model"), ""),
    "number": (pgettext_lazy("selector", "Epoch"), ""),
    "policy": (_("How"), ""),
    "drain_seconds": (_("Seconds to drain"), _("30 to 2,592,000; it stays readable so long at most.")),
}
"""Name of a field → (label, hint)."""
COLLATERAL: dict[str, Text] = {
    "": _("not said"),
    "none": _("stays: these blocks and all that continue them go"),
    "namespace": _("goes too"),
}
POLICIES: dict[str, Text] = {
    "immediate": _("at once: fenced with the start"),
    "drain": _("drained: new requests go elsewhere, what is left goes at the end"),
}
APPROVALS: dict[str, Text] = {
    "operation": pgettext_lazy("approval", "Deletion"),
    "hold": pgettext_lazy("approval", "Begin of a legal hold"),
    "hold_release": pgettext_lazy("approval", "End of a legal hold"),
    "share_group": pgettext_lazy("approval", "Share group"),
    "audit_retention": pgettext_lazy("approval", "Bodies of old events"),
    "audit_epoch": pgettext_lazy("approval", "A new log"),
}
FACTS: dict[str, Text] = {
    "kind": pgettext_lazy("fact", "Kind"),
    "reason": pgettext_lazy("fact", "Reason"),
    "blocks": pgettext_lazy("fact", "Blocks"),
    "bytes": pgettext_lazy("fact", "Bytes"),
    "tenants": pgettext_lazy("fact", "Tenants"),
    "plan_hash": pgettext_lazy("fact", "Hash of the plan"),
    "authority": pgettext_lazy("fact", "Authority"),
    "review_at": pgettext_lazy("fact", "Look again on"),
    "namespaces": pgettext_lazy("fact", "Namespaces"),
    "owner": pgettext_lazy("fact", "Owner"),
    "audience": pgettext_lazy("fact", "Shared with"),
    "name": pgettext_lazy("fact", "Name"),
    "month": pgettext_lazy("fact", "Month"),
    "events": pgettext_lazy("fact", "Events"),
    "origin": pgettext_lazy("fact", "Log"),
    "kept": pgettext_lazy("fact", "Entries that are kept"),
    "expires_at": pgettext_lazy("fact", "Ends"),
    "residency": pgettext_lazy("fact", "Residency"),
}
DAYS: dict[str, Text] = {
    "1": pgettext_lazy("day", "Monday"),
    "2": pgettext_lazy("day", "Tuesday"),
    "3": pgettext_lazy("day", "Wednesday"),
    "4": pgettext_lazy("day", "Thursday"),
    "5": pgettext_lazy("day", "Friday"),
    "6": pgettext_lazy("day", "Saturday"),
    "0": pgettext_lazy("day", "Sunday"),
}
"""As cron counts them, in the order of a week."""
FROM_RISKS: dict[str, Text] = {
    "R1": pgettext_lazy("window", "all from R1 on"),
    "R2": pgettext_lazy("window", "all from R2 on"),
    "R3": pgettext_lazy("window", "R3 alone"),
}
HOLDS: dict[str, Tone] = {
    "awaiting_approval": Tone("warn", "inbox", pgettext_lazy("hold", "waits for a second person")),
    "active": Tone("danger", "lock", pgettext_lazy("hold", "in force")),
    "releasing": Tone("warn", "inbox", pgettext_lazy("hold", "in force, its end was asked for")),
    "released": Tone("unknown", "check", pgettext_lazy("hold", "released")),
    "denied": Tone("unknown", "x", pgettext_lazy("hold", "denied")),
}
