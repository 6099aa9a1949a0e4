"""The signer as a process."""

import json
import stat
import time
import urllib.error
import urllib.request

import pytest
from django.core.management import CommandError, call_command

from audit.signer.app import BODY_BYTES
from tests.audit.signer.test_app import QUESTION, order
from tests.catalog.farnode import RunningSigner


def test_it_runs_without_a_database_and_answers_who_knows_the_token(tmp_path):
    running = RunningSigner(tmp_path)
    try:

        def ask(path, body=None, token=running.token):
            request = urllib.request.Request(running.url + path, body, {"Authorization": f"Bearer {token}"})
            try:
                with urllib.request.urlopen(request, timeout=5) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as e:
                with e:
                    return e.code, json.load(e)

        now = time.time()
        good = order(issued_at=now, expires_at=now + 60)
        assert ask("/v1/sign", good)[0] == 200
        assert ask("/v1/sign", order(kind="purge", issued_at=now, expires_at=now + 60))[0] == 403
        for token in ("", "x", running.token + "x"):
            assert ask("/v1/sign", good, token) == (401, {"code": "not-authenticated"})
            assert ask("/v1/public-key", None, token)[0] == 401
        assert ask("/v1/prove", json.dumps(QUESTION).encode())[0] == 200
        assert ask("/v1/prove", json.dumps(QUESTION).encode(), "x")[0] == 401
        assert ask("/v1/sign", b"x" * (BODY_BYTES + 1))[0] == 413
        assert ask("/v1/other")[0] == 404
        public = ask("/v1/public-key")[1]["public_key"]
        assert (tmp_path / "command.key.pub").read_text().strip() == public
        assert stat.S_IMODE((tmp_path / "command.key").stat().st_mode) == 0o600
    finally:
        running.close()


@pytest.mark.parametrize(("token", "file"), [("", "x"), ("short", "x"), ("t" * 40, "")])
def test_it_does_not_start_without_token_and_key(settings, token, file):
    settings.SIGNER_TOKEN, settings.COMMAND_KEY_FILE = token, file
    with pytest.raises(CommandError):
        call_command("signer")
