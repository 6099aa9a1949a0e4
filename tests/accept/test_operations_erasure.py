"""Deletions, seen from outside: what a certificate says is gone is not on any medium, whoever looks."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kvconsole.embedded import Postgres
from tests.accept.conftest import a_console
from tests.accept.deleting import Fleet, everything, fact, fragments, occurrences
from tests.accept.fleet import catalog, inventories, quiet, say, until
from tests.accept.tenancy import Caller
from tests.running import Console

pytestmark = [pytest.mark.accept, pytest.mark.walk]
LONG = os.environ.get("KVC_ACCEPT") == "full"
OBJECTS = 1_000 if LONG else 120
CANARIES = 64
STAYS = 20 if LONG else 2
"""Objects of the other label on each node: what is newest pushes down what goes, and may not push it out of a tier."""
NODES = ("n1", "n2", "n3", "n4")
RUN_BYTES = 32 * 1_104
"""Of a prompt of 512 tokens on a node: 32 blocks with their heads."""
DONE = {
    "hbm": ("memset", 3),
    "pinned": ("memset", 3),
    "dram": ("memset", 3),
    "ssd": ("key_destroy", 4),
    "remote": ("key_destroy", 4),
}
"""Tier → how the reference tiers erase, and the class that another process's look at the medium earns there."""


