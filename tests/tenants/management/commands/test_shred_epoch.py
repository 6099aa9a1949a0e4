"""The command that ends a shred epoch: once, however young it is, and not where there are none."""

import pytest
from django.core.management import CommandError, call_command

from kvconsole.infra.keystore import keystore

pytestmark = pytest.mark.django_db


def test_it_ends_the_epoch_and_says_how_many_secrets_went_over(settings, tmp_path, capsys):
    with pytest.raises(CommandError):
        call_command("shred_epoch")
    settings.SHRED_DIR = str(tmp_path / "epochs")
    for name in ("a", "b"):
        keystore().ensure(name)
    call_command("shred_epoch")
    assert capsys.readouterr().out.startswith("3 secrets went over.")  # and that which names who ended it
    assert keystore().epochs.numbers() == [2]
