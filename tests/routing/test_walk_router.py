"""Real processes: a router decides, explains, records; killed and begun again; without PostgreSQL it answers on."""

import pytest

from tests.routing.walking import Routed

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def test_a_decision_from_the_question_to_the_record(console):
    walk = Routed(console)
    walk.drive("n1", [1])
    keys = walk.chain(16)
    body = {"block_keys": keys.hex(), "key_bytes": 16, "prompt_tokens": 16 * 16 + 5}
    answer = walk.until(lambda a: a["overlap_tokens"] == 256, **body)
    assert answer["prefill"]["node"] == "n1"
    assert answer["plan"][0]["source"] == "local"
    assert (answer["plan"][0]["from_block"], answer["plan"][0]["to_block"]) == (0, 16)
    assert answer["cache_salt"]
    assert answer["ticket"]["node"] == walk.nodes["n1"]["id"]
    assert answer["index"]["mode"] == "live"
    assert abs(sum(answer["predicted"]["terms"].values()) - answer["predicted"]["ttft_ms"]) < 1e-6
    member = walk.route("member", **body).json()
    assert member["cache_salt"] is None
    assert member["overlap_tokens"] == 256
