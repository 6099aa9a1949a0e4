"""What a node's journal knows of fences, for a console that lost some."""

from kvcore.messages import Command, Fence
from nodeagent.jobs import Done
from tests.nodeagent.ordering import Ordered
from tests.nodeagent.rig import blocks


def test_fences_are_listed_in_order_and_in_pages(tmp_path):
    rig = Ordered(tmp_path, {"hbm": blocks(4)})
    try:
        rig.ring.fence(3, [Fence(ns=bytes([n]) * 32, min_gen=2**63 if n == 3 else n) for n in (3, 1, 2)])

        def ask(**args):
            return rig.orders.fences(Command(v=1, step="s", kind="fences", node="n1", order_hash="", issued_at=0,
                                             expires_at=2e10, args=args))  # fmt: skip

        first = ask(after="", limit=2)
        assert [line["min_gen"] for line in first["fences"]] == ["1", "2"]
        assert first["more"] is True
        rest = ask(after=first["fences"][-1]["ns"], limit=2)
        assert rest == {"fences": [{"ns": "03" * 32, "min_gen": str(2**63)}], "more": False}
        for bad in ({"limit": 0}, {"limit": 10**9}, {"limit": "x"}, {"after": 5, "limit": 1}):
            assert isinstance(ask(**bad), Done)
    finally:
        rig.close()
