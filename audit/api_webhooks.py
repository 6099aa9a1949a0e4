"""REST of webhooks."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.urls import URLPattern
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit import selectors
from audit.models import Delivery, Webhook
from audit.services import portable
from audit.webhooks import services
from audit.webhooks.kinds import KINDS, TEST
from audit.webhooks.signature import secret_text
from kvconsole.infra.access import audited, counted, route
from kvconsole.infra.calls import call, caller, page_of
from kvconsole.infra.rest import Problem, Strict, etag, require_match
from kvconsole.infra.statements import Rows

READERS = ("operator", "auditor", "tenant-admin")
MAKERS = ("operator", "tenant-admin")
NO_STORE = {"Cache-Control": "no-store"}
FIELDS = ("id", "url", "name", "events", "state", "reason", "created_at", "failing_since")
SENT = ("id", "kind", "state", "attempts", "status", "problem", "created_at", "last_at", "next_at")
WEBHOOKS = Rows(selectors.webhooks, columns=(*FIELDS, "old_key_until"), key=("id",))
DELIVERIES = Rows(selectors.deliveries, columns=SENT, key=("created_at", "id"), newest=True)
DELIVERY_STATES = ("pending", "delivered", "failed", "dropped")


def _kinds(**options: Any) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.ChoiceField(list(KINDS)), min_length=1, max_length=len(KINDS), **options
    )


class WebhookIn(Strict):
    """Body of POST /webhooks."""

    url = serializers.CharField(max_length=500)
    name = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")
    events = _kinds()


class WebhookPatch(Strict):
    """Body of PATCH /webhooks/{id}; what is left out stays. A disabled one is made active again so."""

    url = serializers.CharField(max_length=500, required=False)
    name = serializers.CharField(max_length=100, required=False, allow_blank=True)
    events = _kinds(required=False)
    state = serializers.ChoiceField(["active", "paused"], required=False)


class WebhookOut(serializers.Serializer[Any]):
    """A webhook without its secret. `reason`: why it was disabled."""

    id = serializers.UUIDField()
    url = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    events = serializers.ListField(child=serializers.CharField())
    state = serializers.ChoiceField(services.STATES)
    reason = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    failing_since = serializers.DateTimeField(allow_null=True)
    old_secret_until = serializers.DateTimeField(allow_null=True)


class WebhookMade(WebhookOut):
    """A webhook with its secret, which is shown once."""

    secret = serializers.CharField()


class DeliveryOut(serializers.Serializer[Any]):
    """One message: its `id` is the `webhook-id` of every attempt. `status` null: there was no answer."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField([*KINDS, TEST])
    state = serializers.ChoiceField(DELIVERY_STATES)
    attempts = serializers.IntegerField()
    status = serializers.IntegerField(allow_null=True)
    problem = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()
    last_at = serializers.DateTimeField(allow_null=True)
    next_at = serializers.DateTimeField(allow_null=True)


class Webhooks(APIView):
    """Webhooks."""

    @call("webhooks_list", answer=WebhookOut, page=True)
    def get(self, request: Request) -> Response:
        """A page of them, oldest first: of a tenant's people the tenant's own, else the fleet's."""
        return page_of(WEBHOOKS, request, name="webhooks", item=_answer)

    @call(
        "webhooks_create", body=WebhookIn, answer=WebhookMade, status=201,
        refusals=("webhook-url-refused", "too-many-webhooks"),
    )  # fmt: skip
    def post(self, request: Request, fields: dict[str, Any]) -> Response:
        """A new webhook; its secret is in this answer and nowhere else."""
        hook, secret = services.webhook_create(**fields, actor=caller(), now=datetime.now(UTC))
        headers = {**NO_STORE, "Location": f"/api/v1/webhooks/{hook.id}"}
        return Response(_answer(hook) | {"secret": secret_text(secret)}, status=201, headers=headers)


class WebhookDetail(APIView):
    """One webhook."""

    @call("webhooks_get", answer=WebhookOut)
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """The webhook, with the ETag of what can be changed."""
        hook = _hook(webhook_id)
        return Response(_answer(hook), headers={"ETag": _tag(hook)})

    @call("webhooks_change", body=WebhookPatch, answer=WebhookOut, refusals=("webhook-url-refused",))
    def patch(self, request: Request, fields: dict[str, Any], webhook_id: UUID) -> Response:
        """Address, name, kinds of events or state changed; what waits goes to the new address."""
        require_match(request, _tag(_hook(webhook_id)))
        hook = services.webhook_change(webhook_id=webhook_id, actor=caller(), **fields)
        return Response(_answer(hook), headers={"ETag": _tag(hook)})

    @call("webhooks_remove", status=204)
    def delete(self, request: Request, webhook_id: UUID) -> Response:
        """It is gone, with its secret and what was on its way."""
        services.webhook_remove(webhook_id=webhook_id, actor=caller())
        return Response(status=204)


class WebhookRotate(APIView):
    """Another secret."""

    @call("webhooks_rotate", answer=WebhookMade)
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """A new secret, in this answer and nowhere else; for 24 hours messages are signed with the old one too."""
        hook, secret = services.webhook_rotate(webhook_id=webhook_id, actor=caller(), now=datetime.now(UTC))
        return Response(_answer(hook) | {"secret": secret_text(secret)}, headers=NO_STORE)


class WebhookTest(APIView):
    """A try."""

    @call("webhooks_test", answer=DeliveryOut, status=202, refusals=("conflict",))
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """A message that says nothing is on its way; what came of it is among the deliveries."""
        return Response(_delivery(services.webhook_test(webhook_id=webhook_id, now=datetime.now(UTC))), status=202)


class Deliveries(APIView):
    """What was sent."""

    @call("webhooks_deliveries_list", answer=DeliveryOut, page=True)
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """A page of messages, newest first, for 30 days."""
        hook = _hook(webhook_id)
        name = f"webhooks.{hook.id}"
        return page_of(DELIVERIES, request, name=name, item=_delivery, filters={"webhook": hook.id})


def _answer(hook: Webhook) -> dict[str, Any]:
    found = {name: getattr(hook, name) for name in FIELDS} | {"old_secret_until": hook.old_key_until}
    return dict(portable(found))


def _tag(hook: Webhook) -> str:
    return etag([str(hook.id), hook.url, hook.name, hook.events, hook.state])


def _delivery(one: Delivery) -> dict[str, Any]:
    return dict(portable({name: getattr(one, name) for name in SENT}))


def _hook(webhook_id: UUID) -> Webhook:
    found = selectors.webhooks().filter(id=webhook_id).first()
    if found is None:
        raise Problem("not-found")
    return found


ONE = "webhooks/<uuid:webhook_id>"
urlpatterns: list[URLPattern] = [
    route("webhooks", Webhooks.as_view(), "webhooks", GET=counted(*READERS), POST=audited(*MAKERS)),
    route(
        ONE, WebhookDetail.as_view(), "webhook", GET=counted(*READERS), PATCH=audited(*MAKERS), DELETE=audited(*MAKERS)
    ),
    route(f"{ONE}:rotate", WebhookRotate.as_view(), "webhook-rotate", POST=audited(*MAKERS)),
    route(f"{ONE}:test", WebhookTest.as_view(), "webhook-test", POST=counted(*MAKERS)),
    route(f"{ONE}/deliveries", Deliveries.as_view(), "webhook-deliveries", GET=counted(*READERS)),
]
