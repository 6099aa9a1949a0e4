"""Celery: wakes people up. A message holds a task's name and an id; the task reads its row and ignores what is not due.

The list of tasks is closed: what is not in a module named here is refused. This is the only place that imports tasks.
"""

import importlib.util
import os
import signal
from typing import Any

from celery import Celery  # type: ignore[import-untyped]
from celery.signals import beat_init, setup_logging, worker_init  # type: ignore[import-untyped]
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", f"kvconsole.settings.{os.environ.get('KVC_ENV', 'dev')}")

TASKS = ("tenants.tasks", "audit.tasks", "catalog.tasks", "routing.tasks")

app = Celery("kvconsole")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.imports = [name for name in TASKS if importlib.util.find_spec(name)]
app.conf.worker_enable_remote_control = False  # who has the broker tells no worker to end or to forget a task
app.conf.beat_schedule = {
    "nodes are as they were heard": {"task": "catalog.nodes_reconcile", "schedule": 1.0, "options": {"expires": 5}},
    "what nodes did not take is told": {"task": "catalog.attempts_tell", "schedule": 2.0, "options": {"expires": 10}},
    "bytes of epochs": {"task": "catalog.epoch_bytes_tell", "schedule": 15.0, "options": {"expires": 30}},
    "share groups end": {"task": "tenants.share_groups_sweep", "schedule": 1.0, "options": {"expires": 5}},
    "shred epochs end": {"task": "tenants.shred_epoch_turn", "schedule": 300.0, "options": {"expires": 600}},
    "sessions are forgotten": {"task": "tenants.sessions_sweep", "schedule": 60.0, "options": {"expires": 120}},
    "answers are forgotten": {"task": "audit.idempotency_sweep", "schedule": 60.0, "options": {"expires": 120}},
    "what waited on disk is told": {"task": "audit.spool_take_in", "schedule": 10.0, "options": {"expires": 20}},
    "approved retention": {"task": "audit.retentions_due", "schedule": 60.0, "options": {"expires": 120}},
    "exports and verifications go on": {"task": "audit.jobs_due", "schedule": 5.0, "options": {"expires": 20}},
    "old exports go": {"task": "audit.jobs_sweep", "schedule": 300.0, "options": {"expires": 600}},
    "webhooks are told": {"task": "audit.webhooks_sweep", "schedule": 2.0, "options": {"expires": 10}},
    "what came back goes": {"task": "catalog.operations_sweep", "schedule": 5.0, "options": {"expires": 15}},
    "what rules ask for": {"task": "catalog.rules_due", "schedule": 4.0, "options": {"expires": 10}},
    "operations go on": {"task": "catalog.reconcile_due", "schedule": 1.0, "options": {"expires": 3}},
    "hits that were lost": {"task": "routing.lost_hits_tally", "schedule": 5.0, "options": {"expires": 10}},
    "what was announced came": {"task": "routing.announcements_judge", "schedule": 5.0, "options": {"expires": 10}},
    "what was announced is fetched": {"task": "routing.wishes_serve", "schedule": 1.0, "options": {"expires": 3}},
    "orders nobody was woken for": {"task": "catalog.commands_due", "schedule": 2.0, "options": {"expires": 10}},
}


@setup_logging.connect  # type: ignore[untyped-decorator]
def keep_logging(**_: object) -> None:
    """Celery leaves logging as Django set it up."""


@worker_init.connect  # type: ignore[untyped-decorator]
def refuse_without_keys(**_: object) -> None:
    """A worker that could write no audit event does not start; beat, which writes none, needs no keys."""
    if not settings.KEYSTORE_DIR:
        raise SystemExit("KVC_KEYSTORE_DIR (or KVC_KEYSTORE_DIR_FILE) is not set")


@beat_init.connect  # type: ignore[untyped-decorator]
def end_between_two_looks(sender: Any, **_: object) -> None:
    """Beat that is told to end finishes what it sends and writes, instead of ending in the middle of it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sender.stop())


def send(name: str, *arguments: str) -> None:
    """A worker is woken for this task. A hint: a sweep finds what it should have found, so nothing is tried again.

    Named in settings (`TASK_SENDER`), so that a process that sends nothing does not load Celery.
    """
    app.send_task(name, args=arguments, retry=False, ignore_result=True)
