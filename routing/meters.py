"""The figures of a process `router` for Prometheus. No label names a tenant, a node or a source."""

from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

if TYPE_CHECKING:
    from routing.deciding import Router

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
REFUSED = Counter("kvc_router_refused", "Refusals by code", ["code"], registry=REGISTRY)
SECONDS = Histogram(
    "kvc_router_seconds", "Request read to answer made, by call", ["call"], registry=REGISTRY,
    buckets=(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0),
)  # fmt: skip
DECISIONS = Gauge("kvc_router_decisions", "Decisions since the process began, by what became of them", ["what"],
                  registry=REGISTRY)  # fmt: skip
CANDIDATES = Gauge("kvc_router_candidates", "Workers that are known", registry=REGISTRY)
LEASED = Gauge("kvc_router_leased", "1 while the index may be used", registry=REGISTRY)


def text(router: "Router") -> bytes:
    """All figures in Prometheus' text format."""
    for name, value in msgspec.structs.asdict(router.recorder.tallies).items():
        DECISIONS.labels(name).set(value)
    CANDIDATES.set(len(router.standing.fleet.candidates))
    LEASED.set(router.replica.mode not in ("recompute", "loading"))
    return bytes(generate_latest(REGISTRY))
