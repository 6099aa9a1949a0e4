"""A database is set back behind what was signed: the log ends, another one goes on, and both can be proved."""

import json
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.db import connections

from audit import epochs, gaps, proving, standing, tree
from audit.approvals import approval_decide
from audit.checkpoints import head_keep, head_sign
from audit.scrubber import Scrubber
from audit.signer import setup
from audit.signer.state import StateFile, StateRefused
from audit.verifier import kvc_verify
from frontend.audit import checking
from kvconsole.infra.rest import Problem
from kvcore.epochs import record_parse
from tests.audit.export.asking import ask, files, made, run
from tests.audit.loglab import Log, as_role
from tests.audit.sealed import a_signer_at
from tests.audit.signer import making
from tests.tenants.making import principal

RESTORED, SETTLED = 0x0F09, 0x0F08


class Site:
    """A database that can be saved and set back, and the signer of its log."""

    def __init__(self, database, directory, settings):
        self.database, self.directory, self.settings = database, directory, settings
        self.saved = f"{database.name}_saved"
        self.keys = []

    def signer(self):
        return a_signer_at(self.directory, self.settings)

    @contextmanager
    def sequencer(self):
        with as_role(self.database, "seq"):
            log = Log(self.database)
            try:
                yield log
            finally:
                log.sequencer.close()

    def operator(self):
        return as_role(self.database, "operator")

    def save(self):
        connections.close_all()
        self.database.postgres.create_database(self.saved, self.database.name)

    def set_back(self):
        connections.close_all()
        self.database.postgres.drop_database(self.database.name)
        self.database.postgres.create_database(self.database.name, self.saved)

    def bundle(self, name, **params):
        """An export's file, set aside under this name."""
        with self.operator():
            size = proving.checkpoint_now(epochs.log_at(params.get("epoch"))).size
            path = made(SimpleNamespace(size=size), **params)
            return path.rename(self.directory / name)


@pytest.fixture
def site(fresh_database, django_db_blocker, tmp_path, settings):
    settings.EXPORT_DIR = str(tmp_path / "exports")
    settings.KEYSTORE_DIR = str(tmp_path / "keys")
    settings.WITNESS_URL = settings.WITNESS_VKEY = ""
    settings.TASK_SENDER = "tests.audit.sealed.nobody"
    (tmp_path / "signer").mkdir(mode=0o700)
    made_ = Site(fresh_database, tmp_path / "signer", settings)
    with django_db_blocker.unblock():
        yield made_
    fresh_database.postgres.drop_database(made_.saved)


def sign(log, count=0):
    log.events(count) if count else None
    log.seal()
    state = head_sign()
    if state == "ok":
        head_keep(witness=False)
    return state


def vkeys(path):
    return files(path)["keys.txt"].decode().splitlines()


def verdict(command, *arguments, keys):
    options = kvc_verify.arguments().parse_args([command, *map(str, arguments), *(f"--key={key}" for key in keys)])
    report = kvc_verify.run(options)
    return report.verdict, [one["code"] for name in ("problems", "reasons", "remarks") for one in report.facts[name]]


def set_up(site):
    """A log of which bundles were given away, set back behind what was signed; what auditors have of it."""
    with site.signer():
        with site.sequencer() as log:
            assert sign(log, 300) == "ok"
            kept = tree.checkpoint_latest().size
        early = site.bundle("early.zip")
        site.save()
        with site.sequencer() as log:
            assert sign(log, 40) == "ok"
            newest = tree.checkpoint_latest()
            (site.directory / "lost.checkpoint").write_text(newest.note)
        site.set_back()
        with site.sequencer() as log:
            assert sign(log, 7) == "refused"
    return early, kept, newest.size - kept


@contextmanager
def refused(code):
    with pytest.raises(Problem) as found:
        yield
    assert found.value.code == code


def agreed(site, reason="restore"):
    """Two people agree; the order."""
    with site.operator():
        operator = principal(None, "operator")
        wish = epochs.epoch_request(reason=reason, note="the disk", actor=operator, now=datetime.now(UTC))
        with refused("epoch-not-approved"):
            epochs.epoch_order(wish.id)
        with refused("epoch-asked"):
            epochs.epoch_request(reason=reason, note="", actor=operator, now=datetime.now(UTC))
        with refused("approval-own"):
            approval_decide(approval_id=wish.id, approve=True, actor=operator, now=datetime.now(UTC))
        second = principal(None, "approver")
        approval_decide(approval_id=wish.id, approve=True, actor=second, now=datetime.now(UTC))
        return epochs.epoch_order(wish.id)


def new_epoch(site, order):
    """What the signer's people do, while it is stopped."""
    where = making.files(site.directory)
    held = StateFile(where.state)
    try:
        return setup.new_epoch(where, held, json.dumps(order).encode(), now=datetime.now(UTC).timestamp())
    finally:
        held.close()


