"""Bodies and answers of the log, its jobs and webhooks, and how they are made from rows."""

from datetime import datetime
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from audit.export.bundle import FORMATS
from audit.jobs import KINDS, STATES
from audit.models import Job
from audit.selectors import OUTCOMES, EventFilter, EventView
from audit.services import portable
from kvconsole.infra.rest import Strict

FILTERS = ("actor", "action", "object", "tenant", "outcome", "request_id")
QUERY = (
    OpenApiParameter("actor", str, description="Log-in name, id of a person, subject (`node:…`), or name in the log"),
    OpenApiParameter("action", str, description="A type (`token.issued`), or the noun of several (`token`)"),
    OpenApiParameter("object", str, description="A kind (`token`), or kind and id (`token:…`)"),
    OpenApiParameter("tenant", str, description="Slug or id; `platform`"),
    OpenApiParameter("outcome", str, enum=list(OUTCOMES)),
    OpenApiParameter("request_id", str, description="X-Request-ID of the call"),
    OpenApiParameter("from", str, description="RFC 3339: the first moment"),
    OpenApiParameter("to", str, description="RFC 3339: the moment after the last"),
)


class Filters(Strict):
    """Which events are meant; what is left out does not narrow."""

    actor = serializers.CharField(max_length=200, required=False, allow_blank=True)
    action = serializers.CharField(max_length=63, required=False, allow_blank=True)
    object = serializers.CharField(max_length=300, required=False, allow_blank=True)
    tenant = serializers.CharField(max_length=63, required=False, allow_blank=True)
    outcome = serializers.ChoiceField(OUTCOMES, required=False)
    request_id = serializers.CharField(max_length=64, required=False, allow_blank=True)


class Span(Strict):
    """A time; `from` is a word that Python keeps for itself."""

    def get_fields(self) -> dict[str, Any]:
        """The fields, `from` and `to` among them."""
        moments = {name: serializers.DateTimeField(required=False) for name in ("from", "to")}
        return {**super().get_fields(), **moments}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """`from` is before `to`."""
        if attrs.get("from") and attrs.get("to") and attrs["from"] >= attrs["to"]:
            raise serializers.ValidationError({"from": "Must be before `to`."})
        return attrs


class EventQuery(Span, Filters):
    """The query of GET /audit/events."""


class ExportIn(Span):
    """Body of POST /audit/exports.

    `epoch`: the log, else the present one. `size`: the checkpoint to export under, else the newest of it.
    `personal_data`: disclosed as far as it can be read, to a person with a fresh proof. `proofs` false: only the
    rendering, which proves nothing.
    """

    filters = Filters(required=False)
    format = serializers.ChoiceField(FORMATS, default="jsonl")
    proofs = serializers.BooleanField(default=True)
    personal_data = serializers.BooleanField(default=False)
    size = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    epoch = serializers.IntegerField(min_value=1, max_value=2**31 - 1, required=False)


@extend_schema_field(
    {"oneOf": [{"type": "object", "additionalProperties": True}, {"type": "string"}], "nullable": True}
)
class Personal(serializers.JSONField):
    """Personal data, or the word for why it is not shown."""


@extend_schema_field({"type": "object", "additionalProperties": True, "nullable": True})
class Facts(serializers.JSONField):
    """An object, or null."""


class ActorOut(serializers.Serializer[Any]):
    """Who acted, without a name: `ref` is one of a 90-day period."""

    kind = serializers.CharField(allow_blank=True)
    roles = serializers.ListField(child=serializers.CharField())
    ref = serializers.CharField()


class ObjectOut(serializers.Serializer[Any]):
    """What it was done to."""

    kind = serializers.CharField()
    id = serializers.CharField(allow_blank=True)


class EventOut(serializers.Serializer[Any]):
    """An event. `index` null: not in the log yet. `epoch`: number of the log it is in, of those that went on after each
    other. `data` null: the body was retired. `pii`: shown to auditors."""

    id = serializers.UUIDField()
    index = serializers.IntegerField(allow_null=True)
    epoch = serializers.IntegerField(allow_null=True)
    leaf_hash = serializers.CharField(allow_blank=True)
    time = serializers.DateTimeField()
    action = serializers.CharField()
    type = serializers.IntegerField()
    outcome = serializers.ChoiceField(OUTCOMES)
    tenant_id = serializers.UUIDField()
    tenant_ref = serializers.CharField()
    actor = ActorOut()
    object = ObjectOut()
    request_id = serializers.CharField(allow_blank=True)
    flags = serializers.ListField(child=serializers.CharField())
    producer_id = serializers.IntegerField()
    producer_seq = serializers.CharField()
    data = Facts(allow_null=True)  # type: ignore[assignment]
    body_hash = serializers.CharField()
    pii = Personal(allow_null=True)


