"""Decides the table of workers' loads: the last report of each source and rank. No history; routers read it."""

from django.db import models


class WorkerLoad(models.Model):
    """What a worker last reported of its queues and of what it has measured (`kvcore.loads.WorkerLoad`).

    `at` is the writer's time of the measurement: the report's age is counted from there, and one that is old is scored
    with its age. No row = never reported, which is unknown and not idle.
    """

    source = models.IntegerField(primary_key=True)
    dp_rank = models.IntegerField()
    at = models.DateTimeField()
    body = models.JSONField()