def test_a_log_that_was_set_back_ends_and_another_goes_on(site):
    early, kept, lost = set_up(site)
    with site.sequencer() as log:
        state = tree.log_state()
        assert (state.signer, state.signer_why, state.signed_size) == ("refused", "log-shrunk", kept)
        assert [kind for kind, _ in log.findings()] == ["signer-refused"]
        assert standing.hindrance() == "refused"
    order = agreed(site)
    assert (order["kept"]["size"], len(set(order["approvers"]))) == (kept, 2)
    state = new_epoch(site, order)
    with site.signer():
        with site.sequencer() as log:
            log.seal()
            waits = log.rows("SELECT count(*) FROM audit_leaf WHERE idx >= %s", kept)[0][0]
            assert sign(log) == "away", "the new log begins"
            assert log.rows("SELECT count(*) FROM audit_pending") == [(waits,)], "what was not kept is sealed anew"
            assert sign(log, 5) == "ok"
            assert log.seal() == 1, "that the signer signs again"
            assert log.rows(
                "SELECT event_type, flags FROM audit_event e, audit_leaf l WHERE l.event = e.id AND idx = 0"
            ) == [(RESTORED, 32)]
            assert gaps.look() == 0
            assert log.findings() == []
            assert log.told(SETTLED) == 1
            assert sign(log) == "ok"
            assert standing.hindrance() == ""
            scrubber = Scrubber(log.database.dsn("seq"), rate=0)
            round_ = scrubber.round()
            scrubber.close()
            assert (round_.divergences, log.findings()) == (0, [])
            assert log.rows(
                "SELECT count(*) FROM (SELECT event FROM audit_leaf_all GROUP BY event HAVING count(*) > 1) x"
            ) == [(0,)]
        proved(site, early, kept, lost, state)


def proved(site, early, kept, gone, state):
    """What auditors can check afterwards, with nothing but the key of the first log."""
    old = vkeys(early)
    with site.operator():
        first, second = epochs.logs()
        assert (first.ended, first.size, second.ended, second.lost) == (True, kept, False, gone)
        assert (second.origin, second.record) == (state.origin, state.record)
        brought = {name: (site.directory / name).read_bytes() for name in ("early.zip", "lost.checkpoint")}
        found = checking.check(checking.Brought(earlier=brought["early.zip"]))
        told = [one["code"] for one in found.facts["remarks"]]
        assert (found.verdict, told, found.facts["log"]["size"]) == ("valid", ["log-ended"], kept)
        found = checking.check(checking.Brought(earlier=brought["lost.checkpoint"]))
        assert (found.verdict, [one["code"] for one in found.facts["reasons"]]) == ("incomplete", ["lost"])
        events = proving.asked("default")("SELECT event, epoch, idx FROM audit_leaf_all ORDER BY epoch, idx", ())
        for event in (events[3][0], events[-1][0]):
            (site.directory / "proof").write_text(proving.proof_of(event))
            keys = old if event == events[3][0] else [record_parse(state.record).new]
            assert verdict("proof", site.directory / "proof", keys=keys)[0] == "valid"
    assert verdict("bundle", early, keys=old) == ("valid", [])
    again = site.bundle("again.zip", epoch=1)
    assert verdict("bundle", again, keys=old)[0] == "valid"
    whole = site.bundle("new.zip")
    assert verdict("bundle", whole, keys=old) == ("valid", ["new-epoch"])
    assert verdict("bundle", whole, keys=vkeys(whole)) == ("valid", ["new-epoch"])
    assert verdict("consistency", early, whole, "--proof", site.directory / "none", keys=old)[0] == "malformed"
    lost = verdict("consistency", site.directory / "lost.checkpoint", whole, keys=old)
    assert lost == ("incomplete", ["lost", "new-epoch"])
    with site.operator():
        checked = run(ask(SimpleNamespace(size=0), kind="verify")).result
        assert (checked["verdict"], checked["log"]) == ("as sealed", "as sealed")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ({"approvers": ["ab" * 16] * 2}, "two people"),
        ({"approvers": ["00" * 16, "ab" * 16]}, "two people"),
        ({"origin": "console.example/log/eu/7"}, "the order is one of"),
        ({"kept": {"size": 3, "root": "00" * 32, "note": "x"}}, "no checkpoint"),
        ({"kept": {"size": 3, "root": "00" * 32}}, "no checkpoint"),
        ({"reason": "because"}, "no order"),
        ({"more": 1}, "no order"),
    ],
)
def test_the_signer_takes_no_other_order(tmp_path, spoil, why):
    making.a_signer(tmp_path).held.close()
    empty = {"size": 0, "root": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
    order = {"v": 1, "origin": making.ORIGIN, "reason": "restore", "approval": str(uuid.uuid4()),
             "approvers": ["ab" * 16, "cd" * 16], "kept": empty}  # fmt: skip
    site = SimpleNamespace(directory=tmp_path)
    with pytest.raises(StateRefused, match=why):
        new_epoch(site, order | spoil)
    assert new_epoch(site, order).origin == "console.example/log/eu/2"
