"""What a change of rules or own nodes would make leave, from what is held."""

from datetime import UTC, datetime

import pytest

from catalog import apart
from catalog.classes import class_rules_set
from catalog.dedication import nodes_dedicate
from catalog.models import Node
from kvconsole.infra.sql import connect
from kvcore.residency import Rule
from tenants.placing import tenant_place
from tests.tenants.making import a_model, a_namespace, a_node, a_tenant, principal

pytestmark = pytest.mark.django_db(transaction=True)
BLOCK = 16384
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def held():
    """A tenant whose class `a` has 3 blocks in hbm and 5 on ssd of a node; class `b` has 7 on ssd."""
    tenant = a_tenant(classes=["a", "b"])
    model = a_model()
    node = a_node(name="apart-1")
    spaces = [a_namespace(tenant, model, data_class=name) for name in "ab"]
    with connect("ingest") as cursor:
        cursor.execute(
            "INSERT INTO catalog_source (id, shard, node_id, name, dp_rank, boot, stream, seq, old_boots, state,"
            " reason, since, can_list, gaps) VALUES (901, 0, %s, 'r', 0, gen_random_uuid(), gen_random_uuid(), 1,"
            " '{}', 'exact', '', now(), true, 0)",
            (node,),
        )
        for owner, tier in ((9010, "hbm"), (9011, "ssd")):
            cursor.execute(
                "INSERT INTO catalog_owner (id, shard, source_id, tier, retired, born)"
                " VALUES (%s, 0, 901, %s, false, now())",
                (owner, tier),
            )
        for number, (space, blocks) in enumerate(zip(spaces, ({9010: 3, 9011: 5}, {9011: 7}), strict=True), 901):
            cursor.execute(
                "INSERT INTO catalog_keyspace (id, shard, tenant_id, digest, generation, cache_group, block_tokens,"
                " block_bytes, claimed) VALUES (%s, 0, %s, %s, 1, 0, 16, %s, true)",
                (number, tenant.id, bytes(space.digest), BLOCK),
            )
            for owner, count in blocks.items():
                cursor.execute(
                    "INSERT INTO catalog_holding (keyspace, owner, tenant_id, blocks, lo, hi)"
                    " VALUES (%s, %s, %s, %s, 1, 1)",
                    (number, owner, tenant.id, count),
                )
    return tenant, Node.objects.get(id=node)


def test_what_a_new_rule_bars_leaves_and_nothing_else(held):
    tenant, node = held
    before = apart.misplaced(tenant=tenant.id, now=NOW)
    assert before == {}
    class_rules_set(tenant=tenant_place(tenant.slug), rules={"a": Rule(tiers=frozenset({"hbm"}))}, actor=None)
    after = apart.misplaced(tenant=tenant.id, now=NOW)
    leaves = apart.leaving(before, after)
    assert [(at[1:], size) for at, size in leaves.items()] == [((node.id, "ssd"), 5 * BLOCK)]
    assert apart.by_tier(leaves) == {"ssd": 5 * BLOCK}
    assert apart.by_tier(None) is None
    assert apart.leaving(after, after) == {}


def test_a_tenant_with_too_much_to_look_at_is_not_guessed(held):
    tenant, _node = held
    assert apart.misplaced(tenant=tenant.id, now=NOW, most=2) is None
    assert apart.leaving(None, {}) is apart.leaving({}, None) is None


def test_nodes_are_offered_with_whose_they_are_and_what_others_hold_there(held):
    tenant, node = held
    other = a_tenant(isolation="node")
    assert apart.foreign_bytes(nodes=[node.id], tenant=other.id) == {node.id: 15 * BLOCK}
    assert apart.foreign_bytes(nodes=[node.id], tenant=tenant.id) == {node.id: 0}
    found = {n.name: n for n in apart.nodes_offered()}
    assert (found["apart-1"].owner, found["apart-1"].region) == ("", "eu")
    nodes_dedicate(tenant=tenant_place(other.slug), names=["apart-1"], evict=True, actor=principal(None, "operator"))
    assert next(n for n in apart.nodes_offered() if n.name == "apart-1").owner == other.slug
