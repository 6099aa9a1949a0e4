"""What routing keeps of its own: how far each process that answers look-ups has applied fences."""

from django.db import models


class IndexLease(models.Model):
    """One process with an index. Until `until` it may answer from it, and has applied all fences up to `fence_seq`.

    A fence is in force for look-ups once every row has reached it or is over.
    """

    name = models.TextField(primary_key=True)
    fence_seq = models.BigIntegerField()
    seq = models.BigIntegerField()
    mode = models.TextField()
    until = models.DateTimeField()
