"""Makes the demonstration's tenants, models, namespaces, people and, where asked, nodes. Twice is once."""

import json
import os
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from catalog.quotas import quota_set, quota_view
from catalog.restoring import fences_compare
from catalog.services import node_ensure
from kvconsole.infra import arguments
from kvconsole.infra.access import system, tenant_context
from kvconsole.management.commands.node_create import ensure_command_key, is_demonstration
from tenants import reading, selectors, services

ACTOR = system("seed_demo")
TENANTS: tuple[dict[str, Any], ...] = (
    {"slug": "acme-code", "name": "Acme Code", "classes": ["internal", "source"], "retention": {"source": 7 * 86_400}},
    {"slug": "borealis-bank", "name": "Borealis Bank", "classes": ["internal", "restricted"], "isolation": "arena",
     "erasure_scope": "subject", "retention": {"restricted": 3_600}},
    {"slug": "cobalt-support", "name": "Cobalt Support", "classes": ["public", "internal"],
     "retention": {"internal": 86_400}},
    {"slug": "delta-clinic", "name": "Delta Clinic", "classes": ["restricted"], "residency": "eu-fra",
     "erasure_scope": "subject", "retention": {"restricted": 1_800}},
)  # fmt: skip
LABELS = {
    "acme-code": ("default", "repo-monolith", "repo-payments"),
    "borealis-bank": ("default", "repo-ledger"),
    "cobalt-support": ("default", "tools-v3"),
    "delta-clinic": ("default",),
}
"""Besides "", which requests without a label use."""


def _config(**fields: Any) -> dict[str, Any]:
    return {"model_type": "llama", "torch_dtype": "bfloat16", **fields}


MODELS: tuple[dict[str, Any], ...] = (
    # 1,024 and 64 bytes a token: the reference fleets of the agents.
    {"name": "ref-1k", "config": _config(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1,
                                         head_dim=64, hidden_size=256)},
    {"name": "ref-64", "config": _config(num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                                         head_dim=16, hidden_size=16)},
    {"name": "llama-3.1-8b", "config": _config(num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                                               hidden_size=4096, max_position_embeddings=131072)},
    {"name": "qwen2.5-72b", "kv_dtype": "fp8_e4m3", "tensor_parallel": 4,
     "config": _config(model_type="qwen2", num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
                       hidden_size=8192, max_position_embeddings=131072)},
    {"name": "deepseek-v3", "tensor_parallel": 8, "block_tokens": 64,
     "config": _config(model_type="deepseek_v3", num_hidden_layers=61, num_attention_heads=128, num_key_value_heads=128,
                       hidden_size=7168, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128)},
)  # fmt: skip
USED_MODELS = ("ref-1k", "ref-64")
ROLLED, SHARES = "llama-3.1-8b", {1: 90, 2: 10}
"""The model with two epochs, and how new requests are shared between them."""
ADAPTER, ADAPTER_DIGEST = "legal-lora", "sha256:demo-legal-lora-1"
MIB, GIB = 1 << 20, 1 << 30
QUOTAS: dict[str, dict[str, tuple[int | None, int]]] = {
    "acme-code": {"hbm": (192 * MIB, 32 * MIB), "dram": (GIB, 0), "ssd": (4 * GIB, 0)},
    "borealis-bank": {"hbm": (128 * MIB, 64 * MIB), "dram": (512 * MIB, 128 * MIB)},
    "cobalt-support": {"hbm": (128 * MIB, 0)},
}
"""Tenant → tier → (limit, guarantee) in bytes."""
RATES: dict[str, dict[str, int | None]] = {
    "acme-code": {"requests_per_second": 500, "deletions_per_hour": 60},
    "borealis-bank": {"requests_per_second": None, "deletions_per_hour": 20},
}
NO_RATES: dict[str, int | None] = {"requests_per_second": None, "deletions_per_hour": None}
SHARED: dict[str, Any] = {
    "owner": "acme-code",
    "name": "public-handbooks",
    "audience": ["cobalt-support"],
    "reason": "Both answer from the same published handbooks.",
}
PEOPLE: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("operator", ("operator", "viewer"), None),
    ("destroyer", ("destructive-operator", "operator", "viewer"), None),
    ("approver", ("approver", "viewer"), None),
    ("viewer", ("viewer",), None),
    ("auditor", ("auditor",), None),
    ("acme-admin", ("tenant-admin", "tenant-member"), "acme-code"),
    ("borealis-member", ("tenant-member",), "borealis-bank"),
)
NODES: tuple[dict[str, str], ...] = (
    {"name": "fra-p1", "region": "eu-fra", "zone": "fra-a", "rack": "r1", "role": "prefill"},
    {"name": "fra-p2", "region": "eu-fra", "zone": "fra-b", "rack": "r2", "role": "prefill"},
    {"name": "fra-d1", "region": "eu-fra", "zone": "fra-a", "rack": "r3", "role": "decode"},
    {"name": "ams-m1", "region": "eu-ams", "zone": "ams-a", "rack": "r1", "role": "mixed"},
)


