import pytest

from kvcore.messages import Command
from nodeagent.jobs import Job, Stopped


def command(until):
    return Command(v=1, step="s", kind="erase", node="n", order_hash="", issued_at=0.0, expires_at=until)


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
    assert job.running == ("s", 5, 10)


def test_a_job_that_is_told_to_stop_ends_its_sleep():
    job = Job(command(2e9), lambda: 0.0)
    job.stop()
    with pytest.raises(Stopped):
        job.sleep(60)
