import threading
import time

import pytest

from kvcore.messages import Command
from nodeagent.jobs import Job, Stopped


def command(until, rate=None):
    args = {"rate_bytes_per_s": rate}
    return Command(v=1, step="s", kind="erase", node="n", order_hash="", issued_at=0.0, expires_at=until, args=args)


def test_a_job_is_wanted_as_long_as_its_newest_command_holds():
    now = [100.0]
    job = Job(command(110.0), lambda: now[0])
    job.check()
    now[0] = 111.0
    with pytest.raises(Stopped):
        job.check()
    job.renew(command(120.0))
    job.sleep(0)
    job.renew(command(90.0))  # an older one takes nothing back
    job.check()
    job.tell(5, 10)
    assert job.running == ("s", 5, 10, None)


def test_a_job_that_is_told_to_stop_ends_its_sleep():
    job = Job(command(2e9), lambda: 0.0)
    job.stop()
    with pytest.raises(Stopped):
        job.sleep(60)


def test_a_new_rate_counts_at_once():
    job, began = Job(command(2e9, rate=10), lambda: 0.0), time.monotonic()
    threading.Timer(0.1, job.renew, [command(2e9, rate=10**9)]).start()
    job.pace(1000, began, 0.0)  # at the old rate that were 100 s
    assert 0.1 <= time.monotonic() - began < 10
    job.renew(command(2e9))
    job.pace(10**12, began, 0.0)
    job.renew(command(2e9, rate=1))
    job.stop()
    with pytest.raises(Stopped):
        job.pace(1000, time.monotonic(), 0.0)