class CheckpointOut(serializers.Serializer[Any]):
    """The newest signed checkpoint and the keys to check it with; null where the signer cannot be asked now.

    `epoch`: number of the log. Of one that ended it is the last part that was kept of it.
    """

    epoch = serializers.IntegerField()

    origin = serializers.CharField()
    size = serializers.IntegerField()
    root = serializers.CharField()  # type: ignore[assignment]
    note = serializers.CharField()
    signed_at = serializers.DateTimeField()
    keys = serializers.ListField(child=serializers.CharField(), allow_null=True)


class StateOut(serializers.Serializer[Any]):
    """How the log stands. `doubts`: why its proofs say less than they could. `closed`: what keeps from being done what
    cannot be undone (sequencer, signer, refused or witness); empty: nothing."""

    size = serializers.IntegerField()
    sequenced_at = serializers.DateTimeField(allow_null=True)
    signed_size = serializers.IntegerField()
    signed_at = serializers.DateTimeField(allow_null=True)
    pending = serializers.IntegerField()
    oldest_pending_seconds = serializers.FloatField()
    signer = serializers.CharField()
    signer_why = serializers.CharField(allow_blank=True)
    witness = serializers.CharField()
    witness_why = serializers.CharField(allow_blank=True)
    findings = serializers.IntegerField()
    scrubbed_at = serializers.DateTimeField(allow_null=True)
    scrubbed_size = serializers.IntegerField(allow_null=True)
    doubts = serializers.ListField(child=serializers.CharField())
    closed = serializers.CharField(allow_blank=True)


class ProgressOut(serializers.Serializer[Any]):
    """How far a job is; `percent` null: not known yet."""

    done = serializers.IntegerField()
    total = serializers.IntegerField()
    percent = serializers.FloatField(allow_null=True)


class JobOut(serializers.Serializer[Any]):
    """An export or verification. `waits_for`: the code of what an open one waits for, or why a failed one failed."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField(KINDS)
    state = serializers.ChoiceField(STATES)
    cancelling = serializers.BooleanField()
    params = Facts()
    progress = ProgressOut()
    waits_for = serializers.CharField(allow_blank=True)
    result = Facts(allow_null=True)
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    done_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()


def filter_of(said: dict[str, Any]) -> EventFilter:
    """The filter of validated fields."""
    words = {name: said.get(name) or "" for name in FILTERS}
    return EventFilter(**words, since=said.get("from"), until=said.get("to"))


def said_of(span: dict[str, Any], filters: dict[str, Any]) -> dict[str, Any]:
    """The filter as a job keeps it."""
    found = {name: filters[name] for name in FILTERS if filters.get(name)}
    times = {name: span[name].isoformat() for name in ("from", "to") if span.get(name)}
    return found | times


def event_answer(view: EventView) -> dict[str, Any]:
    """An event, as `EventOut` describes it."""
    return {
        "id": str(view.id),
        "index": view.index,
        "epoch": view.epoch,
        "leaf_hash": view.leaf_hash,
        "time": _rfc3339(view.time),
        "action": view.action,
        "type": view.number,
        "outcome": view.outcome,
        "tenant_id": str(view.tenant_id),
        "tenant_ref": view.tenant_ref,
        "actor": {"kind": view.actor_kind, "roles": view.actor_roles, "ref": view.actor_ref},
        "object": {"kind": view.object_kind, "id": view.object_id},
        "request_id": view.request_id,
        "flags": view.flags,
        "producer_id": view.producer_id,
        "producer_seq": str(view.producer_seq),
        "data": view.data,
        "body_hash": view.body_hash,
        "pii": view.personal,
    }


def job_answer(job: Job) -> dict[str, Any]:
    """A job, as `JobOut` describes it."""
    percent = round(100 * job.done / job.total, 1) if job.total else None
    return dict(
        portable(
            {
                "id": job.id,
                "kind": job.kind,
                "state": job.state,
                "cancelling": job.cancel_asked and job.state in ("queued", "running"),
                "params": job.params,
                "progress": {"done": job.done, "total": job.total, "percent": percent},
                "waits_for": job.problem,
                "result": job.result or None,
                "created_at": job.created_at,
                "started_at": job.started_at,
                "done_at": job.done_at,
                "expires_at": job.expires_at,
            }
        )
    )


def _rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
