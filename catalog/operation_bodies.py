"""Forms of what operations are asked and answered with over REST. Only shapes: what they mean is decided elsewhere."""

from typing import Any

from rest_framework import serializers

from kvconsole.infra.rest import Strict
from kvcore.blocks import TIERS
from kvcore.residency import PLACE

HEX32 = r"^[0-9a-f]{64}$"
HEX_KEY = r"^[0-9a-f]{32}(?:[0-9a-f]{32})?$"
MOST_PREFIX = 4096


def _part() -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    return {
        "tenant": serializers.RegexField(PLACE, max_length=63, required=False),
        "namespace": serializers.CharField(max_length=64, required=False, help_text="Id or digest"),
        "epoch": serializers.CharField(max_length=220, required=False, help_text="model/number"),
        "subject": serializers.RegexField(HEX32, required=False, help_text="Its keyed digest"),
        "session": serializers.CharField(max_length=200, required=False),
        "label": serializers.CharField(max_length=200, required=False),
        "class": serializers.CharField(max_length=63, required=False),
        "prefix": serializers.ListField(
            child=serializers.RegexField(HEX_KEY),
            required=False,
            max_length=MOST_PREFIX,
            help_text="Keys of blocks, or the first 16 bytes of them; what continues them goes too",
        ),
        "older_than": serializers.DateTimeField(required=False),
    }


def _made(name: str, doc: str, **fields: Any) -> type[Strict]:
    """A form with fields that Python keeps the names of for itself."""
    return type(name, (Strict,), {"__doc__": doc, "__module__": __name__, **fields})


SelectorPartIn = _made("SelectorPartIn", "Fields narrow each other.", **_part())
SelectorIn = _made(
    "SelectorIn",
    "What goes. Fields narrow each other, and so do the selectors of `and`.",
    **_part(),
    **{"and": SelectorPartIn(many=True, required=False)},
)


class OptionsIn(Strict):
    """What is chosen. `collateral`, of `prefix` and `older_than`: none takes these blocks and all that continue them,
    namespace takes the whole namespace. `share_groups`: those whose namespaces go too; `crypto_erase`: keys first, at
    once.
    """

    collateral = serializers.ChoiceField(["none", "namespace"], required=False)
    share_groups = serializers.ListField(child=serializers.UUIDField(), required=False, max_length=100)
    override_pins = serializers.BooleanField(default=False)
    crypto_erase = serializers.BooleanField(default=False)


class PlanIn(Strict):
    """Body of POST /deletion-plans."""

    selector = SelectorIn()
    options = OptionsIn(required=False)


class DeletionIn(Strict):
    """Body of POST /deletions."""

    plan_id = serializers.UUIDField()
    plan_hash = serializers.RegexField(HEX32)
    reason = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    confirm_phrase = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")
    grace_seconds = serializers.FloatField(min_value=0, max_value=30 * 86_400, default=0)
    throttle = serializers.IntegerField(
        min_value=1, max_value=2**50, allow_null=True, default=None, help_text="Bytes a second and node"
    )
    pass_windows = serializers.BooleanField(
        default=False, help_text="Start in a deny window too: a reason, and a second person, are needed"
    )


class ThrottleIn(Strict):
    """Body of PATCH /operations/{id}."""

    throttle = serializers.IntegerField(min_value=1, max_value=2**50, allow_null=True)


class RetireIn(Strict):
    """Body of POST /epochs/{model}/{epoch}:retire."""

    policy = serializers.ChoiceField(["immediate", "drain"], default="immediate")
    drain_seconds = serializers.IntegerField(
        min_value=30, max_value=30 * 86_400, default=600, help_text="How long it stays readable at most"
    )
    reason = serializers.CharField(max_length=500)
    throttle = serializers.IntegerField(min_value=1, max_value=2**50, allow_null=True, default=None)


class HoldIn(Strict):
    """Body of POST /holds."""

    selector = SelectorIn()
    authority = serializers.CharField(max_length=200)
    reason = serializers.CharField(max_length=500)
    review_at = serializers.DateTimeField()


