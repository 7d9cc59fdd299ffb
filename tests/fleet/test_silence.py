"""A busy radio is blamed for rounds in which a device had somebody to send to, for no others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from small_fleets import train

from edgesim.fleet.recording.closing_warnings import silence_warning
from topologies import (
    Intermittent,
    Static,
    TimedChurn,
    build_timed_churn,
    column_stochastic,
    ring,
)
from topologies.traces import ContactTrace

RING = Static(column_stochastic(ring(4)))
ALL_THERE = TimedChurn(4)


def rounds_of_device_0(sent, **columns):
    """One round a second; its step has ended a tenth of a second before it."""
    number = np.arange(len(sent))
    columns = {"loss": np.ones(len(sent)), "virtual_wait_s": np.zeros(len(sent)), **columns}
    return pa.table(
        {
            "device": np.zeros(len(sent), np.int32),
            "round": number,
            "messages_sent": np.array(sent, np.int32),
            "virtual_time_s": number + 0.9 + columns["virtual_wait_s"],
            **columns,
        }
    )


@pytest.mark.parametrize(("steps", "num_sent"), [(1, 20), (1, 19), (4, 5), (4, 4)])
def test_who_seldom_sends_is_told_of(steps, num_sent):
    """Of 40 rounds, or with local steps of 10, half are enough."""
    schedule = Intermittent(RING, steps) if steps > 1 else RING
    sent = np.zeros(40, np.int32)
    sent[steps - 1 :: steps][:num_sent] = 2
    warning = silence_warning(rounds_of_device_0(sent), schedule, ALL_THERE, {})
    is_enough = num_sent * steps >= 20
    assert (warning is None) == is_enough
    if warning:
        assert f"in {num_sent} of {40 // steps} rounds with an exchange" in warning


@pytest.mark.parametrize(("num_sent", "said"), [(5, None), (3, None), (2, "in 2 of 5 rounds with")])
def test_rounds_without_a_contact_do_not_count(num_sent, said):
    """By the trace device 0 meets device 1 from second 10 to 15, in rounds of half a second."""
    trace = ContactTrace(4, {(0, 1): (20, 30), (1, 2): (0, 80)}, seconds_per_round=0.5)
    sent = np.zeros(40)
    sent[10 : 10 + num_sent] = 1
    rounds = rounds_of_device_0(sent)
    warning = silence_warning(rounds, trace, ALL_THERE, {})
    assert said in warning if said else warning is None


def test_a_last_round_is_placed_where_its_step_has_ended():
    """It may wait for messages long after a contact."""
    trace = ContactTrace(4, {(0, 1): (0, 2)}, seconds_per_round=1.0)
    rounds = rounds_of_device_0([0, 0], virtual_wait_s=np.array([0.0, 5.0]))
    assert "in 0 of 2 rounds with" in silence_warning(rounds, trace, ALL_THERE, {})


def away(from_s, until_s):
    """Both neighbours of device 0 are absent."""
    spans = [{"device": device, "from_s": from_s, "until_s": until_s} for device in (1, 3)]
    return build_timed_churn(4, seed=1, absent=spans)


@pytest.mark.parametrize(
    ("churn", "dead_s", "more"),
    [
        (away(6.0, 46.0), {}, {}),
        (ALL_THERE, {1: 6.0, 3: 5.5}, {}),
        (away(6.0, 20.0), {1: 20.0, 3: 15.0}, {}),
        (ALL_THERE, {}, {"loss": np.repeat([1.0, np.nan], [6, 34])}),
    ],
)
def test_rounds_without_a_receiver_or_without_a_model_do_not_count(churn, dead_s, more):
    """It has both in the first six of its rounds."""
    for num_sent, said in ((2, "in 2 of 6 rounds with"), (4, None)):
        rounds = rounds_of_device_0(np.arange(40) < num_sent, **more)
        warning = silence_warning(rounds, RING, churn, dead_s)
        assert said in warning if said else warning is None


@pytest.mark.parametrize(("keep", "is_told"), [(0.001, False), (0.9, True)])
def test_a_fleet_with_few_contacts_is_told_of_its_radios_where_they_are_busy(
    tmp_path, keep, is_told
):
    trace = tmp_path / "trace.csv"
    contacts = "".join(f"0.02,{one},{(one + 1) % 4},0.004\n" for one in range(4))
    trace.write_text(f"time,source,target,duration\n{contacts}")
    compressor = f"compressor: {{kind: top_k, keep: {keep}}}"
    run = train(
        tmp_path,
        "run",
        "fleet={devices: 4, profile: raspberry-pi-4b, pace: free}",
        f"topology={{kind: trace, path: {trace}, seconds_per_round: 0.001, undirected: true}}",
        f"gossip={{algorithm: choco, averaging_rate: 0.2, {compressor}}}",
        "training={rounds: 60, optimizer: {lr: 0.02}}",
        "data.partition={kind: iid}",
        inline=True,
    )
    assert 0 < run.summary["messages_sent"] < 120
    assert any("busy radio" in said for said in run.summary["warnings"]) == is_told
