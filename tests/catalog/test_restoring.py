"""After a restore: what the nodes' journals know is fenced again before anything is answered."""

# ruff: noqa: F811

from datetime import UTC, datetime

import msgspec
import pytest
from django.core.management import CommandError, call_command

from catalog import restoring
from catalog.restoring import fences_compare
from kvconsole.infra.keystore import keystore
from kvconsole.infra.rest import Problem
from kvcore.messages import PROTOCOL, Command, Receipt, open_command, receipt_hash, seal
from routing.services import prefix_lookup
from tenants import whole
from tests.catalog.farnode import FarNode
from tests.catalog.fleet_fixtures import enrolled, running_signer, signer  # noqa: F401
from tests.tenants.making import a_model, a_namespace, a_tenant

pytestmark = pytest.mark.django_db(databases=["default", "tenant"])
NOW = datetime.now(UTC)


class Journalled(FarNode):
    """A node that says which fences its journal has; `off`: it does not answer."""

    def __init__(self, mood="well"):
        super().__init__(mood)
        self.fences, self.asked = {}, 0

    def answer(self, http, envelope):
        if self.mood == "off":
            http.close_connection = True
            return
        command = open_command(envelope, self._verify, node=self.node, now=datetime.now(UTC).timestamp())
        assert isinstance(command, Command), command
        self.asked += 1
        rest = sorted(ns for ns in self.fences if ns.hex() > command.args["after"])
        some = rest[: command.args["limit"]]
        detail = {
            "fences": [{"ns": ns.hex(), "min_gen": str(self.fences[ns])} for ns in some],
            "more": len(rest) > len(some),
        }
        receipt = Receipt(v=PROTOCOL, outcome="done", at=0.0, prev=self.prev, step=command.step, kind=command.kind,
                          node=self.node, detail=detail)  # fmt: skip
        self.prev = receipt_hash(receipt)
        self._send(http, 200, msgspec.json.encode(seal("receipt", receipt, self.key.sign, self.public)))


@pytest.fixture
def far():
    made = []

    def make(mood="well"):
        made.append(Journalled(mood))
        return made[-1]

    yield make
    for node in made:
        node.close()


@pytest.fixture(autouse=True)
def compared(settings):
    whole.forget()
    yield
    whole.forget()


def test_a_node_that_is_off_keeps_everything_closed_and_what_it_knows_is_fenced(enrolled, settings, monkeypatch):
    monkeypatch.setattr(restoring, "PAGE", 2)
    namespace = a_namespace(a_tenant(), a_model())
    digest = bytes(namespace.digest)
    settings.FENCES_COMPARED = True
    _, one = enrolled()
    two, off = enrolled(mood="off")
    one.fences = {digest: 2, **{bytes([n]) * 32: n for n in range(1, 5)}}
    off.fences = {digest: 5}
    keystore().mark_fence(2**40, "lost")  # the database is an older one
    found = fences_compare(now=NOW)
    assert found == (False, True, (two.name,))
    namespace.refresh_from_db()
    assert namespace.min_gen == 2
    with pytest.raises(Problem, match="goes on by itself"):
        prefix_lookup(principal=None, digest=digest, generation=1, group=0, keys=b"")
    with pytest.raises(CommandError, match=two.name):
        call_command("fences_replay", "--wait", "0")
    asked = one.asked
    assert asked == 3, "in pages, and once"
    off.mood = "well"
    assert fences_compare(now=NOW) == (True, True, ())
    assert one.asked == asked
    namespace.refresh_from_db()
    assert (namespace.min_gen, namespace.generation) == (5, 5)
    assert fences_compare(now=NOW) == (True, False, ())


def test_a_database_that_knows_all_asks_nobody(enrolled, settings):
    settings.FENCES_COMPARED = True
    _, side = enrolled()
    assert fences_compare(now=NOW) == (True, False, ())
    assert side.asked == 0
