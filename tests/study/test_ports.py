"""What is said of full-duplex ports that receive more at once than their rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.scenario import load_scenario
from edgesim.study.notices.ports import port_notices

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"


def says(*settings: str) -> list[str]:
    """Of eight boards with gigabit Ethernet."""
    complete = ("fleet.profile=jetson-nano", "topology={kind: complete}")
    return port_notices(studied_scenario(load_scenario(QUICKSTART, (*complete, *settings))))


def test_ports_that_many_send_to_at_their_full_rate_are_named():
    (text,) = says()
    assert text.startswith(
        "network: device 0 receives up to 7 messages at once, at 7 times the rate"
    )
    assert "device 1 receives" in text
    assert "device 2" not in text
    assert "; so do 6 more: times are too short; network.half_duplex: true" in text


def test_one_server_is_named():
    (text,) = says("topology={kind: star}", "gossip={algorithm: fedavg, local_steps: 2}")
    assert text.startswith("network: device 0 receives up to 7 messages at once, at 7 times")
    assert "device 1" not in text


@pytest.mark.parametrize(
    "settings",
    [
        ("network.bandwidth_mbps=100",),
        ("network.half_duplex=true",),
        ("topology={kind: ring}",),
        ("fleet.profile=raspberry-pi-4b",),
        ("fleet.profile=null",),
    ],
    ids=["slow links", "one by one", "few senders", "radios", "no clocks"],
)
def test_where_a_port_is_as_fast_as_its_links_nothing_is_said(settings):
    assert says(*settings) == []
