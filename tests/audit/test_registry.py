"""Event types: names, numbers and fields stay as they are; types of fields; nothing made for personal data."""

import re
from datetime import UTC, datetime

import pytest

from audit.registry import KINDS, PERSONAL, TYPES, _type

FROZEN = """
0101 tenant.created slug residency isolation classes:list erasure_scope retention:map
0102 tenant.changed changed:list before:map after:map
0103 tenant.closed slug namespaces:int share_groups:int
0110 user.created roles:list tenant:text? kind
0111 user.changed changed:list roles:list
0112 user.logged_in method
0113 user.login_refused reason repeated:int calls:int
0114 user.logged_out
0115 user.removed
0116 user.stepped_up method
0120 token.issued kind roles:list scopes:list expires_at:time holder
0121 token.revoked kind reason
0122 token.rotated kind replaced_by expires_at:time
0201 model.registered name kv_dtype block_tokens:int tensor_parallel:int bytes_per_token:num config_hash base layout:map
0202 epoch.created model epoch:int weights_digest
0203 epoch.retired model epoch:int policy
0204 adapter.registered model name digest epoch:int
0205 epoch.reopened model epoch:int operation
0210 namespace.created digest:hex model model_epoch:int generation:int key_scheme share_group
0211 namespace.generation_bumped digest:hex generation:int min_gen:int reason fence_seq:int
0212 rollout.changed model shares:map before:map version:int horizon_seconds:int
0213 namespaces.fenced namespaces:int fence_seq:int reason fences_hash:hex
0214 fences.replayed namespaces:int fence_seq:int without:list
0220 sharing.requested name owner audience:list expires_at:time reason:free approval residency
0221 sharing.approved name owner audience:list approval decided_by
0222 sharing.denied name owner approval decided_by reason:free
0223 sharing.revoked name owner reason:free namespaces:int
0224 sharing.expired name owner namespaces:int
0225 sharing.left name owner member reason namespaces:int
0230 approval.decided kind object decision risk reason:free
0240 quota.changed tiers:map requests_per_second:int? deletions_per_hour:int? evict:flag
0241 classes.changed rules:map
0242 window.created cron minutes:int from_risk reason:free
0243 window.removed cron minutes:int from_risk reason:free
0250 policy.changed name version:int model kind params:map before:map
02f0 access.refused route method status:int code repeated:int calls:int
02f1 placement.refused namespace:hex node tier reason count:int
02f2 placement.violated namespace:hex node tier reason count:int
02f3 call.unchanged route method status:int why repeated:int calls:int
0301 source.state_changed node source dp_rank:int state reason since:time
0302 source.reset node source dp_rank:int boot reason
0401 node.created name region zone rack role agent_url
0402 node.enrolled name key agent_version agent_url tiers:map engine:map
0403 node.state_changed name before after reason
0404 node.changed name changed:list
0405 node.dedicated name tenant evict:flag
0410 command.ordered step kind node args:map
0411 command.concluded step kind node state code receipt_hash
0501 order.approved operation kinds:list nodes:list plan_hash:hex selector_hash:hex risk approval:text? not_after:time targets_root:hex? targets:int? force_after:time? fencing:flag
0502 operation.requested kind trigger plan_hash:hex selector_hash:hex risk namespaces:int fence_seq:int reason:free approval:text? grace_seconds:num
0503 operation.fenced namespaces:int fence_seq:int approval
0504 operation.changed change generation:int bytes_per_second:int?
0505 operation.stopped generation:int namespaces:int
0506 operation.concluded state class:int? flags:list steps:int
0507 receipt.accepted operation step node kind outcome receipt_hash:hex prev:hex blocks:int bytes:int found:int? refusal
0508 receipt.refused operation step node kind code receipt_hash:hex
0509 certificate.issued operation body_hash:hex class:int flags:list seal:flag exceptions:int receipts:int supplements
050a hold.requested authority review_at:time reason:free approval
050b hold.placed authority approval namespaces:int
050c hold.release_requested reason:free approval
050d hold.released approval
050e hold.denied approval
050f session.ended namespaces:int operation:text?
0520 pin.created namespace blocks:int until:time reason:free
0521 pin.removed namespace expired:flag
0601 key.leased holder_kind holder leases:int new:int fence_seq:int leases_hash:hex
0602 key.destroyed kind name keys:int
0701 export.made range:map filters:map formats:list records:int manifest_sha256:hex
0702 export.downloaded export format bytes:int
0703 log.verified size:int root:hex first_divergent:int? verdict
0704 log.searched range:map filters:map records:int
0705 retention.requested class:int month approval
0706 export.requested range:map filters:map formats:list proofs:flag personal_data:flag size:int
0707 verification.requested size:int
0708 job.cancelled kind
0709 epoch.requested origin reason approval kept:int kept_root:hex note:free
070a finding.acknowledged finding:int kind about index:int? note:free
0710 webhook.created events:list host state
0711 webhook.changed events:list host state changed:list
0712 webhook.removed host reason
0f01 log.note note
0f02 log.gap_found producer:int expected:int found:int?
0f03 log.divergence_found kind index:int? detail:any
0f04 log.scrubbed size:int leaves:int seconds:num verdict
0f05 log.refused_by_signer code size:int signed_size:int?
0f06 log.bodies_retired class:int month events:int first:int? last:int? digest:hex
0f07 spool.imported events:int lost:int
0f08 log.finding_settled finding:int kind about index:int? first_seen:time last_seen:time reason
0f09 log.restored record old_origin old_size:int old_root:hex kept:int kept_root:hex approval approvers:list reason producers:map
"""  # noqa: E501
"""What is in logs by now. Lines are added, never changed: a verifier of old events goes by them."""


