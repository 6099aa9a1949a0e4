"""Ports of ranks, and what an engine tells of them."""

import pytest

from nodeagent.config import ConfigError
from nodeagent.engines.endpoints import Endpoint, discovered, endpoints_of, with_port


def test_ports_of_ranks() -> None:
    assert with_port("tcp://h:5557", 0) == "tcp://h:5557"
    assert with_port("tcp://h:5557", 3) == "tcp://h:5560"
    assert with_port("inproc://x", 2) == "inproc://x_dp2"
    ends = endpoints_of("tcp://h:5557", "tcp://h:6000", ranks=2, bind=False)
    assert [(e.rank, e.engine, e.replay) for e in ends] == [
        (0, "tcp://h:5557", "tcp://h:6000"),
        (1, "tcp://h:5558", "tcp://h:6001"),
    ]
    assert endpoints_of("tcp://h:1", None, ranks=1, bind=True)[0].replay is None


def test_discovery() -> None:
    one = {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://0.0.0.0:5558", "topic": "kv"}
    two = {"endpoint": "tcp://10.0.0.2:5558", "replay_endpoint": None}
    ends = discovered({"1": two, "0": one}, "engine-host")
    assert ends == [
        Endpoint(rank=0, engine="tcp://engine-host:5557", replay="tcp://engine-host:5558", topic="kv"),
        Endpoint(rank=1, engine="tcp://10.0.0.2:5558"),
    ]
    for bad in ({}, {"x": one}, {"0": 5}, {"1": one}, {"0": {}}):
        with pytest.raises(ConfigError):
            discovered(bad, "h")
