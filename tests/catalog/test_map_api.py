"""`/map/tiles`, `/map/heat.bin`, `/watermarks` over a real writer."""

# ruff: noqa: F811

import json
import struct
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from kvconsole import apidocs
from tenants import services
from tests.catalog.ingest.conftest import planted, rig  # noqa: F401  (fixtures)
from tests.catalog.ingest.rig import Rig, Sim, add, keys, plant_namespace, plant_node
from tests.catalog.ingest.test_pictures import mark, use
from tests.tenants.making import a_tenant

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])


def get(path, token, **headers):
    return Client().get(f"/api/v1/{path}", headers={"Authorization": f"Bearer {token}", **headers})


@pytest.fixture
def fleet(planted):
    """A writer at the present, with two columns behind it."""
    ns, sim = plant_namespace(planted, "repo"), Sim(plant_node(planted, "n1"))
    rig = Rig(now=timezone.now().timestamp() // 10 * 10 - 40)
    rig.tick(1.1)
    rig.now = rig.now // 10 * 10 + 10
    rig.send(sim.node, sim.frame(add(ns, 1, 2, 3), mark(400)))
    rig.send(sim.node, sim.frame(use(ns=ns, head=keys(2))))
    for _ in range(2):
        rig.batch((sim.node, sim.beat()), step=10)
    yield rig
    rig.writer.close()


def open_file(blob):
    assert blob[:4] == b"KVH1"
    (length,) = struct.unpack("<I", blob[4:8])
    return json.loads(blob[8 : 8 + length]), blob[8 + length :]


def described(value, name):
    """The value is what the description says: its fields all and no others, null only where it may be."""
    _described(value, apidocs.description()["components"]["schemas"][name], name)


def _described(value, shape, where):
    if value is None:
        assert shape.get("nullable") or any(s.get("enum") == [None] for s in _refs(shape)), where
        return
    shape = next((s for s in _refs(shape) if s.get("enum") != [None]), shape)
    if "properties" in shape:
        assert set(value) == set(shape["properties"]) == set(shape["required"]), where
        for key, inner in shape["properties"].items():
            _described(value[key], inner, f"{where}.{key}")
    elif "additionalProperties" in shape:
        assert value, where
        for key, inner in value.items():
            _described(inner, shape["additionalProperties"], f"{where}.{key}")
    elif shape["type"] == "array":
        assert value, where
        for inner in value:
            _described(inner, shape["items"], f"{where}[]")
    else:
        kinds = {"string": str, "integer": int, "boolean": bool, "number": (int, float)}
        assert isinstance(value, kinds[shape["type"]]), where
        assert value in shape.get("enum", [value]), where


def _refs(shape):
    """The components that the shape may be."""
    schemas = apidocs.description()["components"]["schemas"]
    parts = [shape, *shape.get("allOf", []), *shape.get("oneOf", [])]
    return [schemas[p["$ref"].rpartition("/")[2]] for p in parts if "$ref" in p]


def test_the_pictures(fleet):
    token = services.token_issue("service", roles=["viewer"])[1]
    tiles = get("map/tiles", token).json()
    assert tiles["nodes"]["n1"]["tiers"]["hbm"]["used"] == 400
    assert tiles["nodes"]["n1"]["tiers"]["dram"]["used"] is None
    assert tiles["fleet"]["numbers"]["blocks"] == 3
    described(tiles, "TilesOut")

    answer = get("map/heat.bin?metric=hits&layer=auto&rows=512", token)
    assert answer["Content-Type"] == "application/octet-stream"
    head, levels = open_file(answer.content)
    assert len(levels) == len(head["rows"]) * len(head["columns"])
    assert head["scale"]["kind"] == "symlog"
    assert {r["namespace"] for r in head["rows"]} == {"repo"}
    assert any(0 < x < 255 for x in levels)
    again = get("map/heat.bin?metric=hits&layer=auto&rows=512", token, **{"If-None-Match": answer["ETag"]})
    assert again.status_code in (200, 304)  # a column may have ended meanwhile
    assert again.status_code == 200 or again.content == b""

    to, since = timezone.now(), timezone.now() - timedelta(hours=30)
    wide = get(f"map/heat.bin?metric=resident&from={since.timestamp()}&to={to.timestamp()}", token)
    assert open_file(wide.content)[0]["layer"] == 2
    marks = get("watermarks?node=n1&tier=hbm", token).json()
    assert [s["used_bytes"] for s in marks["items"] if s["used_bytes"] is not None][:1] == [400]
    assert marks["items"][0]["used_bytes"] is None
    described(marks, "WatermarksOut")

    for wrong in (
        "map/heat.bin?metric=money",
        "map/heat.bin?rows=0",
        "map/heat.bin?rows=5000",
        "map/heat.bin?from=tomorrow",
        "map/heat.bin?from=100&to=50",
        "map/heat.bin?color=red",
        "watermarks?node=n1",
        "watermarks?node=n1&tier=tape",
    ):
        assert get(wrong, token).status_code == 400, wrong

    tenant = a_tenant()
    foreign = services.token_issue("service", roles=["tenant-admin"], tenant_id=tenant.id)[1]
    for path in ("map/tiles", "map/heat.bin", "watermarks?node=n1&tier=hbm"):
        assert get(path, foreign).status_code == 403
        assert Client().get(f"/api/v1/{path}").status_code == 401
