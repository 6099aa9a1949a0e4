"""Decides which kinds of events there are: name, number, and the fields their data may have. It only grows.

The high byte of a number is its subject (1 identity, 2 policy, 3 catalog, 4 node, 5 deletion, 6 keys, 7 export,
8 break-glass, 15 the log itself), the low byte its verb. A number is never given twice, nor to another name.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class EventType:
    """One kind of event. No field may carry personal data: that goes to `pii`."""

    number: int
    name: str
    fields: frozenset[str]


def _types(*rows: tuple[int, str, str]) -> dict[str, EventType]:
    found = {name: EventType(number, name, frozenset(fields.split())) for number, name, fields in rows}
    if len(found) != len(rows) or len({t.number for t in found.values()}) != len(rows):
        raise ValueError("an event type's name or number is given twice")
    return found


TYPES = _types(
    (0x0101, "tenant.created", "slug residency isolation classes erasure_scope retention"),
    (0x0102, "tenant.changed", "changed before after"),
    (0x0103, "tenant.closed", "slug namespaces share_groups"),
    (0x0110, "user.created", "roles tenant kind"),
    (0x0111, "user.changed", "changed roles"),
    (0x0112, "user.logged_in", "method"),
    (0x0113, "user.login_refused", "reason repeated"),
    (0x0114, "user.logged_out", ""),
    (0x0115, "user.removed", ""),
    (0x0116, "user.stepped_up", "method"),
    (0x0120, "token.issued", "kind roles scopes expires_at holder"),
    (0x0121, "token.revoked", "kind reason"),
    (0x0122, "token.rotated", "kind replaced_by expires_at"),
    (0x0201, "model.registered", "name kv_dtype block_tokens tensor_parallel bytes_per_token config_hash base layout"),
    (0x0202, "epoch.created", "model epoch weights_digest"),
    (0x0203, "epoch.retired", "model epoch policy"),
    (0x0204, "adapter.registered", "model name digest epoch"),
    (0x0210, "namespace.created", "digest model model_epoch generation key_scheme share_group"),
    (0x0211, "namespace.generation_bumped", "digest generation min_gen reason fence_seq"),
    (0x0212, "rollout.changed", "model shares before version horizon_seconds"),
    (0x0220, "sharing.requested", "name owner audience expires_at reason approval residency"),
    (0x0221, "sharing.approved", "name owner audience approval decided_by"),
    (0x0222, "sharing.denied", "name owner approval decided_by reason"),
    (0x0223, "sharing.revoked", "name owner reason namespaces"),
    (0x0224, "sharing.expired", "name owner namespaces"),
    (0x0225, "sharing.left", "name owner member reason namespaces"),
    (0x0230, "approval.decided", "kind object decision risk reason"),
    (0x0240, "quota.changed", "tiers requests_per_second deletions_per_hour evict"),
    (0x0241, "classes.changed", "rules"),
    (0x02F0, "access.refused", "route method status code repeated"),
    (0x02F1, "placement.refused", "namespace node tier reason count"),
    (0x02F2, "placement.violated", "namespace node tier reason count"),
    (0x0301, "source.state_changed", "node source dp_rank state reason since"),
    (0x0302, "source.reset", "node source dp_rank boot reason"),
    (0x0401, "node.created", "name region zone rack role agent_url"),
    (0x0402, "node.enrolled", "name key agent_version agent_url tiers engine"),
    (0x0403, "node.state_changed", "name before after reason"),
    (0x0404, "node.changed", "name changed"),
    (0x0405, "node.dedicated", "name tenant evict"),
    (0x0410, "command.ordered", "step kind node args"),
    (0x0411, "command.concluded", "step kind node state code receipt_hash"),
    (0x0501, "order.approved", "operation kinds nodes plan_hash selector_hash risk approval not_after"),
    (0x0601, "key.leased", "holder_kind holder leases new fence_seq leases_hash"),
    (0x0602, "key.destroyed", "kind name"),
    (0x0701, "export.made", "range filters format records manifest_sha256"),
    (0x0702, "export.downloaded", "export format bytes"),
    (0x0703, "log.verified", "size root first_divergent verdict"),
    (0x0704, "log.searched", "range filters records"),
    (0x0705, "retention.requested", "class month approval"),
    (0x0710, "webhook.created", "events host state"),
    (0x0711, "webhook.changed", "events host state changed"),
    (0x0712, "webhook.removed", "host reason"),
    (0x0F01, "log.note", "note"),
    (0x0F02, "log.gap_found", "producer expected found"),
    (0x0F03, "log.divergence_found", "kind index detail"),
    (0x0F04, "log.scrubbed", "size leaves seconds verdict"),
    (0x0F05, "log.refused_by_signer", "code size signed_size"),
    (0x0F06, "log.bodies_retired", "class month events first last digest"),
    (0x0F07, "spool.imported", "events lost"),
)
