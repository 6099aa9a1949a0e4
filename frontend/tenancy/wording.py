"""Decides the words of tenants, epochs, people, tokens and share groups, in the active language.

As `frontend.wording`: services and selectors speak in codes, and a code that is not listed shows itself.
"""

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from frontend.wording import Text, Tone

TENANT_STATES: dict[str, Tone] = {
    "active": Tone("ok", "ok", pgettext_lazy("tenant state", "active")),
    "closing": Tone("warn", "work", pgettext_lazy("tenant state", "closing")),
    "closed": Tone("unknown", "lock", pgettext_lazy("tenant state", "closed")),
}
SPACE_ACTS: dict[str, Text] = {
    "page-pins": pgettext_lazy("namespace act", "Pin…"),
    "page-prefetch-new": pgettext_lazy("namespace act", "Prefetch…"),
    "page-deletion-new": pgettext_lazy("namespace act", "Plan its deletion…"),
}
"""Page whose form begins with a namespace → what the link to it says."""
NAMESPACE_STATES: dict[str, Tone] = {
    "active": Tone("ok", "ok", pgettext_lazy("namespace state", "active")),
    "closed": Tone("unknown", "fence", pgettext_lazy("namespace state", "closed")),
}
EPOCH_STATES: dict[str, Tone] = {
    "open": Tone("ok", "ok", pgettext_lazy("epoch state", "open")),
    "retiring": Tone("warn", "work", pgettext_lazy("epoch state", "retiring")),
    "retired": Tone("unknown", "fence", pgettext_lazy("epoch state", "retired")),
}
PERSON_STATES: dict[str, Tone] = {
    "active": Tone("ok", "ok", pgettext_lazy("person state", "active")),
    "invited": Tone("info", "work", pgettext_lazy("person state", "invited")),
    "suspended": Tone("warn", "lock", pgettext_lazy("person state", "suspended")),
    "removed": Tone("unknown", "x", pgettext_lazy("person state", "removed")),
}
TOKEN_STATES: dict[str, Tone] = {
    "active": Tone("ok", "ok", pgettext_lazy("token state", "active")),
    "unused": Tone("warn", "clock", pgettext_lazy("token state", "unused for long")),
    "expired": Tone("unknown", "lock", pgettext_lazy("token state", "expired")),
    "revoked": Tone("unknown", "x", pgettext_lazy("token state", "revoked")),
    "owner-suspended": Tone("warn", "lock", pgettext_lazy("token state", "its owner is suspended")),
}
QUOTA_STATES: dict[str, Tone] = {
    "ok": Tone("ok", "check", pgettext_lazy("quota state", "within the quota")),
    "high": Tone("warn", "warn", pgettext_lazy("quota state", "nearly full")),
    "full": Tone("danger", "danger", pgettext_lazy("quota state", "full")),
    "free": Tone("unknown", "info", pgettext_lazy("quota state", "no limit")),
    "unknown": Tone("unknown", "unknown", pgettext_lazy("quota state", "unknown")),
}
GROUP_STATES: dict[str, Tone] = {
    "awaiting_approval": Tone("info", "work", pgettext_lazy("group state", "waits for approval")),
    "approved": Tone("ok", "ok", pgettext_lazy("group state", "approved")),
    "denied": Tone("unknown", "x", pgettext_lazy("group state", "denied")),
    "expired": Tone("unknown", "clock", pgettext_lazy("group state", "expired")),
    "revoked": Tone("unknown", "fence", pgettext_lazy("group state", "revoked")),
}
ISOLATIONS: dict[str, Text] = {
    "shared": pgettext_lazy("isolation", "shared"),
    "arena": pgettext_lazy("isolation", "arena"),
    "node": pgettext_lazy("isolation", "node"),
}
ISOLATION_MEANS: dict[str, Text] = {
    "shared": _("memory regions are shared with other tenants; keys and salts never are"),
    "arena": _("own memory regions on shared nodes, own keys and salts"),
    "node": _("own nodes: no other tenant's blocks are on them"),
}
ERASURE_SCOPES: dict[str, Text] = {
    "tenant": pgettext_lazy("erasure scope", "tenant"),
    "class": pgettext_lazy("erasure scope", "data class"),
    "label": pgettext_lazy("erasure scope", "label"),
    "subject": pgettext_lazy("erasure scope", "subject"),
    "session": pgettext_lazy("erasure scope", "session"),
}
ERASURE_MEANS: dict[str, Text] = {
    "tenant": _("only everything of the tenant can be deleted together"),
    "class": _("each data class can be deleted by itself"),
    "label": _("each label can be deleted by itself"),
    "subject": _("each person the data is about can be deleted by themselves"),
    "session": _("each session can be deleted by itself; least reuse"),
}
PROTECTIONS: dict[str, Text] = {
    "plain": pgettext_lazy("protection", "none"),
    "encrypted": pgettext_lazy("protection", "encrypted"),
    "tee": pgettext_lazy("protection", "trusted hardware"),
}
RULE_KINDS: dict[str, Text] = {
    "built-in": pgettext_lazy("rule", "built in"),
    "own": pgettext_lazy("rule", "its own, as chosen here"),
}
TOKEN_KINDS: dict[str, Text] = {
    "user": pgettext_lazy("token kind", "person"),
    "service": pgettext_lazy("token kind", "service"),
    "gateway": pgettext_lazy("token kind", "gateway"),
}
INCOMPLETE: dict[str, Text] = {
    "never-counted": _("nothing was ever counted"),
    "before-counting": _("counting began later than this time"),
    "writer-away": _("the writer was away for a part of this time"),
    "unmeasured": _("some requests did not measure what they saved"),
    "block-size-unknown": _("the bytes of some hits are not known"),
    "shared-namespaces": _("hits in shared namespaces are not counted for any tenant"),
    "gap": _("events of a source were lost"),
    "engine-events-lost": _("events of an engine were lost"),
    "frames-missing": _("frames of a node were lost"),
    "node-silent": _("a node was silent for a part of this time"),
    "node-restarted": _("a node began anew, and what it had not told was lost"),
}
"""Other reasons are those of sources (`frontend.wording.SOURCE_REASONS`)."""

