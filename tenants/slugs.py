"""Decides which short names tenants can have, and which of them are too much alike."""

import re

from tenants.lookalikes import skeleton

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9]|-(?!-)){0,61}[a-z0-9]|[a-z0-9]")
RULE = "1 to 63 characters of a-z, 0-9 and, inside, single hyphens."


def slug_skeleton(text: str) -> str:
    """What a slug looks like, hyphens at its ends and doubled ones left out; equal ones cannot both exist."""
    return re.sub(r"\.+", ".", skeleton(text)).strip(".")


def is_slug(text: str) -> bool:
    """Whether it is one, as it must be written."""
    return SLUG.fullmatch(text) is not None
