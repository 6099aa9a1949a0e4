"""Slots are taken in turn, and the wait that is told is the wait that comes."""

import asyncio
import time

import pytest

from nodeagent.turns import Turns


def test_one_at_a_time_in_order():
    async def main():
        turns, order, most = Turns(1), [], 0

        async def work(n):
            nonlocal most
            async with turns.turn(5.0):
                most = max(most, turns.running)
                order.append(n)
                await asyncio.sleep(0.005)

        await asyncio.gather(*(work(n) for n in range(6)))
        return order, most, turns.waiting, turns.running

    assert asyncio.run(main()) == ([0, 1, 2, 3, 4, 5], 1, 0, 0)


def test_the_wait_is_what_is_left_of_the_running_ones_and_all_of_the_line():
    now = [100.0]

    async def main():
        turns = Turns(2, clock=lambda: now[0])
        assert turns.wait_ms() == 0
        stop = asyncio.Event()

        async def work(ms):
            async with turns.turn(ms):
                await stop.wait()

        tasks = [asyncio.create_task(work(ms)) for ms in (100.0, 300.0, 50.0)]
        await asyncio.sleep(0)
        now[0] += 0.040
        assert (turns.running, turns.waiting) == (2, 1)
        assert turns.wait_ms() == pytest.approx(60 + 50)
        now[0] += 1.0
        assert turns.wait_ms() == pytest.approx(0)  # one that takes longer than it said is expected to end any moment
        stop.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_who_is_cancelled_leaves_the_line_and_holds_nothing():
    async def main():
        turns = Turns(1)

        async def work():
            async with turns.turn(1.0):
                await asyncio.sleep(10)

        first, second = asyncio.create_task(work()), asyncio.create_task(work())
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert turns.waiting == 0
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        began = time.monotonic()
        async with turns.turn(1.0):
            assert turns.running == 1
        assert time.monotonic() - began < 0.5
        return turns.running

    assert asyncio.run(main()) == 0
