"""Announcements as rows, where how they come about is not what is tested."""

import hashlib
from datetime import UTC, datetime, timedelta

from kvconsole.infra.sql import uuid7
from routing.models import Announcement
from tests.tenants.making import some


def an_announced_session(tenant):
    """A session of the tenant that somebody announced; its name."""
    name, now = some("s"), datetime.now(UTC)
    Announcement.objects.create(
        id=uuid7(), tenant_id=tenant.id, kind="tool", about=hashlib.sha256(name.encode()).digest(), blocks=1,
        said_at=now, until=now + timedelta(minutes=1), believed=1.0, effect="nothing", reason="not-separable", bytes=0,
        pins=[], state="open",
    )  # fmt: skip
    return name
