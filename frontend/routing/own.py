"""Decides what of the own fleet stands in the fields of calculators, and where it comes from.

A curve or an edge counts as measured only where its worker has samples of it; a model's bytes are calculated from its
config. Nothing of the fleet is told to a tenant's own people: they have their models, and examples. Called by
`economics`.
"""

from collections.abc import Sequence
from datetime import datetime
from statistics import median

from catalog.selectors import fleet_view, node_names
from catalog.selectors.loads import Reported, worker_loads
from frontend.routing.amounts import Known, written
from kvconsole.infra.access import Principal
from tenants import reading
from tenants.reading import ModelView

MOST_MODELS = 50
US_PER_MS, NS_PER_MS = 1e3, 1e6
BYTES_PER_MS_OF_GB_S = 1e6


def models() -> list[ModelView]:
    """The models that the caller may see, by name."""
    return reading.models(limit=MOST_MODELS)


def chosen(found: Sequence[ModelView], name: str) -> ModelView | None:
    """The model of this name, else the first; None where none is registered."""
    return next((m for m in found if m.name == name), found[0] if found else None)


def known(now: datetime, wanted: str, found: Sequence[ModelView], principal: Principal | None) -> dict[str, Known]:
    """Field → what stands in it of the own fleet."""
    out: dict[str, Known] = {}
    if model := chosen(found, wanted):
        out["token_bytes"] = Known(str(model.bytes_per_token), "calculated", model.name)
        out["block_tokens"] = Known(str(model.block_tokens), "declared", model.name)
    if principal is None or principal.tenant_id is not None:
        return out
    names = {pk: name for name, pk in node_names().items()}
    reported = worker_loads()
    out |= _curve(reported, names) | _edge(reported)
    ratio = fleet_view(now=now).numbers.hit_ratio
    if ratio is not None:
        out["hit_rate"] = Known(written(round(100 * ratio, 4)), "measured", "")
    return out


def _curve(reported: Sequence[Reported], names: dict[str, str]) -> dict[str, Known]:
    """The prefill curve with the most samples behind it; a declared one where none was measured."""
    curves = [(one.load.curve, names.get(str(one.node), "")) for one in reported if one.load.curve]
    if not curves:
        return {}
    (_base, linear, square, samples), node = max(curves, key=lambda pair: (pair[0][3], pair[1]))
    origin = "measured" if samples else "declared"
    slope, bend = written(linear * US_PER_MS), written(square * NS_PER_MS)
    return {
        "linear_us": Known(slope, origin, node),
        "square_ns": Known(bend, origin, node),
        "surge_linear_us": Known(slope, origin, node),
        "surge_square_ns": Known(bend, origin, node),
    }


def _edge(reported: Sequence[Reported]) -> dict[str, Known]:
    """The middle one of all measured edges."""
    edges = [fit for one in reported for fit in one.load.edges.values() if fit[2]]
    if not edges:
        return {}
    rate, latency = median(fit[0] for fit in edges), median(fit[1] for fit in edges)
    return {
        "bandwidth": Known(written(rate / BYTES_PER_MS_OF_GB_S), "measured", ""),
        "latency_ms": Known(written(latency), "measured", ""),
    }
