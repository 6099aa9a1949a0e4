"""Decides what every refusal code means to people: its title, what was not done, and whether a retry is safe.

Shown on `/docs/problems/<code>`, on error pages, and beside the refusals of a node. The same codes travel in
`application/problem+json` and in the answers of ingest.
"""

from typing import NamedTuple

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kvconsole.infra import rest

Text = str | Promise

SAME = _("Safe to send again as it is: nothing happens twice.")
LATER = _("Safe to send again later; nothing was lost meanwhile.")
CHANGED = _("Sending the same again gives the same answer. Change the request first.")
NONE = _("A retry does not help: somebody has to look at it.")

FRAME = _("Nothing of the frame was applied; the agent keeps it.")
GIVEN_UP = _("Nothing of the frame was applied. The agent lists what it holds instead, or says that it cannot.")
ITEM = _("Only this item was left out. Its neighbours in the frame were applied.")
UNHEARD = _("What it said is not in the catalog; the source says so until it is verified.")
FOLDED = _("The item was applied as far as it holds, and counted.")
NOTHING_ERASED = _("No block has gone. What was fenced already stays fenced.")
REQUEST = _("Nothing was changed.")
LEFT = _("Some blocks are left; the receipt says how many. The others are gone.")
STAYED = _("Some blocks stayed where they were; the receipt says how many. The others have moved.")
UNDECIDED = _("Nothing was decided; the request goes nowhere.")
UNHEEDED = _("The figures that were sent are not kept.")
NOT_STARTED = _("Nothing was fenced and nothing was deleted.")


class Problem(NamedTuple):
    """One code. `title` is a short statement, `undone` what was not done, `retry` whether to try again."""

    title: Text
    undone: Text
    retry: Text


