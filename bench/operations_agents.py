"""Agents of several nodes in one process: `python -m bench.operations_agents DIR …`. Started by `operations_fleet`.

Each is a whole agent with its own directory, key, journal, boot and port, on one event loop. Two cores cannot run 64
interpreters; what an agent costs beside others in its process is measured there too.
"""

import asyncio
import signal
import sys
from pathlib import Path

from nodeagent.agent import Agent
from nodeagent.config import Home
from nodeagent.reporter import begin_log
from nodeagent.server import serve
from nodeagent.tiers.memory import wipe_freed


async def work(directories: list[str]) -> None:
    """Serves until the process is told to end."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await asyncio.gather(*(serve(Agent(Home(Path(path))), stop) for path in directories))


if __name__ == "__main__":
    begin_log()
    wipe_freed()
    asyncio.run(work(sys.argv[1:]))
