"""Decides what the page of policies compared shows: each kind and each policy in force over the same recorded requests.

Nothing is measured here: every figure is what the terms said when the request came, so a policy that picks by other
than time is shown with the time that its picks were expected to take. Called by `views` and by the dry run of a policy.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.http import QueryDict

from frontend.routing import sentences
from kvcore.policies import KINDS, Policy, built_in, policy_of
from routing import selectors
from routing.selectors import Compared, PolicyView

SIZES = (50, 200, 1000)


def page(now: datetime, data: QueryDict) -> dict[str, Any]:
    """The page."""
    size = int(data.get("n", "")) if data.get("n", "") in map(str, SIZES) else SIZES[0]
    model = data.get("model", "").strip()[:200].replace("\0", "")
    inputs = selectors.recorded(limit=size, model=model)
    found = selectors.policies_compared(rules(selectors.policies()), inputs) if inputs else []
    return {
        "rows": ranked(found),
        "requests": len(inputs),
        "size": size,
        "sizes": SIZES,
        "model": model,
        "answer": sentences.compared(ranked(found), len(inputs)),
        "as_of": now,
    }


def rules(known: Sequence[PolicyView]) -> list[Policy]:
    """The policies in force, and each kind with its defaults."""
    told = [
        policy_of({**one.document, "name": one.name, "version": one.version, "model": one.model or None})
        for one in known
    ]
    return [*(rule for rule in told if isinstance(rule, Policy)), *(built_in(kind) for kind in KINDS)]


def ranked(found: Sequence[Compared]) -> list[Compared]:
    """By expected time, the shortest first; who answered nothing comes last."""
    return sorted(found, key=lambda one: (one.predicted_ms is None, one.predicted_ms or 0.0, one.policy))
