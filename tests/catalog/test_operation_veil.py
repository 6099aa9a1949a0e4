"""What a tenant is told of nodes and of other tenants: ids and nobody's name."""

import json

import pytest

from catalog.operation_veil import _without_names, veiled
from kvconsole.infra.access import system, tenant_context
from tests.tenants.making import a_node, a_tenant, principal

CELL = {"node": "fra-p1", "tier": "hbm"}
PLAN = {"cells": [CELL], "blockers": [{"node": "", "kind": "hold"}, {**CELL, "kind": "pin"}], "unreachable": ["fra-d2"],
        "tenants": ["acme-code", "cobalt"], "left_out": [{"tenants": ["acme-code", "cobalt"]}]}  # fmt: skip
RUN = {"progress": {"percent": 3, "cells": [CELL]}, "conditions": [{"type": "Fenced", "message": "1 of 2; fra-p1"}]}


def test_nodes_are_ids_and_other_tenants_are_nobody():
    told = _without_names(PLAN | RUN, {"fra-p1": "id-1"}, "acme-code")
    assert told["cells"] == told["progress"]["cells"] == [{"node": "id-1", "tier": "hbm"}]
    assert [one["node"] for one in told["blockers"]] == ["", "id-1"]
    assert told["unreachable"] == [""], "a node without a row has no name either"
    assert told["tenants"] == told["left_out"][0]["tenants"] == ["acme-code"]
    text = json.dumps(told)
    assert not any(name in text for name in ("fra-", "cobalt"))
    assert PLAN["cells"] == [CELL], "what was given stays as it was"


@pytest.mark.django_db(databases=["default", "tenant"])
def test_it_depends_on_who_asks():
    tenant, node = a_tenant(), a_node(name="fra-p1")
    with tenant_context(principal(tenant)):
        assert veiled(RUN)["progress"]["cells"][0]["node"] == str(node)
    with tenant_context(system("test")):
        assert veiled(RUN) == RUN
