"""What a deletion came to, without ids, times and how much chance had put where; and that each effect was once."""

import contextlib
import json

import psycopg

ACCEPTED = 0x0507
EVIDENCE = ("technique", "readback", "medium", "encrypted", "probed", "scanned", "key_destroyed", "contradicted", "gap")


def said(file):
    """What a certificate says: of the whole, and of each tier where something was."""
    body = file["body"]
    held = [copy for copy in body["copies"] if copy["objects"]]
    of_copies = {flag for copy in body["copies"] for flag in copy["flags"]}
    tiers = {c["tier"]: (c["class"], sorted(c["flags"]), *(c["evidence"].get(name) for name in EVIDENCE)) for c in held}
    assert {"erase", "verify"} <= {one["body"]["kind"] for one in body["receipts"]}
    return (sorted(set(body["flags"]) - of_copies), body["exceptions"], body["kind"], body["seal"]), tiers


def alike(ends):
    """All certificates say the same of themselves, and of each tier that they speak of."""
    tiers = {}
    for part, (whole, mine) in ends:
        assert whole == ends[0][1][0], (part, whole, ends[0])
        for tier, found in mine.items():
            assert tiers.setdefault(tier, found) == found, (part, tier, found, tiers[tier])
    return tiers


def ended(api, operation):
    """The operation once it has ended; None also while nobody answers."""
    with contextlib.suppress(Exception):  # web may be the one that was killed
        found = api.get(f"/operations/{operation}")
        return found if found["done"] else None
    return None


def once(dsn, operation):
    """Each step has one receipt and one event of it; it was ordered, ended and certified once."""
    with psycopg.connect(dsn, autocommit=True) as cx:
        steps = cx.execute(
            "SELECT count(*), count(DISTINCT receipt_hash), count(DISTINCT id) FROM catalog_step WHERE operation = %s"
            " AND receipt IS NOT NULL", (operation,),
        ).fetchone()  # fmt: skip
        issued = cx.execute("SELECT count(*) FROM audit_certificate WHERE operation = %s", (operation,)).fetchone()[0]
        events = [
            json.loads(bytes(body))["data"].get("operation") == operation
            for (body,) in cx.execute("SELECT body FROM audit_event WHERE event_type = %s", (ACCEPTED,))
        ]
        told = dict(
            cx.execute(
                "SELECT event_type, count(*) FROM audit_event WHERE object_kind = 'operation' AND object_id = %s"
                " GROUP BY event_type", (operation,),
            ).fetchall()
        )  # fmt: skip
    assert steps[0] == steps[1] == steps[2] == sum(events), (operation, steps, sum(events))
    assert issued == 1, operation
    assert set(told.values()) == {1}, (operation, told)
