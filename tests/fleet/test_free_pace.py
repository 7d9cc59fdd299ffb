"""Fleets at free pace: the same bits however they are packed, staleness, mass, horizons."""

from __future__ import annotations

from math import nan

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from small_fleets import assert_same_bits, prepared, train
from thorough import each_once

from edgesim.errors import ScenarioError
from edgesim.fleet.recording.closing_warnings import overdraft_warning

FREE = (
    "fleet.devices=[{profile: raspberry-pi-5, count: 3}, {profile: raspberry-pi-4b}]",
    "fleet.pace=free",
)
LONG = ("training.rounds=24", "training.optimizer.lr=0.01")
STILL = ("training.optimizer.lr=1.0e-30", "training.rounds=12")
GOSSIPS = {
    "choco": "gossip={algorithm: choco, averaging_rate: 0.3, compressor: {kind: top_k, keep: 0.2}}",
    "choco numerator": (
        "gossip={algorithm: choco_numerator, averaging_rate: 0.3, compressor: {kind: top_k, keep: "
        "0.2}}"
    ),
    "deepsqueeze": (
        "gossip={algorithm: deepsqueeze, averaging_rate: 0.3, compressor: {kind: random_k, keep: "
        "0.2}}"
    ),
    "gradient push": "gossip={algorithm: gradient_push, averaging_rate: 0.5}",
    "local steps": "gossip={algorithm: gradient_push, averaging_rate: 0.5, local_steps: 3}",
}


@pytest.fixture(scope="module")
def inline_run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("free"), "run", *FREE, *LONG, inline=True)


@pytest.mark.ray
@pytest.mark.parametrize("per_actor", ["1", "3"])
def test_packing_does_not_change_a_bit_at_free_pace(tmp_path, inline_run, started_ray, per_actor):
    packed = train(tmp_path, "run", *FREE, *LONG, f"fleet.devices_per_actor={per_actor}")
    assert_same_bits(inline_run, packed)


@pytest.mark.parametrize(("gossip", "half_duplex"), each_once(GOSSIPS, ["false", "true"]))
def test_no_mass_stays_on_the_road(tmp_path, gossip, half_duplex):
    """After the last step all that was sent is taken in: sum(u) is the number of devices."""
    settings = (GOSSIPS[gossip], f"network={{half_duplex: {half_duplex}, latency_ms: 30}}")
    run = train(tmp_path, "run", *FREE, *STILL, *settings, inline=True)
    ends = [dict(np.load(path)) for path in sorted((run.path / "models").glob("*.npz"))]
    assert sum(float(end["u"]) for end in ends) == pytest.approx(4, abs=1e-12)
    first = prepared(tmp_path)
    from edgesim.assembly.build import PLAIN, make_flat_model

    x_0 = make_flat_model(first.scenario, first.data, PLAIN).parameters.double().numpy()
    total = sum(end["x"].astype(np.float64) for end in ends)
    np.testing.assert_allclose(total, 4 * x_0, atol=2e-5)
    messages = pd.read_parquet(run.path / "messages.parquet")
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    assert rounds["messages_absorbed"].sum() == len(messages) > 0
    if gossip == "local steps":
        assert (messages["round"] % 3 == 2).all()
    assert rounds["received_bytes"].sum() == messages["bytes"].sum()


def test_dcd_keeps_its_copies_equal_where_a_busy_radio_skips_rounds(tmp_path):
    """A step of the public copy that nobody hears of would part the copies: the loss tells."""
    run = train(
        tmp_path,
        "run",
        "fleet.devices=[{profile: raspberry-pi-4b, count: 4}]",
        "fleet.pace=free",
        "topology.kind=ring",
        "training={rounds: 40, optimizer: {lr: 0.02}}",
        "gossip={algorithm: dcd, compressor: {kind: top_k, keep: 0.3}}",
        "network={bandwidth_mbps: 2}",
        "data.partition={kind: iid}",
        inline=True,
    )
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    assert (rounds["messages_sent"] == 0).mean() > 0.5
    loss = rounds.groupby("round")["loss"].mean()
    assert loss.iloc[-5:].mean() < 0.7 * loss.iloc[:5].mean()
    (warning,) = run.summary["warnings"]
    num_sent = (rounds["messages_sent"] > 0).sum()
    said = f"devices sent messages in {num_sent} of 160 rounds with an exchange, since a busy radio"
    assert said in warning


