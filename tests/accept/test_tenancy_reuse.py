"""Tenancy, seen from outside: what is not equal shares nothing, and says why; who shares does so until it is over."""

import itertools
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from kvcore.keys import chain_keys
from tests.accept.fleet import say
from tests.accept.tenancy import Caller, People

pytestmark = [pytest.mark.accept, pytest.mark.walk]
LONG = os.environ.get("KVC_ACCEPT", "") == "full"
TOKENS = b"".join(random.Random(512).randrange(128_000).to_bytes(4, "little") for _ in range(512))
CONFIG = {
    "model_type": "llama", "torch_dtype": "bfloat16", "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 1, "head_dim": 64, "hidden_size": 256, "rope_theta": 10000.0,
}  # fmt: skip


class Gateway:
    """A tenant's gateway: it resolves, holds leases, and makes keys of prompts."""

    def __init__(self, people: People, tenant: str) -> None:
        self.tenant, self.caller = tenant, people.service(tenant, "gateway", kind="gateway")

    def resolve(self, **fields: str) -> Any:
        """The answer for such requests."""
        return self.caller("POST", "/namespaces:resolve", {"tenant": self.tenant, **fields})

    def leases(self, fence_seq: int = 0) -> dict[str, Any]:
        """Namespace → lease, of all it may hold."""
        answer = self.caller.post("/key-leases", {"fence_seq": fence_seq, "all": True})
        self.fences = {f["namespace"]: f["min_gen"] for f in answer["fences_after"]}
        return {lease["namespace"]: lease for lease in answer["leases"]}

    def keys(self, digest: str, tokens: bytes = TOKENS) -> set[bytes]:
        """The keys of the prompt's blocks in a namespace."""
        lease = self.leases()[digest]
        blk = bytes.fromhex(lease["subkeys"]["blk"])
        return set(chain_keys(tokens, block_tokens=lease["block_tokens"], blk=blk))


def variants(operator: Caller, members: dict[str, Gateway]) -> dict[str, Any]:
    """The base, and for each field a namespace that differs from it in that field alone."""
    model = {"name": "seven", "config": CONFIG, "kv_dtype": "bf16", "tokenizer_digest": "t-1", "modality_digest": "m-1"}
    changed: dict[str, dict[str, Any]] = {
        "position": {"config": {**CONFIG, "rope_theta": 500000.0}},
        "modality": {"modality_digest": "m-2"},
        "kv-scales": {"kv_scales": "per-head"},
        "tokenizer": {"tokenizer_digest": "t-2"},
        "block-size": {"block_tokens": 32},
    }
    for name, fields in {"": {}, **changed}.items():
        named = {"name": f"seven-{name}", "base": "seven"} if name else {}
        operator.post("/models", {**model, **fields, **named})
        operator.post(f"/models/{named.get('name', 'seven')}/epochs", {"weights_digest": "sha256:seven"})
    digest = "sha256:adapter-of-seven"
    operator.post("/adapters", {"model": "seven", "name": "lora", "digest": digest})
    one, two = members.values()
    found = {name: one.resolve(model=f"seven-{name}" if name else "seven").json() for name in ("", *changed)}
    found["adapter"] = one.resolve(model="seven", adapter=digest).json()
    found["scope"] = two.resolve(model="seven").json()
    return found