class Command(BaseCommand):
    """Idempotent: what is there stays as it is, passwords included."""

    help = "Make the demonstration's tenants, models, namespaces, people and nodes."

    def add_arguments(self, parser: CommandParser) -> None:
        """What the command line takes."""
        file = arguments.new_file
        parser.add_argument("--logins", type=file, help="write `name password roles` lines here, mode 0600")
        parser.add_argument("--nodes", type=file, help="make the four nodes; write {name: enrolment token} here, 0600")

    def handle(self, *args: Any, **options: Any) -> None:
        """Everything is there afterwards.

        Raises:
            CommandError: these settings are not for a demonstration; nothing was made.
        """
        if not is_demonstration():
            raise CommandError("these settings are not for a demonstration; nothing was made")
        fences_compare(now=datetime.now(UTC))  # nobody did in a new database; in a restored one nothing is made before
        with tenant_context(ACTOR):
            self._tenants()
            self._models()
            self._namespaces()
            self._rollout()
            self._quotas()
            self._sharing()
            if options["logins"]:
                self._people(options["logins"])
        if options["nodes"]:
            ensure_command_key()
            with tenant_context(ACTOR):
                write_private(options["nodes"], json.dumps(self._nodes()) + "\n")

    def _tenants(self) -> None:
        for fields in TENANTS:
            if selectors.tenant_by_slug(fields["slug"]) is None:
                services.tenant_create(**fields, actor=ACTOR)

    def _models(self) -> None:
        for fields in MODELS:
            if selectors.model_by_name(fields["name"]) is None:
                model = services.model_register(**fields, actor=ACTOR)
                services.epoch_create(model=model, weights_digest=f"sha256:demo-{model.name}-1", actor=ACTOR)

    def _namespaces(self) -> None:
        for slug, labels in LABELS.items():
            for model in USED_MODELS:
                for label in ("", *labels):
                    services.namespace_resolve(tenant=slug, model=model, label=label, actor=ACTOR)

    def _rollout(self) -> None:
        """The second epoch of a model gets a tenth of new requests; it has an adapter."""
        model, now = selectors.model_by_name(ROLLED), datetime.now(UTC)
        if model is None or reading.rollout_of(model) is not None:
            return
        services.rollout_set(model=model, shares={1: 100}, actor=ACTOR, now=now)
        services.epoch_create(model=model, weights_digest=f"sha256:demo-{ROLLED}-2", note="retrained", actor=ACTOR)
        services.rollout_set(model=model, shares=SHARES, actor=ACTOR, now=now)
        services.adapter_register(model=model, name=ADAPTER, digest=ADAPTER_DIGEST, actor=ACTOR)
        for label in ("", "contracts"):
            services.namespace_resolve(tenant="acme-code", model=ROLLED, label=label, actor=ACTOR)
        adapted: dict[str, Any] = {
            "tenant": "acme-code",
            "model": ROLLED,
            "adapter": ADAPTER_DIGEST,
            "label": "contracts",
        }
        services.namespace_resolve(**adapted, actor=ACTOR)

    def _quotas(self) -> None:
        """Quotas of the tenants that have none yet."""
        now = datetime.now(UTC)
        for slug, tiers in QUOTAS.items():
            tenant = selectors.tenant_by_slug(slug)
            if tenant is None or any(
                q.limit_bytes is not None for q in quota_view(tenant=tenant.id, now=now).tiers.values()
            ):
                continue
            wanted = {tier: {"limit_bytes": limit, "guaranteed_bytes": floor} for tier, (limit, floor) in tiers.items()}
            quota_set(tenant=tenant.id, tiers=wanted, **RATES.get(slug, NO_RATES), evict=True, actor=ACTOR, now=now)

    def _sharing(self) -> None:
        """A share group waits for its second person, the demonstration's approver."""
        now = datetime.now(UTC)
        if not any(group.name == SHARED["name"] for group in reading.share_groups(now=now)):
            services.share_group_request(**SHARED, expires_at=now + timedelta(days=30), actor=ACTOR, now=now)

    def _people(self, path: Path) -> None:
        """Passwords are written when they are made; an existing file keeps what it says."""
        known = read_logins(path)
        for name, roles, slug in PEOPLE:
            there = selectors.known_username(name)
            if there is not None and name in known:
                continue
            password = secrets.token_urlsafe(15)
            tenant = selectors.tenant_by_slug(slug) if slug else None
            if there is None:
                email = f"{name}@demo.invalid"
                services.user_create(
                    username=name, password=password, roles=roles, tenant=tenant, email=email, actor=ACTOR
                )
            elif there.user_id:
                services.user_password_set(user_id=there.user_id, password=password, actor=ACTOR)
            known[name] = password
        lines = [
            f"{name} {known[name]} {','.join(roles)}{f' /t/{slug}' if slug else ''}" for name, roles, slug in PEOPLE
        ]
        write_private(path, "# log-in, password, roles\n" + "\n".join(lines) + "\n")

    def _nodes(self) -> dict[str, str]:
        found: dict[str, str] = {}
        now = datetime.now(UTC)
        for fields in NODES:
            _, found[fields["name"]] = node_ensure(**fields, again=True, actor=ACTOR, now=now)
        return found


def read_logins(path: Path) -> dict[str, str]:
    """Name → password, as `seed_demo` wrote them before."""
    if not path.exists():
        return {}
    rows = [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {row[0]: row[1] for row in rows if len(row) > 1}


def write_private(path: Path, text: str) -> None:
    """The file has this text and can be read by its owner alone, at no moment by others."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w") as file:
        file.write(text)
    part.replace(path)
