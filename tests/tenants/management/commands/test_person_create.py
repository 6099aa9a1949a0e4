"""The first person of a console comes from the command line of its server."""

from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command

from tenants import services


@pytest.mark.django_db
def test_the_first_person_is_invited_from_the_command_line(capsys):
    for wrong in (["a b"], ["a", "--role", "root"], ["a", "--tenant", "nobody"]):
        with pytest.raises(CommandError):
            call_command("person_create", *wrong)
    call_command("person_create", "first", "--role", "operator", "--role", "approver")
    link = capsys.readouterr().out.strip()
    assert services.invited(invitation=link.rpartition("#")[2], now=datetime.now(UTC))
