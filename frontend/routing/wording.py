"""Decides the words of terms, gates, policies, answers and amounts on the pages of routing, in the active language."""

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from frontend.wording import Text, Tone

TERMS: dict[str, Text] = {
    "router": pgettext_lazy("term", "router"),
    "queue_p": pgettext_lazy("term", "queue, prefill"),
    "cache_load": pgettext_lazy("term", "cache load"),
    "prefill": pgettext_lazy("term", "prefill of the rest"),
    "transfer": pgettext_lazy("term", "transfer"),
    "queue_d": pgettext_lazy("term", "queue, decode"),
    "first_decode": pgettext_lazy("term", "first decode"),
}
"""In the order in which they happen; their sum is the time to first token."""
GATES: dict[str, Text] = {
    "rights": pgettext_lazy("gate", "rights"),
    "residency": pgettext_lazy("gate", "residency"),
    "class": pgettext_lazy("gate", "data class"),
    "generation": pgettext_lazy("gate", "generation"),
    "fence": pgettext_lazy("gate", "fence"),
    "health": pgettext_lazy("gate", "health"),
    "quota": pgettext_lazy("gate", "quota"),
    "watermark": pgettext_lazy("gate", "watermark"),
    "unknown-candidate": pgettext_lazy("gate", "not known here"),
    "role": pgettext_lazy("gate", "only decodes"),
    "no-decode": pgettext_lazy("gate", "nobody left to decode"),
}
"""In the order in which they are asked. The first that fails is named."""
POLICIES: dict[str, Text] = {
    "predicted": pgettext_lazy("policy", "predicted time"),
    "linear": pgettext_lazy("policy", "linear cost"),
    "tree_p2c": pgettext_lazy("policy", "prefix tree, two choices"),
    "tier_weighted": pgettext_lazy("policy", "weighted tiers"),
    "least_loaded": pgettext_lazy("policy", "least loaded"),
    "round_robin": pgettext_lazy("policy", "in turn"),
    "random": pgettext_lazy("policy", "at random"),
}
SOURCES: dict[str, Text] = {
    "local": pgettext_lazy("range", "held there"),
    "remote": pgettext_lazy("range", "fetched"),
    "compute": pgettext_lazy("range", "computed"),
}
ORIGINS: dict[str, Text] = {
    "measured": pgettext_lazy("origin", "measured"),
    "declared": pgettext_lazy("origin", "declared"),
    "calculated": pgettext_lazy("origin", "calculated"),
    "unknown": pgettext_lazy("origin", "unknown"),
}
REPLAY: dict[str, Tone] = {
    "same": Tone("ok", "ok", pgettext_lazy("replay", "same answer")),
    "differs": Tone("danger", "danger", pgettext_lazy("replay", "another answer")),
    "not-recorded": Tone("unknown", "unknown", pgettext_lazy("replay", "inputs were not recorded")),
}
PANELS: dict[str, tuple[Text, Text]] = {
    "size": (_("Size of the cache"), _("bytes that keys and values take")),
    "crossover": (_("Fetch or compute"), _("from how many tokens a link beats the prefill")),
    "break_even": (_("Break-even"), _("how often, and how soon, something must be used again")),
    "surge": (_("Surge when hits are lost"), _("how much more there is to compute")),
    "shed": (_("Load to turn away"), _("what no longer fits while the surge lasts")),
    "links": (_("Link budget"), _("links that the sessions need")),
}
QUANTITIES: dict[str, tuple[Text, Text]] = {
    "layers": (_("Layers"), ""),
    "kv_heads": (_("Heads with keys and values"), _("a layer")),
    "head_dim": (_("Numbers a head"), ""),
    "value_bytes": (_("Bytes a number"), _("2 for bf16, 1 for fp8, 0.5 for fp4")),
    "context_tokens": (_("Length of a context"), ""),
    "block_tokens": (_("Length of a block"), ""),
    "sessions": (_("Sessions"), _("at the same time")),
    "linear_us": (_("Prefill, a token"), _("the part that grows with the length")),
    "square_ns": (_("Prefill, a token squared"), _("the part that grows with its square")),
    "token_bytes": (_("Bytes a token"), _("of keys and values")),
    "bandwidth": (_("Bandwidth of the link"), ""),
    "latency_ms": (_("Latency of the link"), _("before the first byte")),
    "fetch_tokens": (_("Length of the prefix"), ""),
    "object_bytes": (_("Size of the object"), _("bytes with their unit: 25 GB, 20 GiB")),
    "price_gb_month": (_("Price of keeping"), _("of the tier where it lies")),
    "life_s": (_("Time it is kept"), ""),
    "prefill_s": (_("Prefill without it"), ""),
    "gpu_hour": (_("Price of a GPU"), ""),
    "gpus": (_("GPUs of an instance"), _("that prefill together")),
    "transfer_cost": (_("Price of one transfer"), ""),
    "hit_rate": (_("Hit rate before"), _("share of the tokens")),
    "lost_share": (_("Lost of it"), _("100 for a pool that is gone")),
    "surge_tokens": (_("Length of a prompt"), ""),
    "surge_linear_us": (_("Prefill, a token"), ""),
    "surge_square_ns": (_("Prefill, a token squared"), ""),
    "load": (_("Load before"), _("of what can be computed")),
    "load_surge": (_("Surge"), _("from the panel before, or another")),
    "session_bytes": (_("Bytes a request moves"), ""),
    "request_rate": (_("Requests"), ""),
    "link_bandwidth": (_("Bandwidth of one link"), ""),
}
RESULTS: dict[str, Text] = {
    "layer_token": _("a token in one layer"),
    "token": _("a token"),
    "block": _("a block"),
    "context": _("a context"),
    "all_sessions": _("all sessions"),
    "crossover_tokens": _("fetching is faster above"),
    "fetch_ms": _("fetching this prefix"),
    "compute_ms": _("computing this prefix"),
    "even_bandwidth": _("both are equal at"),
    "recompute": _("computing it once"),
    "storage": _("keeping it that long"),
    "transfer": _("moving it once"),
    "hit_share": _("break-even hit rate"),
    "interval": _("break-even interval of use"),
    "surge_linear": _("at most, if prefill grows with the length"),
    "surge_square": _("at least, if it grows with the square"),
    "surge_model": _("of this model at this length"),
    "load_after": _("load afterwards"),
    "shed_share": _("to turn away"),
    "demand": _("bytes to move"),
    "link_count": _("links, all full"),
}
UNITS: dict[str, Text] = {
    "tokens": pgettext_lazy("unit", "tokens"),
    "µs/token": pgettext_lazy("unit", "µs a token"),
    "ns/token²": pgettext_lazy("unit", "ns a token²"),
    "$/GB·month": pgettext_lazy("unit", "$ a GB and month"),
    "links": pgettext_lazy("unit", "links"),
}
"""What is not here is the same in every language."""
ANSWERS: dict[str, Tone] = {
    "hit": Tone("ok", "ok", pgettext_lazy("answer", "where it lies")),
    "fetch": Tone("info", "flow", pgettext_lazy("answer", "fetched from elsewhere")),
    "compute": Tone("info", "work", pgettext_lazy("answer", "computed, nothing lies anywhere")),
    "recompute": Tone("warn", "warn", pgettext_lazy("answer", "computed, the index might not be used")),
    "refused": Tone("danger", "danger", pgettext_lazy("answer", "refused")),
}
ORDER = tuple(ANSWERS)
KEPT: dict[str, Text] = {
    "all": pgettext_lazy("kept", "each one"),
    "sample": pgettext_lazy("kept", "one of many"),
    "refusal": pgettext_lazy("kept", "as a refusal"),
    "fallback": pgettext_lazy("kept", "as made without the index"),
    "outlier": pgettext_lazy("kept", "as far from what was expected"),
    "foreign": pgettext_lazy("kept", "as another router's"),
}
MODES: dict[str, Tone] = {
    "live": Tone("ok", "ok", pgettext_lazy("index", "live")),
    "partial": Tone("warn", "warn", pgettext_lazy("index", "in part")),
    "rebuilding": Tone("warn", "work", pgettext_lazy("index", "being rebuilt, the old one served")),
    "loading": Tone("warn", "work", pgettext_lazy("index", "being loaded")),
    "recompute": Tone("warn", "clock", pgettext_lazy("index", "lease over")),
}
FILTERS: dict[str, Text] = {
    "tenant": pgettext_lazy("filter", "Tenant"),
    "model": pgettext_lazy("filter", "Model"),
    "node": pgettext_lazy("filter", "Node"),
    "policy": pgettext_lazy("filter", "Policy"),
    "answer": pgettext_lazy("filter", "Answer"),
    "kept": pgettext_lazy("filter", "Kept"),
}
BARS: dict[str, Text] = {
    "expected": pgettext_lazy("time", "expected"),
    "measured": pgettext_lazy("time", "measured"),
    "ghost": _("without cache, simulated"),
}
"""Of the waterfall."""
LEVELS: dict[str, Text] = {
    "node": pgettext_lazy("level", "the same node"),
    "leaf": pgettext_lazy("level", "a rack"),
    "row": pgettext_lazy("level", "a row"),
    "dc": pgettext_lazy("level", "a zone"),
    "region": pgettext_lazy("level", "a region"),
}
"""What two nodes share."""
POLICY_FIELDS: dict[str, tuple[Text, Text]] = {
    "kind": (_("Kind"), _("another kind begins with its own parameters")),
    "model": (_("Model"), _("empty: of all models that have no policy of their own")),
}
