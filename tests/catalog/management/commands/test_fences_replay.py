"""`manage.py fences_replay`: what only somebody may decide."""

# ruff: noqa: F811

import pytest
from django.core.management import call_command

from audit.models import Event
from audit.registry import TYPES
from kvconsole.infra.keystore import keystore
from tenants import whole
from tests.catalog.fleet_fixtures import enrolled, running_signer, signer  # noqa: F401
from tests.catalog.test_restoring import compared, far  # noqa: F401

pytestmark = pytest.mark.django_db(databases=["default", "tenant"])


def test_somebody_may_go_on_without_a_node_and_that_is_an_event(enrolled, settings, capsys):
    settings.FENCES_COMPARED = True
    node, _ = enrolled(mood="off")
    keystore().mark_fence(2**40, "lost")
    call_command("fences_replay", "--without", node.name)
    assert "whole" in capsys.readouterr().out
    assert Event.objects.filter(event_type=TYPES["fences.replayed"].number).count() == 1
    assert whole.fences_whole()
