"""Load is told when it changed, and again when it is old; the console gets it in heartbeats, also beside frames."""

import asyncio

from kvcore.loads import WorkerLoad, load_of
from nodeagent.load import LoadReport
from nodeagent.meters import Meters
from nodeagent.turns import Turns
from tests.nodeagent.conftest import eventually
from tests.nodeagent.test_agent import drive, results


def test_it_is_told_when_it_changed_or_is_old():
    now = [0.0]

    async def main():
        prefill, decode = Turns(1), Turns(2)
        report = LoadReport("reference", Meters((0.01, 0.0)), prefill, decode, clock=lambda: now[0])
        (first,) = report.due()
        assert isinstance(load_of(first), WorkerLoad)
        assert first["queue_ms"] == 0
        assert list(first["curve"]) == [0.0, 0.01, 0.0, 0]
        assert "first_decode_ms" not in first  # unknown is not zero
        assert report.due() == []
        async with prefill.turn(500.0):
            (busy,) = report.due()
            assert busy["running"] == 1
            assert 400 < busy["queue_ms"] <= 500
            assert busy["number"] > first["number"]
        now[0] += 0.1
        assert len(report.due()) == 1
        assert report.due() == []
        now[0] += 2.0
        assert len(report.due()) == 1

    asyncio.run(main())


def test_the_console_gets_it_while_frames_flow_and_while_not(far, joined, running):
    ns = far.namespace()
    loop = running(joined())
    for i in range(10):
        results(drive(loop, far, ns, 4, seed=i))
    eventually(lambda: sum(len(b.load) for b in far.beats) >= 3)
    loads = [load_of(entry) for b in far.beats for entry in b.load]
    assert all(isinstance(x, WorkerLoad) and x.source == "reference" and x.emulated for x in loads)
    assert [x.number for x in loads] == sorted({x.number for x in loads})