@pytest.mark.timeout(300)
def test_the_same_512_tokens_under_seven_variants_are_seven_namespaces_and_every_pair_is_explained(
    people: People,
) -> None:
    """Each variant differs from a common base in one field; explain-reuse names the fields in all 21 pairs."""
    operator = people.token("operator", "operator", "viewer")
    members = {tenant: Gateway(people, tenant) for tenant in ("acme-code", "cobalt-support")}
    found = variants(operator, members)
    base = found.pop("")
    assert len(found) == 7
    assert len({v["digest"] for v in found.values()} | {base["digest"]}) == 8, found
    one, two = members.values()
    keys = {n: (two if n == "scope" else one).keys(v["digest"]) for n, v in found.items()}
    assert [len(k) for n, k in sorted(keys.items())].count(512 // 16) == 6
    assert len(set.union(*keys.values())) == sum(map(len, keys.values())), "two variants share a key"
    wrong, pairs = [], 0
    for a, b in itertools.combinations(found, 2):
        said = operator.get(f"/explain-reuse?a={found[a]['namespace']}&b={found[b]['digest']}")
        pairs += 1
        codes = {f["code"] for f in said["fields"]}
        if codes != {a, b} or said["same"] or not all(code in said["words"] for code in (a, b)):
            wrong.append((a, b, said))
    alone = {n: operator.get(f"/explain-reuse?a={base['namespace']}&b={v['namespace']}") for n, v in found.items()}
    say("variants", tokens=512, fields=sorted(found), namespaces=len({v["digest"] for v in found.values()}),
        keys=sum(map(len, keys.values())), shared_keys=0, pairs_named=pairs - len(wrong), pairs=pairs,
        against_the_base={n: [f["code"] for f in s["fields"]] for n, s in alone.items()})  # fmt: skip
    assert not wrong, wrong[:2]
    assert pairs == 21
    assert {n: [f["code"] for f in s["fields"]] for n, s in alone.items()} == {n: [n] for n in found}


@pytest.mark.timeout(300)
def test_tenants_share_no_key_members_of_an_approved_group_do_until_it_is_revoked(people: People) -> None:
    """Same prompt, two tenants: no key in common; in a share group all; within 1 s of its end none."""
    scopes = ("*:read", "*:write", "share-groups:destroy")
    operator = people.token("operator", "operator", "viewer", scopes=scopes)
    approver = people.browser("approver")
    puppet = people.token("approver", "approver", scopes=scopes)
    one, two, third = (Gateway(people, t) for t in ("acme-code", "cobalt-support", "borealis-bank"))
    private = [g.keys(g.resolve(model="ref-64").json()["digest"]) for g in (one, two)]
    assert len(private[0]) == len(private[1]) == 32
    assert not private[0] & private[1]
    ends = []
    for turn in range(20 if LONG else 2):
        body = {"owner_tenant": one.tenant, "name": f"shared-{turn}", "audience": [two.tenant], "reason": "accept",
                "expires_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}  # fmt: skip
        group = operator.post("/share-groups", body)["id"]
        asked = {"model": "ref-64", "share_group": group}
        assert [g.resolve(**asked).json().get("code") for g in (one, two, third)] == [
            "share-group-inactive", "share-group-inactive", "not-found"
        ]  # fmt: skip
        assert operator("POST", f"/share-groups/{group}:approve", {}).status_code == 403
        assert puppet("POST", f"/share-groups/{group}:approve", {}).json()["code"] == "person-needed"
        approver.post(f"/share-groups/{group}:approve", {})
        found = [g.resolve(**asked).json() for g in (one, two)]
        assert found[0] == found[1]
        assert third.resolve(**asked).json()["code"] == "not-found"
        shared = [g.keys(found[0]["digest"]) for g in (one, two)]
        assert shared[0] == shared[1]
        assert not shared[0] & (private[0] | private[1])
        assert found[0]["digest"] not in third.leases()
        ends.append(_revoke((operator, approver)[turn % 2], group, found[0], asked, (one, two)))
    say("sharing", keys_of_two_tenants_in_common=0, keys_of_members_in_common=len(shared[0]), groups=len(ends),
        last_shared_after_seconds=[round(s, 3) for s in ends], limit=1.0)  # fmt: skip
    assert max(ends) <= 1.0


def _revoke(who: Caller, group: str, found: Any, asked: dict[str, str], members: tuple[Gateway, ...]) -> float:
    """Seconds after the revocation's answer when the last call began that was still answered as before, 0 = none."""
    for member in members:
        assert found["digest"] in member.leases()
    asks = [partial(ask, member, found, asked) for member in members for ask in (_resolved, _leased)]
    with ThreadPoolExecutor(len(asks)) as pool:
        who.post(f"/share-groups/{group}:revoke", {"reason": "over"})
        return max(pool.map(partial(_last, time.monotonic()), asks))


def _last(begin: float, ask: Callable[[], bool]) -> float:
    """When the last call began that still shared. It must not begin to share again."""
    last = at = 0.0
    while at < 1.5:
        at = time.monotonic() - begin
        if ask():
            last = at
    return last


def _resolved(member: Gateway, found: Any, asked: dict[str, str]) -> bool:
    return member.resolve(**asked).json().get("code") != "share-group-inactive"


def _leased(member: Gateway, found: Any, asked: dict[str, str]) -> bool:
    """Whether it has a key, or was not told of the fence."""
    leased = found["digest"] in member.leases()
    return leased or member.fences.get(found["digest"], 0) <= found["generation"]