REUSE_FIELDS: dict[str, Text] = {
    "model": pgettext_lazy("reuse", "model"),
    "weights-epoch": pgettext_lazy("reuse", "epoch of the weights"),
    "adapter": pgettext_lazy("reuse", "adapter"),
    "position": pgettext_lazy("reuse", "position encoding"),
    "modality": pgettext_lazy("reuse", "encoder of pictures and sound"),
    "kv-dtype": pgettext_lazy("reuse", "number format of the cache"),
    "kv-scales": pgettext_lazy("reuse", "scales of the cache"),
    "tokenizer": pgettext_lazy("reuse", "tokenizer"),
    "block-size": pgettext_lazy("reuse", "tokens in a block"),
    "key-scheme": pgettext_lazy("reuse", "how blocks are keyed"),
    "scope": pgettext_lazy("reuse", "tenant or share group"),
    "data-class": pgettext_lazy("reuse", "data class"),
    "label": pgettext_lazy("reuse", "label"),
    "subject": pgettext_lazy("reuse", "subject"),
    "session": pgettext_lazy("reuse", "session"),
    "erasure-scope": pgettext_lazy("reuse", "erasure scope"),
}
SPANS: dict[str, tuple[int, Text]] = {
    "7d": (7, _("7 days")),
    "30d": (30, _("30 days")),
    "90d": (90, _("90 days")),
}
USAGE_UNITS: dict[str, Text] = {
    "tokens": pgettext_lazy("usage", "Tokens"),
    "bytes": pgettext_lazy("usage", "Bytes"),
    "saved": pgettext_lazy("usage", "Prefill saved"),
}
KPIS: dict[str, tuple[Text, Text]] = {
    "ratio": (_("Hit rate, by tokens"), _("of prompt tokens in this time")),
    "tokens": (_("Hit tokens"), _("read from the cache instead of computed")),
    "bytes": (_("Hit bytes"), _("of blocks that were read")),
    "saved": (_("Prefill saved"), _("as nodes measured it")),
    "held": (_("Held now"), _("in all tiers")),
}
FIELDS: dict[str, tuple[Text, Text]] = {
    "slug": (_("Short name"), _("1 to 63 of a-z, 0-9 and hyphens inside. It stays for good.")),
    "name": (_("Name"), ""),
    "residency": (_("Residency"), _("The region that its blocks never leave; empty is any.")),
    "isolation": (_("Isolation"), ""),
    "classes": (_("Data classes"), _("Names with commas between them.")),
    "erasure_scope": (_("Erasure"), _("Finer means less reuse.")),
    "retention": (_("Retention"), _("A line for each class: its name, a colon, seconds.")),
    "requests_per_second": (_("Requests a second"), _("Empty is no limit, 0 is none at all.")),
    "deletions_per_hour": (_("Deletions an hour"), _("Empty is no limit, 0 is none at all.")),
    "limit": (_("Limit"), ""),
    "guarantee": (_("Guarantee"), ""),
    "rule_kind": (_("Rule"), ""),
    "rule_regions": (_("Regions"), _("Names with commas between them; empty is any, – is none.")),
    "rule_protection": (_("Least protection"), ""),
    "weights_digest": (
        _("Digest of the weights"),
        _("Of the files, sha256:… for example. Old weights get a new epoch."),
    ),
    "note": (_("Note"), ""),
    "adapter_model": (_("Model"), _("What it adapts.")),
    "adapter_name": (_("Name"), _("For people; what counts is the content.")),
    "digest": (_("Digest of its bytes"), _("This is what it is: other bytes are another adapter.")),
    "model_name": (_("Name"), _("As requests name it; it stays for good.")),
    "config": ("config.json", _("Of the model on Hugging Face: layers, heads, positions.")),
    "kv_dtype": (_("Number format of the cache"), _("auto is that of the model; fp8 for example.")),
    "block_tokens": (_("Tokens in a block"), _("1 to 1,024.")),
    "tensor_parallel": (_("Ranks that share the heads"), ""),
    "base": (_("Variant of"), _("A registered model with the same weights in another layout; empty is none.")),
    "kv_scales": (_("Digest of the scales"), _("Where the cache is quantised with scales of its own.")),
    "tokenizer_digest": (_("Digest of the tokenizer"), _("Where it is not that of the base.")),
    "modality_digest": (_("Digest of encoders"), _("Of pictures and sound.")),
    "username": (_("Log-in name"), ""),
    "email": (_("E-mail"), _("Only so that others know who it is; nothing is sent.")),
    "roles": (_("Roles"), ""),
    "owner": (_("Owner"), _("The token can never do what its owner may not.")),
    "token_name": (_("Name"), _("What it is for.")),
    "token_kind": (_("Kind"), ""),
    "cidr": (_("Network"), _("It works only from there, 10.0.0.0/8 for example; empty is anywhere.")),
    "days": (_("Days"), _("After so many days it is over; at most 365.")),
    "scopes": (_("Scopes"), _("None chosen: all that the roles allow, but for what cannot be taken back.")),
    "share_owner": (_("Owner"), _("The tenant whose matter it is.")),
    "share_name": (_("Name"), _("Requests declare it.")),
    "audience": (_("Shared with"), _("Short names of tenants, with commas between them.")),
    "share_days": (_("Days"), _("After so many days it ends by itself; at most 180.")),
    "reason": (_("Reason"), _("For the person who decides, and for the trail.")),
    "horizon": (_("Seconds until old blocks are gone"), _("For the forecast only; nothing is flushed.")),
}
"""Field → (label, hint)."""