class ReleaseIn(Strict):
    """Body of POST /holds/{id}:release."""

    reason = serializers.CharField(max_length=500)


class CertificateIn(Strict):
    """Body of POST /certificates:verify: the file as it was given out."""

    certificate = serializers.DictField()


class CellOut(serializers.Serializer[Any]):
    """What one owner holds of the targets, as of its position. `node`: its name; to a tenant its id."""

    owner = serializers.IntegerField()
    node = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]
    tier = serializers.ChoiceField(list(TIERS))
    dp_rank = serializers.IntegerField(allow_null=True)
    reachable = serializers.BooleanField()
    boot = serializers.CharField()
    stream = serializers.CharField()
    seq = serializers.IntegerField()
    blocks = serializers.IntegerField()
    bytes = serializers.IntegerField()


class BlockerOut(serializers.Serializer[Any]):
    """What stands in the way: a pin, a lease of a key, a transfer or a hold."""

    kind = serializers.ChoiceField(["pin", "key_lease", "transfer", "hold"])
    ref = serializers.CharField()
    ns = serializers.CharField()
    node = serializers.CharField(allow_blank=True)
    tier = serializers.CharField(allow_blank=True)
    blocks = serializers.IntegerField()
    until = serializers.FloatField(allow_null=True)
    reason = serializers.CharField(allow_blank=True)


class LeftOutOut(serializers.Serializer[Any]):
    """A namespace that others read, and whose share group was not chosen."""

    namespace = serializers.CharField()
    share_group = serializers.CharField()
    tenants = serializers.ListField(child=serializers.CharField())
    blocks = serializers.IntegerField()
    bytes = serializers.IntegerField()


class PlanOut(serializers.Serializer[Any]):
    """A frozen plan. `friction`: what its risk asks of who starts it."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    plan_hash = serializers.CharField()
    selector = serializers.DictField()
    options = serializers.DictField()
    namespaces = serializers.IntegerField()
    left_out = LeftOutOut(many=True)
    tenants = serializers.ListField(child=serializers.CharField())
    blocks = serializers.IntegerField()
    bytes = serializers.IntegerField()
    cells = CellOut(many=True)
    blockers = BlockerOut(many=True)
    unreachable = serializers.ListField(child=serializers.CharField())
    sample = serializers.ListField(child=serializers.CharField())
    lost_hits = serializers.FloatField(allow_null=True)
    risk = serializers.ChoiceField(["R0", "R1", "R2", "R3"])
    reasons = serializers.ListField(child=serializers.CharField())
    friction = serializers.DictField(child=serializers.BooleanField())
    confirm_phrase = serializers.CharField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()


class ConditionOut(serializers.Serializer[Any]):
    """A fact about an operation."""

    type = serializers.CharField()
    status = serializers.ChoiceField(["true", "false", "unknown"])
    reason = serializers.CharField(allow_blank=True)
    message = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(allow_null=True)


ProgressCellOut = type(
    "ProgressCellOut",
    (serializers.Serializer,),
    {
        "__doc__": "How far one owner is. `node`: its name; to a tenant its id. `class`: 0 to 5, null = not graded; "
        "`flags`: what is said beside it.",
        "__module__": __name__,
        "node": serializers.CharField(),
        "source": serializers.CharField(),
        "tier": serializers.CharField(),
        "owner": serializers.IntegerField(),
        "state": serializers.ChoiceField(["pending", "erasing", "erased", "verified", "blocked", "silent"]),
        "class": serializers.IntegerField(allow_null=True),
        "flags": serializers.ListField(child=serializers.CharField()),
        "done_bytes": serializers.IntegerField(),
        "total_bytes": serializers.IntegerField(),
    },
)


class OperationProgressOut(serializers.Serializer[Any]):
    """Percent of the work (null: unknown), and each owner's part; lists show no cells of what has ended."""

    percent = serializers.IntegerField(allow_null=True)
    cells = ProgressCellOut(many=True)