def test_batteries_that_were_overdrawn_are_told_of():
    rows = [(0, 5.0), (1, 2.0), (2, nan), (0, 1.0), (1, -0.25), (2, nan)]
    names = ["device", "charge_left_j"]
    rounds = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    assert overdraft_warning(rounds, ()) == (
        "device 1 by 0.25 J spent more than the battery held; a real device would have ended "
        "sooner: raise battery_wh"
    )
    assert overdraft_warning(rounds.slice(0, 4), ()) is None
    assert overdraft_warning(rounds.drop_columns("charge_left_j"), ()) is None
    many = pa.table(
        {"device": list(range(6)), "charge_left_j": [-1.0, -2.0, -3.0, -4.0, -5.0, 0.0]}
    )
    text = overdraft_warning(many, tuple("abcdef"))
    assert text.startswith("device 4 (e) by 5 J, device 3 (d) by 4 J, ")
    assert "device 1 (b) by 2 J, and 1 more spent more" in text


def test_nobody_waits_and_the_slow_device_is_behind(inline_run):
    rounds = pd.read_parquet(inline_run.path / "rounds.parquet")
    last = rounds["round"].max()
    before_end = rounds[rounds["round"] < last]
    assert (before_end["virtual_wait_s"] == 0).all()
    ends = rounds[rounds["round"] == last - 1].set_index("device")["virtual_time_s"]
    assert ends[3] > 1.5 * ends[:2].max(), "a Raspberry Pi 4 is slower than a 5"
    assert "staleness_rounds" not in rounds, "rounds of unlike devices are no measure of age"
    assert (before_end["staleness_s"].dropna() > 0).all()


def test_messages_do_not_queue_up_over_a_link_that_is_slower_than_the_steps(inline_run):
    """A round that finds the radio still sending is a local step: no message is late for long."""
    messages = pd.read_parquet(inline_run.path / "messages.parquet")
    rounds = pd.read_parquet(inline_run.path / "rounds.parquet")
    quick = rounds[(rounds["device"] == 0) & (rounds["messages_sent"] == 0)]
    assert len(quick) > 5, "steps take a fraction of a message's time here"
    sent = messages[messages["device"] == 0].sort_values("round")
    on_air_s = sent["arrival_time_s"] - sent["departure_time_s"]
    assert (sent["departure_time_s"].diff().iloc[1:] >= on_air_s.iloc[:-1].to_numpy() - 1e-12).all()
    ends = rounds[rounds["device"] == 0].set_index("round")["virtual_time_s"]
    begins = ends.reindex(sent["round"] - 1).fillna(0).to_numpy()
    assert (sent["departure_time_s"] - begins < 2 * on_air_s.max()).all(), "a reception may end"


def test_messages_do_not_queue_up_at_a_radio_that_does_one_thing_at_a_time(tmp_path):
    """Nobody tells quick senders that a receiver's radio is busy; they leave it its time.

    Boards compute at an eighth to a quarter of their rates: ten steps to a message are enough.
    """
    run = train(
        tmp_path,
        "run",
        "fleet={pace: free, devices: [{profile: jetson-nano, fp32_gmacs_per_s: 30, "
        "memory_gbytes_per_s: 6, count: 2}, {profile: raspberry-pi-5, fp32_gmacs_per_s: 10, "
        "memory_gbytes_per_s: 2.5, count: 2}, "
        "{profile: raspberry-pi-zero-2w, duty_cycle: {period_s: 0.02, awake_s: 0.01}}]}",
        "topology.kind=ring",
        "network={half_duplex: true, latency_ms: 4, jitter_ms: 3, loss: 0.05}",
        "training={rounds: 2000, virtual_time_s: 0.15, optimizer: {lr: 0.02}}",
        "data={source: digits, train_samples: 1000, partition: {kind: iid}, batch_size: 64}",
        "evaluation={every_virtual_s: 0.05, samples: 20}",
        inline=True,
    )
    messages = pd.read_parquet(run.path / "messages.parquet")
    air_s = (messages["arrival_time_s"] - messages["departure_time_s"]).max()
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    rounds = rounds[rounds["round"] < rounds.groupby("device")["round"].transform("max")]
    assert (rounds["messages_sent"] == 0).any(), "steps are quicker than radios here"
    assert rounds["messages_absorbed"].sum() > 50
    early = rounds[rounds["virtual_time_s"] < 0.075]["staleness_s"].max()
    late = rounds[rounds["virtual_time_s"] >= 0.075]["staleness_s"].max()
    assert late < 1.5 * early
    assert late < 0.02 + 5 * air_s, "one sleep, and what a few messages take"


