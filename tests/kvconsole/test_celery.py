"""The task list is closed, and what beat sends exists."""

from kvconsole.celery import TASKS, app


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
