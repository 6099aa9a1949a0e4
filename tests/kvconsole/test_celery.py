"""The task list is closed, and what beat sends exists."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import redis
from celery import Celery
from celery.apps.beat import Beat
from celery.signals import after_task_publish, before_task_publish

from kvconsole.celery import TASKS, app, send
from kvconsole.embedded import Valkey
from tests.architecture.tree import CLONE


def test_only_named_modules_are_imported() -> None:
    assert set(app.conf.imports) <= set(TASKS)
    assert "catalog.tasks" in app.conf.imports


def test_beat_sends_tasks_that_exist_and_expire() -> None:
    app.loader.import_default_modules()
    for entry in app.conf.beat_schedule.values():
        assert entry["task"] in app.tasks
        assert entry["options"]["expires"] >= entry["schedule"]


def test_messages_carry_names_and_ids_only() -> None:
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_serializer == "json"
    assert app.conf.task_acks_late
    assert app.conf.task_ignore_result
    assert app.conf.result_backend is None
    assert not app.conf.worker_enable_remote_control


def test_what_is_sent_reaches_our_broker_with_name_and_id(valkey: Valkey) -> None:
    with redis.Redis.from_url(valkey.url) as broker, app.connection_for_write(url=valkey.url) as connection:
        app.send_task("catalog.command_send", args=["an-id"], connection=connection, ignore_result=True)
        message = json.loads(broker.lpop("kvc-celery:celery"))
    assert message["headers"]["task"] == "catalog.command_send"
    assert message["headers"]["argsrepr"] in ("['an-id']", "('an-id',)")


def test_sending_is_named_in_settings() -> None:
    from django.conf import settings
    from django.utils.module_loading import import_string

    assert import_string(settings.TASK_SENDER) is send


def test_beat_that_is_told_to_end_finishes_what_it_sends(tmp_path: Path) -> None:
    """It ends without a word, wherever the signal finds it."""
    other, sent = Celery("other", broker="memory://", set_as_current=False), []
    other.conf.beat_schedule = {"often": {"task": "x", "schedule": 0.01}}

    def told(**_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def done(**_: object) -> None:
        sent.append(True)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    before_task_publish.connect(told)
    after_task_publish.connect(done)
    try:
        Beat(app=other, schedule=str(tmp_path / "beat"), quiet=True).start_scheduler()
    finally:
        before_task_publish.disconnect(told)
        after_task_publish.disconnect(done)
        for number, handler in before.items():
            signal.signal(number, handler)
    assert sent == [True]


def test_a_worker_without_a_key_store_does_not_start(valkey: Valkey) -> None:
    """It could write no audit event: better seen at once than at the first task."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("KVC_", "DJANGO_"))}
    env |= {"KVC_ENV": "test", "KVC_VALKEY_URL": valkey.url}
    command = [sys.executable, "-W", "ignore", "-m", "celery", "--app", "kvconsole", "worker", "--pool", "solo"]
    done = subprocess.run(command, env=env, cwd=CLONE, capture_output=True, text=True, timeout=60)
    assert done.returncode
    assert "KVC_KEYSTORE_DIR" in done.stderr