def test_no_number_name_or_field_of_a_type_changes():
    frozen = {}
    for line in FROZEN.strip().splitlines():
        number, name, *fields = line.split()
        frozen[name] = (int(number, 16), dict(f.split(":") if ":" in f else (f, "text") for f in fields))
    known = {name: (kind.number, dict(kind.fields)) for name, kind in TYPES.items()}
    changed = {name: (was, known.get(name)) for name, was in frozen.items() if known.get(name) != was}
    assert not changed, "an event type only comes, as a line of FROZEN; it never changes"
    assert set(known) == set(frozen), "a new type is a new line of FROZEN"


def test_numbers_are_given_once():
    numbers = [kind.number for kind in TYPES.values()]
    assert len(set(numbers)) == len(numbers)


def test_names_are_a_noun_and_what_was_done():
    for name, kind in TYPES.items():
        assert re.fullmatch(r"[a-z]+\.[a-z_]+", name)
        assert 0x0101 <= kind.number <= 0x0FFF
        assert kind.name == name


def test_no_field_is_made_for_personal_data():
    assert not {f for kind in TYPES.values() for f in kind.fields} & PERSONAL
    for name in ("email", "username", "address", "session", "prompt"):
        with pytest.raises(ValueError, match="personal"):
            _type(0x0199, "x.y", f"kind {name}")
    with pytest.raises(ValueError, match="number"):
        _type(0x1001, "x.y", "kind")


GOOD = {
    "text": "a", "free": "typed", "int": 1, "num": 1.5, "flag": True, "hex": b"a", "time": datetime.now(UTC),
    "list": ["a"], "map": {"a": 1}, "any": "a",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_takes_its_type_and_no_other(kind):
    made = _type(0x0199, "x.y", f"f:{kind} g:{kind}?")
    assert made.refusal({"f": GOOD[kind], "g": None}) == ""
    assert made.refusal({}) == ""
    for wrong in (None, object(), True if kind != "flag" else 1):
        assert made.refusal({"f": wrong}), (kind, wrong)
    assert made.refusal({"h": 1}) == "there is no field 'h'"