PROBLEMS: dict[str, Problem] = {
    # whole requests of people and programs
    "bad-request": Problem(_("The request cannot be read"), REQUEST, CHANGED),
    "validation-failed": Problem(_("Some fields are not as they must be"), REQUEST, CHANGED),
    "unknown-field": Problem(_("The call has no such field"), REQUEST, CHANGED),
    "unknown-parameter": Problem(_("The call has no such query parameter, or it came twice"), REQUEST, CHANGED),
    "duplicate-field": Problem(_("A key of the body comes twice"), REQUEST, CHANGED),
    "out-of-range": Problem(_("A number or a length is out of range"), REQUEST, CHANGED),
    "unstorable-text": Problem(_("The text has characters that cannot be kept"), REQUEST, CHANGED),
    "body-too-deep": Problem(_("The body is nested too deeply"), REQUEST, CHANGED),
    "cursor-invalid": Problem(_("The cursor belongs to another list"), REQUEST, CHANGED),
    "idempotency-key-required": Problem(_("This call needs an Idempotency-Key"), REQUEST, CHANGED),
    "idempotency-key-invalid": Problem(_("The Idempotency-Key cannot be used"), REQUEST, CHANGED),
    "idempotency-in-progress": Problem(_("The first call with this Idempotency-Key is still at work"), REQUEST, SAME),
    "idempotency-mismatch": Problem(_("The same Idempotency-Key came with another request"), REQUEST, CHANGED),
    "not-authenticated": Problem(_("Nobody is logged in"), REQUEST, CHANGED),
    "token-invalid": Problem(_("The token is unknown, expired or revoked"), REQUEST, CHANGED),
    "csrf-failed": Problem(_("The form is too old"), REQUEST, SAME),
    "forbidden": Problem(_("Your role does not allow this"), REQUEST, NONE),
    "step-up-required": Problem(_("A fresh proof of who you are is needed"), REQUEST, CHANGED),
    "scope-missing": Problem(_("The token may not be used for this"), REQUEST, CHANGED),
    "person-needed": Problem(_("Only a person does this, no token and no service account"), REQUEST, NONE),
    "own-password-needed": Problem(_("First choose a password of your own"), REQUEST, CHANGED),
    "second-factor-needed": Problem(_("Your roles need a second factor"), REQUEST, CHANGED),
    "too-many-attempts": Problem(_("Too many attempts"), _("The attempt was not looked at."), LATER),
    "not-found": Problem(_("There is nothing here for you"), REQUEST, CHANGED),
    "method-not-allowed": Problem(_("This address takes no such method"), REQUEST, CHANGED),
    "not-acceptable": Problem(_("No representation fits what was asked for"), REQUEST, CHANGED),
    "conflict": Problem(_("The object is not in a state that allows this"), REQUEST, CHANGED),
    "etag-mismatch": Problem(_("Somebody changed it before you"), REQUEST, CHANGED),
    "etag-required": Problem(_("This call needs If-Match"), REQUEST, CHANGED),
    "body-too-large": Problem(_("The body is too large"), REQUEST, CHANGED),
    "body-too-slow": Problem(_("The body did not come in time"), REQUEST, SAME),
    "unsupported-media-type": Problem(_("This call does not take such a body"), REQUEST, CHANGED),
    "rate-limited": Problem(_("Too many requests"), REQUEST, LATER),
    "slug-lookalike": Problem(_("Another tenant's short name looks the same"), REQUEST, CHANGED),
    "requests-quota-exceeded": Problem(_("The tenant's requests per second are used up"), REQUEST, LATER),
    "deletions-quota-exceeded": Problem(_("The tenant's deletions per hour are used up"), REQUEST, LATER),
    "quota-below-use": Problem(_("The quota is below what the tenant holds now"), REQUEST, CHANGED),
    "tenant-holds-bytes": Problem(
        _("The tenant still holds blocks"),
        _("Nothing was changed. Delete its blocks first, or let nodes evict them: set its quotas to 0 with evict."),
        LATER,
    ),
    "tenant-bytes-unknown": Problem(
        _("Nobody can see now whether the tenant holds blocks"),
        _("Nothing was changed. Wait until the nodes that are named are back, or retire them for good."),
        LATER,
    ),
    "tenant-not-node-isolated": Problem(
        _("Only a tenant whose isolation is node has nodes of its own"), REQUEST, CHANGED
    ),
    "node-dedicated": Problem(_("The node is another tenant's own"), REQUEST, CHANGED),
    "node-holds-others": Problem(_("The node holds blocks of other tenants"), REQUEST, CHANGED),
    "slug-taken": Problem(_("Another tenant has this short name"), REQUEST, CHANGED),
    "username-taken": Problem(_("Somebody else has this log-in name"), REQUEST, CHANGED),
    "username-lookalike": Problem(_("Somebody else's log-in name looks the same"), REQUEST, CHANGED),
    "role-not-grantable": Problem(_("You cannot give or take this role"), REQUEST, NONE),
    "own-roles": Problem(_("Nobody changes their own rights"), REQUEST, NONE),
    "last-administrator": Problem(_("Nobody else could do what this person does"), REQUEST, CHANGED),
    "person-removed": Problem(_("The person was removed and stays so"), REQUEST, NONE),
    "invitation-invalid": Problem(_("The invitation was used, is too old or never was"), REQUEST, CHANGED),
    "provider-refused": Problem(_("The provider's answer opens no account here"), REQUEST, NONE),
    "model-taken": Problem(_("Another model has this name"), REQUEST, CHANGED),
    "node-name-taken": Problem(_("Another node has this name"), REQUEST, CHANGED),
    "unknown-tenant": Problem(_("There is no such tenant"), REQUEST, CHANGED),
    "unknown-model": Problem(_("There is no such model"), REQUEST, CHANGED),
    "config-unusable": Problem(_("The model's config cannot be used"), REQUEST, CHANGED),
    "no-epoch": Problem(_("The model has no open epoch"), REQUEST, LATER),
    "namespace-closed": Problem(_("The namespace is closed"), REQUEST, NONE),
    "model-name-alike": Problem(_("Another model's name looks like this one"), REQUEST, CHANGED),
    "model-unknown-base": Problem(_("There is no model that this could be a variant of"), REQUEST, CHANGED),
    "epoch-unknown": Problem(_("The model has no such epoch"), REQUEST, CHANGED),
    "epoch-retired": Problem(_("The epoch is retired"), REQUEST, CHANGED),
    "epoch-twin": Problem(_("A variant already has this epoch, with equal weights and layout"), REQUEST, CHANGED),
    "rollout-shares": Problem(_("The shares do not sum to 100 per cent"), REQUEST, CHANGED),
    "tenant-closed": Problem(_("The tenant is closed"), REQUEST, NONE),
    "audience-unknown": Problem(_("There is no such tenant to share with"), REQUEST, CHANGED),
    "expiry-range": Problem(_("The expiry is not within the next 180 days"), REQUEST, CHANGED),
    "share-group-taken": Problem(_("The owner has a share group of this name"), REQUEST, CHANGED),
    "share-group-inactive": Problem(_("The share group is not in force"), REQUEST, CHANGED),
    "share-group-incompatible": Problem(_("These tenants cannot share"), REQUEST, CHANGED),
    "share-group-not-separable": Problem(
        _("What must be erasable apart cannot go into a shared namespace"), REQUEST, CHANGED
    ),
    "approval-own": Problem(_("Nobody approves what they asked for"), REQUEST, NONE),
    "approval-decided": Problem(_("It was decided already"), REQUEST, NONE),
    "approval-expired": Problem(_("It waited too long for a second person"), REQUEST, NONE),
    "retention-too-young": Problem(_("Bodies are kept for at least twelve months after their month"), REQUEST, CHANGED),
    "retention-done": Problem(_("These bodies went already, or somebody asked for it"), REQUEST, NONE),
    "audit-unavailable": Problem(_("The log is not signed in time: what cannot be undone has to wait"), REQUEST, LATER),
    "fences-replaying": Problem(
        _("After a restore, every node is asked first which fences it knows; it goes on by itself"), REQUEST, LATER
    ),
    "epoch-asked": Problem(_("Somebody asked already that the log ends"), REQUEST, NONE),
    "epoch-not-approved": Problem(_("No second person approved that the log ends"), REQUEST, LATER),
    "finding-closed": Problem(_("It is closed: a later look found it no more"), REQUEST, NONE),
    "not-sequenced": Problem(_("The event is not in the log yet"), REQUEST, SAME),
    "not-signed": Problem(_("No signed checkpoint holds it yet"), REQUEST, SAME),
    "too-many-jobs": Problem(_("As many exports and verifications as may be are at work"), REQUEST, LATER),
    "job-open": Problem(_("The job is still at work"), REQUEST, LATER),
    "job-over": Problem(_("The job has ended"), REQUEST, NONE),
    "export-gone": Problem(_("The export's file was removed"), REQUEST, CHANGED),
    "export-too-large": Problem(_("The export would be larger than 64 GiB"), REQUEST, CHANGED),
    "log-torn": Problem(_("Something in the log is missing"), REQUEST, NONE),
    "format-unavailable": Problem(_("The console cannot make this format"), REQUEST, CHANGED),
    "exports-unconfigured": Problem(_("The console has no place for exports"), REQUEST, NONE),
    "range-not-satisfiable": Problem(_("The file has no such bytes"), REQUEST, CHANGED),
    "webhook-url-refused": Problem(_("The console sends nothing to this address"), REQUEST, CHANGED),
    "too-many-webhooks": Problem(_("The tenant has as many webhooks as may be"), REQUEST, CHANGED),
    "agent-url-refused": Problem(_("The console does not dial this address"), REQUEST, CHANGED),
    "agent-url-mismatch": Problem(_("The agent listens elsewhere than was said"), REQUEST, CHANGED),
    "node-name-mismatch": Problem(_("The enrolment token was made for a node of another name"), REQUEST, CHANGED),
    "enrolment-token-invalid": Problem(_("The enrolment token is unknown, used or expired"), REQUEST, CHANGED),
    "public-key-invalid": Problem(_("The public key cannot be used"), REQUEST, CHANGED),
    "signer-unavailable": Problem(_("The process with the command key does not answer"), REQUEST, LATER),
    # deletions and other operations
    "selector-empty": Problem(_("The selector names nothing"), REQUEST, CHANGED),
    "not-separable": Problem(_("This cannot be told apart from the rest"), REQUEST, CHANGED),
    "collateral-needed": Problem(_("It must be said what becomes of the rest of the namespace"), REQUEST, CHANGED),
    "catalog-behind": Problem(_("The catalog has not written down yet what is to be selected from"), REQUEST, LATER),
    "selector-unsupported": Problem(_("This selector cannot be carried out yet"), REQUEST, CHANGED),
    "plan-needed": Problem(_("It has to be planned and looked at first"), REQUEST, CHANGED),
    "nothing-selected": Problem(_("Nothing is there that the selector means"), NOT_STARTED, CHANGED),
    "plan-expired": Problem(_("The plan is too old to be started"), NOT_STARTED, CHANGED),
    "plan-started": Problem(_("The plan was started before"), NOT_STARTED, NONE),
    "plan-mismatch": Problem(_("The hash is not that of the plan"), NOT_STARTED, CHANGED),
    "plan-drifted": Problem(_("What the plan reaches has changed too much since"), NOT_STARTED, CHANGED),
    "confirm-phrase-wrong": Problem(_("What was typed is not what the plan asks for"), NOT_STARTED, CHANGED),
    "reason-needed": Problem(_("It must be said why"), NOT_STARTED, CHANGED),
    "deny-window": Problem(_("Nothing of this risk starts now"), NOT_STARTED, LATER),
    "targets-foreign": Problem(_("What it reaches is another tenant's"), NOT_STARTED, NONE),
    "approval-needed": Problem(_("A second person has to agree to it"), NOTHING_ERASED, CHANGED),
    "operation-over": Problem(_("The operation has ended"), REQUEST, NONE),
    "no-slack": Problem(_("There is not enough time before it is needed"), REQUEST, NONE),
    "no-route": Problem(_("There is no place that this could go to"), REQUEST, CHANGED),
    "recompute-too-grave": Problem(
        _("What would be let go needs a second person, and a drain cannot ask one"), REQUEST, CHANGED
    ),
    "node-draining": Problem(_("The node is being drained"), REQUEST, NONE),
    "all-pinned": Problem(_("All that is meant is pinned where it lies"), REQUEST, CHANGED),
    "pins-too-many": Problem(_("The tenant has as many pins as it may have"), REQUEST, CHANGED),
    "hints-too-many": Problem(_("The tenant has announced too much within a minute"), REQUEST, LATER),
    "hold-over": Problem(_("The hold is not in a state that allows this"), REQUEST, NONE),
    # requests and commands to agents
    "lease-over": Problem(_("The node has no keys for this namespace now"), REQUEST, LATER),
    "ticket-invalid": Problem(_("The ticket is not good for this node"), REQUEST, CHANGED),
    "ticket-expired": Problem(_("The ticket is over"), REQUEST, CHANGED),
    "ticket-scope": Problem(_("The ticket is for another namespace"), REQUEST, CHANGED),
    "request-malformed": Problem(_("The node cannot read the request"), REQUEST, CHANGED),
    "request-too-large": Problem(_("The batch of requests is too large"), REQUEST, CHANGED),
    "data-class": Problem(_("The data class may not be on this node"), REQUEST, NONE),
    "residency": Problem(_("The tenant's blocks may not leave its region"), REQUEST, NONE),
    "protection": Problem(_("The node does not protect blocks as the tenant asks"), REQUEST, NONE),
    "isolation": Problem(_("The node may not hold blocks of this tenant"), REQUEST, NONE),
    "quota": Problem(_("The tenant's quota leaves nothing on this node"), REQUEST, LATER),
    "no-room": Problem(_("The node cannot promise room for the blocks"), REQUEST, LATER),
    "session-fenced": Problem(_("The session has moved to another node"), REQUEST, CHANGED),
    "command-malformed": Problem(_("The node cannot read the command"), REQUEST, CHANGED),
    "command-signature": Problem(_("The command is not signed by the node's console"), REQUEST, NONE),
    "command-not-for-this-node": Problem(_("The command is for another node"), REQUEST, CHANGED),
    "command-expired": Problem(_("The command is over"), REQUEST, CHANGED),
    "kind-unknown": Problem(_("The agent does not know this kind of command"), REQUEST, NONE),
    "agent-error": Problem(_("The agent could not end the command"), REQUEST, NONE),
    "journal-full": Problem(_("The agent's journal cannot be written"), REQUEST, LATER),
    "args-malformed": Problem(_("The command's arguments are not as they must be"), REQUEST, CHANGED),
    "owner-unknown": Problem(_("The node has no such tier"), REQUEST, NONE),
    "blocks-leased": Problem(_("Blocks that are in use are left"), LEFT, LATER),
    "tier-down": Problem(_("The tier's medium does not answer"), LEFT, LATER),
    "medium-out-of-reach": Problem(_("The node cannot see this medium of the other node"), REQUEST, NONE),
    "readback-unclean": Problem(_("What was read back is not clean"), LEFT, NONE),
    # moves between agents
    "offer-unknown": Problem(_("The node offers nothing under this step"), REQUEST, SAME),
    "transfer-signature": Problem(_("The other node is not the one of the order"), REQUEST, NONE),
    "transfer-session": Problem(_("A message of the transfer is not genuine"), REQUEST, SAME),
    "transfer-malformed": Problem(_("A message of the transfer cannot be read"), REQUEST, NONE),
    "target-full": Problem(_("The destination has no room"), STAYED, LATER),
    "source-unreachable": Problem(_("The source does not answer"), STAYED, LATER),
    "too-many-left": Problem(_("Too much was left for one receipt"), STAYED, LATER),
    "tenant-mismatch": Problem(_("The namespace is another tenant's"), STAYED, LATER),
    "not-ordered": Problem(_("The order does not mean these blocks"), STAYED, NONE),
    "too-large": Problem(_("The run is larger than the destination's credit"), STAYED, NONE),
    "gone": Problem(_("The blocks are not there any more"), STAYED, LATER),
    "moving": Problem(_("The blocks are being moved away"), STAYED, LATER),
    # the console itself
    "internal": Problem(_("The console made a mistake"), REQUEST, SAME),
    "unavailable": Problem(_("A part of the console is away"), REQUEST, LATER),
    # frames
    "malformed-frame": Problem(_("The body is not an event frame"), GIVEN_UP, CHANGED),
    "truncated-frame": Problem(_("The frame ends too early"), GIVEN_UP, CHANGED),
    "frame-too-large": Problem(_("The frame is too large"), GIVEN_UP, CHANGED),
    "version-unsupported": Problem(_("The frame speaks another version"), GIVEN_UP, CHANGED),
    "foreign-token": Problem(_("The token belongs to another node"), FRAME, NONE),
    "fenced-boot": Problem(_("A newer process has replaced this one"), FRAME, NONE),
    "seq-backwards": Problem(_("The numbering went backwards"), FRAME, NONE),
    "missing-dp-rank": Problem(_("The frame does not say which rank it is of"), GIVEN_UP, CHANGED),
    "wrong-dp-rank": Problem(_("The source has no such rank"), FRAME, CHANGED),
    "node-fenced": Problem(_("The node is fenced"), FRAME, NONE),
    "too-many-sources": Problem(_("The node speaks for too many sources"), FRAME, NONE),
    "wrong-shard": Problem(_("The frame is for another writer"), FRAME, CHANGED),
    "shard-unavailable": Problem(_("The writer is away"), FRAME, LATER),
    "queue-full": Problem(_("Too many frames are waiting"), FRAME, LATER),
    # items
    "foreign-owner": Problem(_("The item names another node"), ITEM, NONE),
    "unknown-item": Problem(_("The console does not know this kind of item"), ITEM, CHANGED),
    "wrong-type": Problem(_("A field of the item has the wrong type"), ITEM, CHANGED),
    "nesting": Problem(_("The item is nested too deep"), ITEM, CHANGED),
    "negative-size": Problem(_("A size, count or time is negative"), ITEM, CHANGED),
    "used-over-capacity": Problem(_("More bytes are used than the tier has"), ITEM, CHANGED),
    "bad-keys": Problem(_("The keys are not whole, or their numbers differ"), ITEM, CHANGED),
    "too-many-keys": Problem(_("The item carries too many keys"), ITEM, CHANGED),
    "duplicate-key": Problem(_("A chain names the same block twice"), ITEM, CHANGED),
    "parent-cycle": Problem(_("A block is its own ancestor"), ITEM, CHANGED),
    "block-size-mismatch": Problem(_("The block size is not the registered one"), ITEM, CHANGED),
    "hashes-over-tokens": Problem(_("There are more hashes than tokens to fill them"), ITEM, CHANGED),
    "unfoldable": Problem(_("The writer could not apply the item"), ITEM, NONE),
    "unknown-medium": Problem(_("The engine names a medium that is no tier"), ITEM, CHANGED),
    "too-many-namespaces": Problem(_("The node speaks of too many unregistered namespaces"), ITEM, NONE),
    "step-unknown": Problem(_("No open step allows this move between nodes"), ITEM, NONE),
    "inventory-order": Problem(_("The pages of an inventory came out of order"), REQUEST, CHANGED),
    "inventory-too-large": Problem(_("The inventory is too large"), REQUEST, NONE),
    "inventory-item": Problem(_("An inventory may only list blocks"), ITEM, CHANGED),
    "load-late": Problem(_("A load report came too late"), ITEM, NONE),
    # between routers and those who ask them
    "no-candidates": Problem(_("No worker may take the request"), UNDECIDED, LATER),
    "unknown-candidate": Problem(_("A named candidate is no worker of the fleet"), UNDECIDED, CHANGED),
    "keys-length": Problem(_("The block keys do not have the length that was said"), UNDECIDED, CHANGED),
    "too-many-blocks": Problem(_("More blocks than one request can have"), UNDECIDED, CHANGED),
    "prompt-mismatch": Problem(_("The prompt's tokens and its blocks do not fit together"), UNDECIDED, CHANGED),
    "token-ids-refused": Problem(_("Only a gateway may send token ids"), UNDECIDED, CHANGED),
    "token-beyond-vocabulary": Problem(_("A token id is beyond the model's vocabulary"), UNDECIDED, CHANGED),
    "slo-invalid": Problem(_("A service level is not a positive number of milliseconds"), UNDECIDED, CHANGED),
    "outcome-known": Problem(_("The outcome of the decision is known already"), UNHEEDED, NONE),
    "outcome-invalid": Problem(_("A measured figure is not a number of its kind"), UNHEEDED, CHANGED),
    "policy-invalid": Problem(_("The policy cannot be used"), REQUEST, CHANGED),
    "policy-model-taken": Problem(_("Another policy decides this model's requests"), REQUEST, CHANGED),
    # between an engine and its listener
    "rank-mismatch": Problem(_("A batch came from the publisher of another rank"), UNHEARD, NONE),
    "replay-timeout": Problem(_("The engine's ring did not answer"), UNHEARD, NONE),
    "malformed-replay": Problem(_("The engine's ring sent something unreadable"), UNHEARD, NONE),
    "lost-ring": Problem(_("Events of the engine are lost for good"), UNHEARD, NONE),
    "lost-overflow": Problem(_("The listener could not hold what the engine sent"), UNHEARD, NONE),
    "map-full": Problem(_("The listener knows too many blocks"), UNHEARD, NONE),
    "given-up": Problem(_("Blocks waited too long for their parents"), UNHEARD, NONE),
    "adapter-mismatch": Problem(_("One namespace is used with several adapters"), FOLDED, NONE),
    "removed-unknown": Problem(_("The engine removed blocks it never announced"), FOLDED, NONE),
    # applied, but remarkable
    "unknown-keys": Problem(_("The item speaks of blocks that were not known"), FOLDED, NONE),
    "illegal-transition": Problem(_("The block cannot go to that state"), FOLDED, NONE),
    "parent-mismatch": Problem(_("The block was first reported behind another parent"), FOLDED, NONE),
    "misplaced-blocks": Problem(_("The blocks are where their class, region or isolation bars them"), FOLDED, NONE),
    "stale-generation": Problem(_("The blocks are of a fenced generation"), FOLDED, NONE),
}


def problem(code: str) -> Problem | None:
    """The meaning of a code, None if there is none. A code that an app added since has its own title."""
    if code in PROBLEMS:
        return PROBLEMS[code]
    return Problem(rest.CODES[code][1], REQUEST, NONE) if code in rest.CODES else None