def test_a_sleep_after_the_end_changes_nothing(tmp_path):
    """Radios that share their time share that for which they are awake."""
    settings = (
        *FREE,
        "topology.kind=ring",
        "network={half_duplex: true}",
        "training={rounds: 60, optimizer: {lr: 0.02}}",
    )
    sleepless = train(tmp_path, "sleepless", *settings, inline=True)
    tired = "fleet.duty_cycle={period_s: 1000, awake_s: 100}"
    assert_same_bits(sleepless, train(tmp_path, "tired", *settings, tired, inline=True))


def test_who_sleeps_sends_as_much_in_awake_time_as_who_does_not(tmp_path):
    """All sleep at once, nine tenths of the time; steps and messages take awake time alone."""
    settings = (
        *FREE,
        "topology.kind=ring",
        "network={half_duplex: true}",
        "training={rounds: 200, optimizer: {lr: 0.02}}",
    )
    sent = {}
    for name, awake_s in (("sleepless", 0.2), ("tired", 0.02)):
        cycle = f"fleet.duty_cycle={{period_s: 0.2, awake_s: {awake_s}}}"
        run = train(tmp_path, name, *settings, cycle, inline=True)
        sent[name] = len(pd.read_parquet(run.path / "messages.parquet"))
    assert sent["tired"] == pytest.approx(sent["sleepless"], rel=0.1)


def test_a_horizon_in_virtual_time_ends_devices_after_rounds_of_their_own(tmp_path):
    run = train(
        tmp_path,
        "run",
        *FREE,
        "topology.kind=ring",
        "training={rounds: 500, virtual_time_s: 0.02, optimizer: {lr: 0.02}}",
        "evaluation={every_virtual_s: 0.005, samples: 20}",
        inline=True,
    )
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    ended = rounds.groupby("device")["round"].max()
    assert ended[3] < ended[0] < 499
    step_ends = rounds.groupby("device")["virtual_time_s"].nth(-2)
    assert (step_ends < 0.02 + 0.005).all()
    evaluations = pd.read_parquet(run.path / "evaluations.parquet")
    averaged = evaluations[evaluations["device"] == -1]
    np.testing.assert_allclose(averaged["virtual_time_s"].iloc[:3], [0.005, 0.01, 0.015])
    assert averaged["virtual_time_s"].iloc[3] >= 0.02
    assert averaged["round"].is_monotonic_increasing
    assert run.summary["left_after_round"] == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("fleet.pace=free",), r"fleet\.pace is free, but devices have no clocks; name what"),
        (
            (*FREE, "fleet.churn={joins: [{device: 1, round: 2}]}"),
            r"fleet\.churn\.joins\[0\]\.round counts rounds, of which each device has its own",
        ),
        (
            ("training={rounds: 9, virtual_time_s: 5, optimizer: {lr: 0.1}}",),
            r"training\.virtual_time_s is set; in lockstep give epochs or rounds alone",
        ),
        (
            (*FREE, "evaluation={every_virtual_s: 5}"),
            r"evaluation\.every_virtual_s is set; it needs a training\.virtual_time_s",
        ),
        (
            (
                *FREE,
                "training={rounds: 9, virtual_time_s: 5, optimizer: {lr: 0.1}}",
                "evaluation={every_virtual_s: 0.1}",
            ),
            r"evaluation\.every_virtual_s is 0\.1: more evaluations than the 9 rounds",
        ),
    ],
)
def test_what_free_pace_can_not_do_is_refused(tmp_path, settings, message):
    with pytest.raises(ScenarioError, match=message):
        prepared(tmp_path, *settings)
