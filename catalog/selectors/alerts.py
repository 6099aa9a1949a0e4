"""What an operator should look at now, and the statement a page begins with; pure functions of the nodes."""

from collections import defaultdict
from datetime import datetime, timedelta

from catalog.selectors.views import Alert, NodeView, Numbers, Params, Sentence

SEVERITY = {"critical": 0, "warning": 1, "info": 2}
REFUSED_FOR = timedelta(hours=1)
"""A refusal is an alert for so long; the node's page shows it for ever."""
FULL_SHARE = 0.995


def alerts_of(nodes: list[NodeView], *, writer_at: datetime | None, now: datetime, away: timedelta) -> list[Alert]:
    """Everything that is wrong, worst first, then by node."""
    found: list[Alert] = []
    if nodes and (writer_at is None or now - writer_at > away):
        age = None if writer_at is None else int((now - writer_at).total_seconds() * 1000)
        found.append(Alert(code="writer-away", severity="critical", since=writer_at, params={"age_ms": age}))
    for node in nodes:
        found += _of_node(node, now)
    return sorted(found, key=lambda a: (SEVERITY[a.severity], a.node or ""))


def _of_node(node: NodeView, now: datetime) -> list[Alert]:
    if node.state == "joining" and not node.last_heard_at:
        return []
    if node.stale:
        code = "node-lost" if node.state == "lost" else "node-silent"
        params: Params = {"age_ms": node.age_ms}
        return [Alert(code=code, severity="critical", since=node.last_heard_at, node=node.name, params=params)]
    found = []
    for source in node.sources:
        if source.state in ("recovering", "degraded", "lost"):
            unlisted = source.state == "degraded" and not source.can_list
            code = "source-unlisted" if unlisted else f"source-{source.state}"
            severity = "critical" if source.state == "lost" else "warning"
            params = {"source": source.name, "dp_rank": source.dp_rank, "reason": source.reason}
            found.append(Alert(code=code, severity=severity, since=source.since, node=node.name, params=params))
        recent = [r for r in source.refusals if now - r.last_at < REFUSED_FOR]
        if recent:
            params = {"count": sum(r.count for r in recent), "codes": [r.code for r in recent], "source": source.name}
            since = max(r.last_at for r in recent)
            severity = "critical" if any(r.code == "misplaced-blocks" for r in recent) else "info"
            found.append(Alert(code="refused", severity=severity, since=since, node=node.name, params=params))
    for tier in node.tiers:
        if (reached := fill_state(tier.peak, tier.high, tier.stale)) in ("high", "full"):
            severity = "warning" if reached == "full" else "info"
            params = {"tier": tier.tier, "share": tier.share, "peak": tier.peak, "high": tier.high}
            found.append(Alert(code=f"tier-{reached}", severity=severity, since=None, node=node.name, params=params))
    return found


def fill_state(share: float | None, high: float | None, stale: bool) -> str:
    """What a fill is called: ok, high, full, or unknown where it is not told or last known."""
    if stale or share is None:
        return "unknown"
    if share >= FULL_SHARE:
        return "full"
    return "high" if high is not None and share > high else "ok"


def answer_of(nodes: list[NodeView], alerts: list[Alert], numbers: Numbers) -> list[Sentence]:
    """The fleet in a few sentences: who reports, who is missing, what is above its marks, what is not exact."""
    joined = [n for n in nodes if n.state != "joining" or n.last_heard_at]
    if not joined:
        return [Sentence(code="no-nodes")]
    said = [
        Sentence(code="nodes-reporting", params={"reporting": sum(not n.stale for n in joined), "nodes": len(joined)})
    ]
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    ages: dict[str, int | None] = {}
    for alert in alerts:
        if alert.code == "writer-away":
            said.insert(0, Sentence(code="writer-away", params=alert.params))
        elif alert.node and alert.code != "refused":
            at = (alert.code, str(alert.params.get("tier", "")))
            if alert.node not in names[at]:
                names[at].append(alert.node)
            if alert.code == "node-silent":
                ages[alert.code] = max(ages.get(alert.code) or 0, alert.params["age_ms"] or 0)
    for (code, tier), of in names.items():
        params: Params = {"nodes": of}
        if tier:
            params["tier"] = tier
        if code in ages:
            params["age_ms"] = ages[code]
        said.append(Sentence(code=code, params=params))
    if numbers.requests_per_s == 0:
        said.append(Sentence(code="no-traffic"))
    return said