class ErrorOut(serializers.Serializer[Any]):
    """Why it failed, or what it waits for."""

    code = serializers.CharField()
    title = serializers.CharField()


STATES = (
    *("planned", "awaiting_approval", "fenced", "erasing", "verifying", "moving", "held", "completed"),
    *("completed_with_exceptions", "failed", "denied", "expired", "stopped"),
)


ENDS = STATES[STATES.index("completed") :]
"""How an operation ends."""


class OperationOut(serializers.Serializer[Any]):
    """An operation. `state` is computed from the conditions; `t_…`: when it was reached, null = not yet."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    state = serializers.ChoiceField(STATES)
    trigger = serializers.ChoiceField(["user", "ttl", "session_end", "epoch", "residency", "quota"])
    paused = serializers.BooleanField()
    done = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    requested_by = serializers.CharField()
    reason = serializers.CharField(allow_blank=True)
    selector = serializers.DictField()
    plan_id = serializers.UUIDField(allow_null=True)
    plan_hash = serializers.CharField()
    risk = serializers.CharField()
    approval = serializers.UUIDField(allow_null=True)
    generation = serializers.IntegerField()
    observed_generation = serializers.IntegerField()
    throttle = serializers.IntegerField(allow_null=True)
    drain_until = serializers.DateTimeField(allow_null=True)
    grace_until = serializers.DateTimeField(allow_null=True)
    deadline = serializers.DateTimeField()
    finalizers = serializers.ListField(child=serializers.CharField())
    progress = OperationProgressOut()
    conditions = ConditionOut(many=True)
    t_request = serializers.DateTimeField()
    t_fence = serializers.DateTimeField(allow_null=True)
    t_unroutable = serializers.DateTimeField(allow_null=True)
    t_erase = serializers.DateTimeField(allow_null=True)
    t_verify = serializers.DateTimeField(allow_null=True)
    concluded_at = serializers.DateTimeField(allow_null=True)
    certificate = serializers.UUIDField(allow_null=True)
    error = ErrorOut(allow_null=True)


class ReceiptOut(serializers.Serializer[Any]):
    """What a node answered to a step; `receipt` is the envelope as it signed it, `code` why it does not count."""

    id = serializers.UUIDField()
    operation = serializers.UUIDField()
    node = serializers.UUIDField(allow_null=True)
    source = serializers.CharField()  # type: ignore[assignment]
    tier = serializers.CharField()
    kind = serializers.CharField()
    state = serializers.CharField()
    code = serializers.CharField(allow_blank=True)
    hash = serializers.CharField()
    done_at = serializers.DateTimeField(allow_null=True)
    receipt = serializers.DictField()


class OrderProofOut(serializers.Serializer[Any]):
    """The event that ordered it, and its proof under a checkpoint."""

    body = serializers.CharField()
    proof = serializers.CharField()


class CertificateFileOut(serializers.Serializer[Any]):
    """A certificate as `docs/certificate.md` has it: canonical JSON, on one line. `order` null = not in the log yet."""

    body = serializers.DictField()
    format = serializers.CharField()
    note = serializers.CharField()
    order = OrderProofOut(allow_null=True)
    v = serializers.IntegerField()


class VerdictOut(serializers.Serializer[Any]):
    """What was found of a certificate. `known`: this console issued these bytes; `signature`: of its export key."""

    valid = serializers.BooleanField()
    known = serializers.BooleanField()
    signature = serializers.BooleanField()
    problems = serializers.ListField(child=serializers.CharField())
    operation = serializers.CharField(allow_blank=True)


class HoldOut(serializers.Serializer[Any]):
    """A legal hold."""

    id = serializers.UUIDField()
    selector = serializers.DictField()
    namespaces = serializers.IntegerField()
    authority = serializers.CharField()
    reason = serializers.CharField()
    review_at = serializers.DateTimeField()
    state = serializers.CharField()
    requested_by = serializers.CharField()
    requested_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)
    released_at = serializers.DateTimeField(allow_null=True)
