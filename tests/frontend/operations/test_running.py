"""How cells of places become cells of a page, and what of them is told to whom."""

import pytest

from frontend.operations.running import condition, joined, matrix


def place(node="fra-p1", tier="hbm", state="verified", cls=2, done=10, total=10, flags=()):
    return {"node": node, "tier": tier, "source": "s", "owner": 1, "state": state, "class": cls, "done_bytes": done,
            "total_bytes": total, "flags": list(flags)}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "state", "cls"), [
    (("verified", 3), ("verified", 2), "verified", 2), (("verified", 3), ("silent", None), "silent", None),
    (("erasing", None), ("verified", 2), "erasing", None), (("blocked", 1), ("pending", None), "blocked", None),
])  # fmt: skip
def test_of_several_places_the_worst_counts_and_no_class_is_no_class(one, other, state, cls):
    cells = [place(state=s, cls=c, flags=(s,)) for s, c in (one, other)]
    found = joined(joined(None, cells[0]), cells[1])
    assert (found.state, found.cls, found.places, found.total) == (state, cls, 2, 20)
    assert set(found.flags) == {one[0], other[0]}


def test_what_is_waited_for_stands_first_and_a_tenant_sees_no_node():
    cells = [place("a", total=99), place("b", state="silent", total=1), place("c", state="erasing", total=5)]
    assert [node for node, _ in matrix(cells, by_node=True)] == ["b", "a", "c"]
    ((name, row),) = matrix(cells, by_node=False)
    assert (name, row["hbm"].state, row["hbm"].total) == ("", "silent", 105)
    said = {"type": "NodesReachable", "status": "false", "reason": "silent", "message": "2 of 3; b", "since": None}
    assert condition(said, staff=True)["detail"] == "2 of 3; b"
    assert condition(said, staff=False)["detail"] == ""
