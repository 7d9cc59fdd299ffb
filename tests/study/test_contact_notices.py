"""Notices of contact traces that messages do not fit."""

from __future__ import annotations

import pytest
from study_scenarios import DENSE, small

from edgesim.assembly.equipment import Links
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.study.iteration import iteration_costs
from edgesim.study.notices import contacts
from edgesim.study.notices.contacts import contact_notices

BOARD = "fleet.devices=[{profile: raspberry-pi-4b, count: 3}]"


def said(folder, rows, *settings, undirected="true", rounds=20, seconds=10):
    path = folder / "contacts.csv"
    path.write_text("\n".join(["time,source,target,duration", *rows]) + "\n")
    graph = (
        f"topology={{kind: trace, path: {path}, seconds_per_round: {seconds}, "
        f"undirected: {undirected}}}"
    )
    length = ("training.epochs=null", f"training.rounds={rounds}", "evaluation={}")
    scenario = small(folder, BOARD, graph, DENSE, *length, *settings)
    return scenario, contact_notices(studied_scenario(scenario), rounds)


def test_a_trace_that_messages_fit_has_no_notice(tmp_path):
    assert said(tmp_path, ["0,0,1,20", "30,1,2,10"])[1] == []


def test_rounds_that_end_after_their_seconds_are_told_with_how_much(tmp_path):
    """Two messages share a half-duplex radio; the first round of 10 s takes as long as both."""
    slow = "network.bandwidth_mbps=0.1"
    scenario, (late,) = said(tmp_path, ["0,0,1,10", "50,1,2,10"], slow)
    devices = iteration_costs(scenario).steady_state.devices
    message_s = max(device.air_s for device in devices) * 20 / 2
    late_s = max(device.most_late_s for device in devices)
    assert late_s == pytest.approx(2 * message_s - 10, rel=0.01)
    assert late.startswith(
        f"topology: rounds end up to {late_s:.4g} s after the 10 s of the contact"
    )
    assert "\n" not in late


@pytest.mark.parametrize(
    ("settings", "seconds", "remedy"),
    [
        (
            ("network.bandwidth_mbps=0.1",),
            10,
            "sending takes most of the time: send less (gossip.compressor) or over faster links",
        ),
        (
            ("network.latency_ms=0", "gossip.compressor={kind: top_k, keep: 0.001}"),
            "0.00001",
            "computing takes most of the time: choose faster boards (fleet) or smaller steps",
        ),
        (
            ("fleet.duty_cycle={period_s: 90, awake_s: 1}",),
            10,
            "sleep takes most of the time: let devices be awake for longer (fleet.duty_cycle)",
        ),
        (
            ("network.latency_ms=30000",),
            10,
            "latency takes most of the time: choose links with less of it (network.latency_ms)",
        ),
    ],
)
def test_late_rounds_have_the_remedy_of_what_takes_their_time(tmp_path, settings, seconds, remedy):
    """Also where later rounds have caught up."""
    late = said(tmp_path, ["0,0,1,10", "0,1,2,10"], *settings, seconds=seconds)[1][0]
    assert late.endswith(f"than the trace says; {remedy}, or choose fleet.pace: free")


def test_at_free_pace_and_without_profiles_there_are_no_late_rounds(tmp_path):
    for other in (("fleet.pace=free", "network.bandwidth_mbps=0.1"), ("fleet.devices=3",)):
        assert said(tmp_path, ["0,0,1,10", "50,1,2,10"], *other)[1] == []


@pytest.mark.parametrize("pace", ["lockstep", "free"])
def test_contacts_that_are_too_short_for_a_message_are_counted(tmp_path, pace):
    """A message takes 3.87 s. Both ways are one contact; so are lines that overlap or touch."""
    rows = ["0,0,1,3", "2,0,1,1", "3,0,1,2", "20,0,1,3.5", "40,1,2,1", "60,1,2,9"]
    setting = (f"fleet.pace={pace}", "network.bandwidth_mbps=0.2")
    _, (short,) = said(tmp_path, rows, *setting)
    assert short.startswith(
        "topology: 2 of 4 contacts last less than a message needs on its link (3.87 s), and carry "
        "it all the same"
    )


def test_ways_with_contacts_of_their_own_count_each(tmp_path):
    rows = ["0,0,1,3", "0,1,0,5", "20,1,2,5", "20,2,1,5"]
    _, (short,) = said(tmp_path, rows, "network.bandwidth_mbps=0.2", undirected="false")
    assert short.startswith("topology: 1 of 3 contacts lasts less")


def test_contacts_after_the_end_of_the_training_do_not_count(tmp_path):
    rows = ["0,0,1,3", "20,1,2,9", "199,0,1,1", "200,0,1,1", "500,0,1,1"]
    _, (short,) = said(tmp_path, rows, "network.bandwidth_mbps=0.2")
    assert short.startswith("topology: 2 of 3 contacts last less")


def test_links_of_the_same_figures_are_looked_up_once(tmp_path, monkeypatch):
    """A fleet of a thousand devices may have as many links as contacts."""
    made = []
    make = Links._make
    monkeypatch.setattr(Links, "_make", lambda own, peer: made.append(peer) or make(own, peer))
    monkeypatch.setattr(contacts, "_late_rounds", lambda *_: [])
    rows = ["0,0,1,9", "20,1,2,9", "40,0,2,9"]
    assert said(tmp_path, rows, "network.bandwidth_mbps=0.2")[1] == []
    assert len(made) == 1
