"""Processes in an attacker's hands: an approved order serves for nothing else, and what the signer said for no proof.

With all that the real processes have: `tests/accept/test_audit_attackers.py`.
"""

import itertools
import time

import msgspec
import pytest

from kvconsole.programs import PROGRAMS, Site
from kvconsole.roles import ROLES
from kvcore import proofs
from tests.audit.signer import making
from tests.audit.signer.making import APPROVAL, DECIDER, NODE, Log, decision_body, order_body
from tests.catalog.farnode import RunningSigner

DATABASE = {"KVC_DB_HOST": "127.0.0.1", "KVC_DB_PORT": "1", "KVC_DB_NAME": "x"}
DATABASE |= {f"KVC_DB_{role.upper()}_PASSWORD": f"pw-{role}" for role in ROLES}
TAKEN = ("web", "worker", "ingest", "beat")


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "state", database=DATABASE, valkey_url="redis://:x@127.0.0.1:1/0", kind="test")


@pytest.fixture
def running(site):
    running = RunningSigner(site.state, env=site.env("signer"))
    yield running
    running.close()


def later(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def an_order(log, now, **data):
    """An order for much risk and its approval, in this log."""
    fields = {"time_us": int(now * 1e6)}
    order = log.add(
        order_body(risk="R3", approval=APPROVAL, not_after=later(3600), **data), event_type=0x0501, **fields
    )
    return order, log.add(decision_body(), event_type=0x0230, actor_ref=DECIDER, **fields)


def request(log, order, approval, **fields):
    now = time.time()
    command = making.command(log, order, **{"issued_at": now, "expires_at": now + 60, **fields})
    evidence = {"order": log.evidence(order), "approval": None if approval is None else log.evidence(approval)}
    return {"command": command, **{k: msgspec.to_builtins(v) for k, v in evidence.items() if v is not None}}


def test_a_process_that_writes_events_is_told_nothing_that_signs_heads(site):
    private = {site.env("signer")["KVC_SIGNER_LOG_TOKEN"], *(
        v for k, v in site.env("signer").items() if k in ("KVC_COMMAND_KEY_FILE", "KVC_LOG_KEY_FILE",
                                                          "KVC_EXPORT_KEY_FILE", "KVC_SIGNER_STATE"))}  # fmt: skip
    for name in TAKEN:
        assert not private & set(site.env(name).values()), name
    assert not [name for name, one in PROGRAMS.items() if {"KVC_SIGNER_TOKEN", "KVC_SIGNER_LOG_TOKEN"} <= {*one.secrets}
                and name != "signer"], "nobody has both"  # fmt: skip


def test_an_order_that_was_approved_serves_for_nothing_else(site, running):
    """Every combination of another kind, node, time and other evidence, with the worker's token."""
    token, keeper = site.env("worker")["KVC_SIGNER_TOKEN"], site.env("signer")["KVC_SIGNER_LOG_TOKEN"]
    now, log = time.time(), Log().fill(6)
    order, approval = an_order(log, now)
    other, other_approval = an_order(log, now, operation="op-2", nodes=["another"], kinds=["erase"])
    own = log.add(decision_body(), event_type=0x0230, time_us=int(now * 1e6))
    log.fill(3)
    assert running.ask("/v1/checkpoint", log.head(0), keeper)[0] == 200
    assert running.ask("/v1/sign", request(log, order, approval), token)[0] == 200
    changes = [{}, {"kind": "erase"}, {"node": "another"}, {"expires_at": now + 4000}, {"order_hash": "00" * 32}]
    answers = set()
    for first, second, change in itertools.product(
        (order, other, approval, own), (approval, other_approval, own, order, None), changes
    ):
        if (first, second, change) in ((order, approval, {}), (order, other_approval, {})):
            continue  # both decisions are of the same approval
        status, answer = running.ask("/v1/sign", request(log, first, second, **change), token)
        assert status == 403, (first, second, change)
        answers.add(answer["code"])
    assert len(answers) >= 8, answers


def test_a_proof_made_of_the_signers_own_answers_is_none(site, running):
    """Inner nodes, roots and hashes of the log as leaves: nothing that is not a leaf passes for one."""
    token, keeper = site.env("web")["KVC_SIGNER_TOKEN"], site.env("signer")["KVC_SIGNER_LOG_TOKEN"]
    now, log = time.time(), Log().fill(8)
    assert running.ask("/v1/checkpoint", log.head(0), keeper)[0] == 200
    forged = Log()
    order, _ = an_order(forged, now, nodes=[NODE])
    good = request(forged, order, None)
    for index, path in itertools.product((0, 1, 7, 8), ([], [log.root()], [log.node(2, 0), log.node(2, 1)])):
        evidence = good["order"] | {"index": index, "proof": [p.hex() for p in path]}
        assert running.ask("/v1/sign", good | {"order": evidence}, token) == (403, {"code": "order-not-in-log"})
    assert proofs.root_at(8, log.node).hex() == running.ask("/v1/public-keys", None, token)[1]["root"]
