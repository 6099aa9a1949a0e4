"""A tenant's own people: their decisions and prefixes alone, without nodes, queues or counters of the fleet."""

import re

import pytest

from catalog.selectors import node_names
from tenants.selectors import tenant_by_slug
from tests.frontend.routing.test_decision import text

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "tenant"])
MOVES = re.compile(
    r'data-now="[^"]*"|[0-9a-f]{8}-[0-9a-f-]{27}|\d\d:\d\d:\d\d|<input[^>]*csrf[^>]*>|[0-9a-f-]{8,}…[0-9a-f]{4}'
)


def test_a_tenant_sees_its_own_decisions_and_no_node(made, person):
    """One test: what is planted is gone after it."""
    nodes = node_names()
    for role in ("tenant-admin", "tenant-member"):
        who = person(role, tenant=tenant_by_slug("acme-code"), name=role)
        listed = who.get("/routing")
        assert listed.status_code == 200
        assert {str(line["one"].id) for line in listed.context["rows"]} == {
            str(one) for one in (made.held, made.nobody, made.computed, made.fetched)
        }
        assert listed.context["counted"] is None
        for path in ("/routing", f"/routing/decisions/{made.held}", f"/routing/decisions/{made.held}?without=0",
                     f"/routing/decisions/{made.nobody}", "/prefixes"):  # fmt: skip
            answer = who.get(path)
            assert answer.status_code == 200, path
            said = answer.content.decode()
            assert not [name for name in nodes if name in said], path
            assert "borealis-bank" not in said, path
        said = text(who.get(f"/routing/decisions/{made.held}"))
        assert "Sent to worker 1 because it holds 62 of 71 blocks in dram." in said
        assert "queued 1" not in said
        absent = who.get("/routing/decisions/01a22e6c-f228-74ab-8000-000000000000")
        foreign = who.get(f"/routing/decisions/{made.foreign}")
        assert (absent.status_code, foreign.status_code) == (404, 404)
        assert MOVES.sub("", absent.content.decode()) == MOVES.sub("", foreign.content.decode())
        assert who.get("/routing/compare").status_code == 403
        assert {line["one"].tenant for line in who.get("/prefixes").context["lines"]} <= {"acme-code"}
        assert who.get("/routing?tenant=borealis-bank&node=fra-p2").context["used"] == {}
