"""Policies over one trace of conversations: what each gets served in time, on four workers of which one is slow.

A simulation in scaled time, the same for all policies (tests/accept/scaled.py): the router that decides, its scorer and
the index that says what is held are the real ones; the workers' prefill curves are declared (4K tokens in 40 ms, 128K
in 3 s; one of them four times that), and so is what they can keep. Goodput: requests whose first token came within the
objective, a second.
"""

import os
from pathlib import Path

import msgspec
import pytest

from catalog.trace import HASH_TOKENS, trace_read
from kvcore.policies import KINDS, built_in
from tests.accept.fleet import TRACE, say
from tests.accept.scaled import Chains, Request, Scaled
from tests.kvcore.workers import CURVE

pytestmark = [pytest.mark.accept, pytest.mark.timeout(1800)]
FULL = os.environ.get("KVC_ACCEPT", "") == "full"
REQUESTS = 2_000
SPEEDS = (2.0, 4.0, 6.0, 8.0) if FULL else (6.0,)
"""Seconds of the trace in one of the fleet's."""
OBJECTIVE_MS = 3_000.0
ROOM_BLOCKS = 4_096
"""Of 512 tokens, on each worker."""
SLOW = msgspec.structs.replace(CURVE, linear_ms=4 * CURVE.linear_ms, square_ms=4 * CURVE.square_ms)


def stream(speed: float) -> list[Request]:
    """The first requests of the trace of conversations, quicker."""
    chains = Chains()
    return [
        Request(r.at_ms / speed, r.input_length, chains.keys(r.hash_ids[: r.input_length // HASH_TOKENS]))
        for r in trace_read(Path(TRACE), limit=REQUESTS)
    ]


@pytest.mark.parametrize("speed", SPEEDS)
def test_conversation_trace_goodput_of_predicted_is_no_less_than_that_of_any_policy_less_1_percent(speed):
    goodput, hits = {}, {}
    for kind in KINDS:
        fleet = Scaled([CURVE, CURVE, CURVE, SLOW], built_in(kind), block_tokens=HASH_TOKENS, room_blocks=ROOM_BLOCKS)
        done = fleet.run(stream(speed))
        seconds = (done[-1].request.at_ms - done[0].request.at_ms) / 1000
        assert all(d.hit_tokens + d.computed_tokens == d.request.tokens for d in done)
        goodput[kind] = sum(d.ttft_ms <= OBJECTIVE_MS for d in done) / seconds
        hits[kind] = sum(d.hit_tokens for d in done) / sum(d.request.tokens for d in done)
    shown = {"per_s": goodput, "hit_share": hits}
    shown = {name: {k: round(v, 4) for k, v in of.items()} for name, of in shown.items()}
    say("routing-goodput", requests=REQUESTS, speed=speed, objective_ms=OBJECTIVE_MS, **shown)
    for kind, reached in goodput.items():
        assert goodput["predicted"] >= 0.99 * reached, kind