@pytest.fixture(scope="module")
def console(postgres: Postgres, template: str, service_base: object) -> Iterator[Console]:
    """A console with four agents, whose tiers are so small that blocks lie on all of them."""
    part = OBJECTS * 2 * RUN_BYTES // len(NODES) // 1024
    sizes = {"hbm": part // 8, "pinned": part // 8, "dram": part // 8, "ssd": part // 4, "remote": part * 2}
    with a_console(postgres, template, service_base) as made:  # type: ignore[arg-type]
        made.start("signer", "sequencer", "web", "ingest", "worker", "beat")
        made.seed()
        made.nodes(*NODES, options=("--policy", "lru"),  # by value, what is never asked for again is not kept
                   tiers=tuple(f"{tier}={kib}KiB" for tier, kib in sizes.items()))  # fmt: skip
        yield made


@pytest.fixture(scope="module")
def fleet(console: Console) -> Fleet:
    """Blocks of several labels may be put there."""
    return Fleet(console)


def technique_of(copy: dict[str, Any]) -> str:
    """How it was erased, as the certificate says."""
    return str(copy["evidence"].get("technique", "none"))


@pytest.mark.timeout(900)
def test_after_the_certificate_a_raw_scan_of_arenas_files_and_valkey_finds_no_canary(
    console: Console, fleet: Fleet
) -> None:
    """Objects of one label in up to three places each; another label beside it stays as it is."""
    copies: dict[str, list[int]] = {name: [] for name in NODES}
    for number in range(OBJECTS):
        for nth in range(number % 3 + 1):
            copies[NODES[(number + nth) % len(NODES)]].append(number)
    before = everything(console)
    fleet.fill("goes", copies)
    until(lambda: quiet(console), 120, "what goes is told")
    found = {at: fragments(before.get(at, []), parts, CANARIES, 20) for at, parts in everything(console).items()}
    fleet.fill("stays", {name: range(900_000 + at * 20, 900_000 + at * 20 + STAYS) for at, name in enumerate(NODES)})
    until(lambda: quiet(console), 60, "what stays is told")
    there = everything(console)  # some of what goes had to leave for what stays
    canaries = {at: [one for one in found.get(at, []) if occurrences(parts, [one])]
                for at, parts in there.items() if at[1] != "files"}  # fmt: skip
    planted = Counter(at[1] for at, some in canaries.items() for _ in some)
    assert set(planted) == set(DONE), (planted, Counter(one.tier for one in inventories(console)))
    every = [canary for some in canaries.values() for canary in some]
    assert len(every) >= CANARIES
    kept = {one for one in inventories(console) if one.digest == fleet.namespaces["stays"]}

    asked = time.monotonic()
    operation = fleet.delete(tenant="erase", label="goes")
    certificate = fleet.certificate(operation, 300)
    took = time.monotonic() - asked
    after = everything(console)
    left = {"/".join(at): n for at, parts in after.items() if (n := occurrences(parts, every))}
    copied = certificate["body"]["copies"]
    say("operations-erasure", objects=OBJECTS, copies=sum(map(len, copies.values())), canaries=len(every),
        planted=planted, left=left, seconds=round(took, 1), cls=certificate["body"]["class"],
        kept=len(kept),
        classes=Counter(" ".join((c["tier"], technique_of(c), str(c["class"]), *c["flags"])) for c in copied),
    )  # fmt: skip
    assert left == {}
    assert {one for one in inventories(console) if one.digest == fleet.namespaces["stays"]} == kept, (
        "others lose nothing"
    )
    for tier, done in DONE.items():
        held = [c for c in copied if c["tier"] == tier and c["objects"]]
        assert held, tier
        assert {(technique_of(c), c["class"]) for c in held} == {done}, held
    assert certificate["body"]["class"] == min(c["class"] for c in copied)


@pytest.mark.timeout(300)
def test_r3_by_the_requester_alone_is_refused_in_page_api_token_and_second_session(fleet: Fleet) -> None:
    """Who asks may be an approver too: no page, call, token or other session of theirs decides."""
    people = fleet.people
    fleet.fill("alone", {"n1": range(10)})
    who = people.browser("operator").get("/people?limit=200")["items"]
    ident = next(one["id"] for one in who if one["username"] == "destroyer")
    roles = ["viewer", "operator", "destructive-operator", "approver"]
    changed = people.browser("approver")("PATCH", f"/people/{ident}", {"roles": roles}, **{"If-Match": "*"})
    assert changed.status_code == 200, changed.text
    people.browsers.pop("destroyer", None)

    requester = people.browser("destroyer")
    plan = requester.post("/deletion-plans", {"selector": {"tenant": "erase", "label": "alone"},
                                              "options": {"crypto_erase": True}})  # fmt: skip
    assert plan["risk"] == "R3", plan["reasons"]
    asked = fleet.start(requester, plan)
    assert asked.status_code == 202, asked.text
    operation, approval = asked.json()["id"], asked.json()["approval"]
    assert asked.json()["state"] == "awaiting_approval"

    second = Caller(fleet.console.url).log_in("destroyer", people.logins["destroyer"])
    token = people.token("destroyer", "approver", "destructive-operator",
                         scopes=["deletions:write", "deletions:destroy"])  # fmt: skip
    tries = {}
    for name, caller in {"api": requester, "second session": second, "token": token}.items():
        answer = caller("POST", f"/approvals/{approval}:approve", {"reason": "mine"})
        tries[name] = answer.status_code, answer.json()["code"]
    for name, browser in {"page": requester, "page of the second session": second}.items():
        path = f"/approvals/{approval}/approve"
        browser.http.get(f"/approvals/{approval}")
        fields = {"reason": "mine", "csrfmiddlewaretoken": browser.http.cookies["csrftoken"]}
        shown = browser.http.post(path, data=fields, headers={"Referer": str(browser.http.base_url) + path})
        tries[name] = (
            shown.status_code,
            "approval-own" if "approval-own" in shown.text else shown.headers.get("Location", ""),
        )
    again = fleet.start(requester, plan)
    tries["asked again"] = again.status_code, again.json().get("state", again.json().get("code"))
    found = fleet.operation(operation)
    say("operations-r3-alone", tries=tries, state=found["state"], fenced=found["t_fence"])
    assert {name: tries[name] for name in ("api", "second session", "token")} == {
        "api": (403, "approval-own"), "second session": (403, "approval-own"), "token": (403, "person-needed"),
    }  # fmt: skip
    assert all(tries[name][0] in (400, 403, 409, 422) for name in tries if name.startswith("page")), tries
    assert (found["state"], found["t_fence"]) == ("awaiting_approval", None)
    assert [h for h in inventories(fleet.console) if h.digest == fleet.namespaces["alone"]], "nothing was erased"

    people.browser("approver").post(f"/approvals/{approval}:approve", {"reason": "agreed"})
    certificate = fleet.certificate(operation)
    assert certificate["body"]["class"] >= 2
    assert not [h for h in inventories(fleet.console) if h.digest == fleet.namespaces["alone"]]


@pytest.mark.timeout(300)
def test_after_a_stop_behind_the_fence_the_old_blocks_never_come_back(fleet: Fleet) -> None:
    """Erasing ends where it is; the namespace goes on under its new generation, and nobody finds what was fenced."""
    console = fleet.console
    fleet.fill("stopped", {name: range(2_000, 2_020) for name in NODES})
    digest = fleet.namespaces["stopped"]
    until(lambda: quiet(console), 60, "blocks are told")
    old = {h.key for h in catalog(console) if h.digest == digest}
    assert old
    destroyer = fleet.people.browser("destroyer")
    plan = fleet.plan(destroyer, tenant="erase", label="stopped")
    started = fleet.start(destroyer, plan, grace_seconds=600)
    assert started.status_code == 202, started.text
    operation = started.json()["id"]
    if started.json()["state"] == "awaiting_approval":
        fleet.people.browser("approver").post(f"/approvals/{started.json()['approval']}:approve", {"reason": "agreed"})
    fleet.until(operation, lambda now: now["t_fence"] and fact(now, "Unroutable") == "true", "fenced", 20)
    destroyer.post(f"/operations/{operation}:stop", {"reason": "not this one"})
    found = fleet.until(operation, lambda now: now["done"], "it ends", 30)
    assert found["state"] == "stopped", found

    hits = fleet.fill("stopped", {name: range(2_000, 2_020) for name in NODES})
    until(lambda: quiet(console), 60, "new blocks are told")
    generations = Counter(h.generation for h in catalog(console) if h.digest == digest)
    router = fleet.people.token("operator", "operator", "viewer")
    seen = []
    for at in range(0, len(old), 20):
        first = sorted(old)[at].ljust(32, b"\0").hex()
        for generation in (1, 2):
            answer = router("POST", "/prefixes:lookup",
                            {"namespace": digest.hex(), "generation": generation, "keys": [first]})  # fmt: skip
            seen.append((answer.status_code, bool(answer.json().get("runs"))))
    say("operations-stop", old=len(old), generations=generations, looked=len(seen), hits=hits,
        found=sum(hit for _, hit in seen))  # fmt: skip
    assert generations[2] > 0, "the namespace goes on"
    assert hits == 0, "the same prompts find nothing of what was fenced, though its bytes may lie there"
    assert not any(hit for _, hit in seen)
