"""The live topic `decisions`: the newest ones as they are recorded, and exactly how many were not.

`decisions` = the newest `SHOWN`; `numbers/all` counts since each router began: made, recorded, sampled_out (left out on
purpose), dropped (lost because a queue was full). Registered where it is imported.
"""

from datetime import datetime
from typing import Any

from kvconsole.infra.live import TopicKind, View, register
from routing.selectors import decisions_newest, tallies
from tenants.selectors import tenant_slugs

SHOWN = 200
"""Two hundred decisions a second, twice a second, is a hundred new ones a frame."""
ROLES = frozenset({"viewer", "operator", "destructive-operator", "approver", "auditor"})
FIELDS = ("origin", "model", "answer", "code", "kept", "stands_for", "node", "decode_node", "policy", "prompt_tokens",
          "overlap_tokens", "predicted_ms", "measured_ms", "regret_ms")  # fmt: skip


def _entity(row: dict[str, Any], slugs: dict[Any, str]) -> dict[str, Any]:
    return {"at": row["at"].isoformat().replace("+00:00", "Z"), "tenant": slugs.get(row["tenant_id"], ""),
            **{name: row[name] for name in FIELDS}}  # fmt: skip


def decisions_view(_: str, now: datetime) -> View:
    """The newest decisions by id, and the counters."""
    rows = decisions_newest(limit=SHOWN)
    slugs = tenant_slugs({row["tenant_id"] for row in rows})
    return {
        "decisions": {str(row["id"]): _entity(row, slugs) for row in rows},
        "numbers": {"all": tallies(now=now)},
    }


register(TopicKind("decisions", decisions_view, frozenset({"decisions"}), ROLES))
