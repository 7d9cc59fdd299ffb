"""Real fleets at free pace whose devices are absent, join, leave and die."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from small_fleets import assert_same_bits, prepared, train
from thorough import each_once, some

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.cli.answers import result_table

COMPLETE = ("topology.kind=complete", "network={latency_ms: 0.05}")
STILL = ("training={rounds: 60, optimizer: {lr: 1.0e-30}}", "evaluation={samples: 2}")
RADIO = "radio: {bandwidth_mbps: 900}"
DEVICES = f"{{profile: raspberry-pi-5, {RADIO}, count: 3}}, {{profile: raspberry-pi-4b, {RADIO}}}"
ROUND_WH = 0.0028 / 3600  # about what a round of a Raspberry Pi 5 takes in the small scenario


def churning(churn: str, devices: str = DEVICES) -> str:
    return f"fleet={{devices: [{devices}], pace: free, churn: {{{churn}}}}}"


def mortal(*rounds: float | None, more: str = "presumed_dead_after_s: 0.002") -> str:
    """Raspberry Pis whose batteries last for about so many rounds; None: plugged in."""
    keys = [f", battery_wh: {ROUND_WH * number:.9f}" if number else "" for number in rounds]
    devices = ", ".join(f"{{profile: raspberry-pi-5, {RADIO}{key}}}" for key in keys)
    return f"fleet={{devices: [{devices}], pace: free, {more}}}"


CHURNS = {
    "absences": "absent: [{device: 1, from_s: 0.002, until_s: 0.006}]",
    "absences by chance": "random: {absence_probability: 0.3, mean_absence_s: 0.002}",
    "two join": "joins: [{device: 1, at_s: 0.003}, {device: 3, at_s: 0.005}]",
    "two leave": "leaves: [{device: 1, at_s: 0.004}, {device: 3, at_s: 0.006}]",
    "all of it": (
        "absent: [{device: 0, from_s: 0.002, until_s: 0.006}], joins: [{device: 3, at_s: 0.003}], "
        "leaves: [{device: 1, at_s: 0.005}], "
        "random: {absence_probability: 0.2, mean_absence_s: 0.001}"
    ),
}
GOSSIPS = {
    "choco": "gossip={algorithm: choco, averaging_rate: 0.3, compressor: {kind: top_k, keep: 0.1}}",
    "deepsqueeze": (
        "gossip={algorithm: deepsqueeze, averaging_rate: 0.3, compressor: {kind: top_k, keep: 0.1}}"
    ),
    "gradient push": "gossip={algorithm: gradient_push, averaging_rate: 0.5}",
}


def ends_of(run):
    return [dict(np.load(path)) for path in sorted((run.path / "models").glob("*.npz"))]


def tables_of(run):
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    return rounds, pd.read_parquet(run.path / "messages.parquet")


CASES = [  # half-duplex or not in turn: thousands of random fleets are in test_free_churn.py
    (churn, gossip, ("false", "true")[(row + column) % 2])
    for (row, churn), (column, gossip) in each_once(enumerate(CHURNS), enumerate(GOSSIPS))
]


@pytest.mark.parametrize(("churn", "gossip", "half_duplex"), CASES)
def test_no_mass_is_lost_or_made_by_who_comes_and_goes_as_planned(
    tmp_path, churn, gossip, half_duplex
):
    """Without learning, sum(x) and sum(u) are those of the devices that began."""
    network = f"network={{latency_ms: 0.05, half_duplex: {half_duplex}}}"
    settings = (churning(CHURNS[churn]), GOSSIPS[gossip], "topology.kind=complete", network)
    run = train(tmp_path, "run", *STILL, *settings, inline=True)
    began = {"two join": 2, "all of it": 3}.get(churn, 4)
    ends = ends_of(run)
    assert sum(float(end["u"]) for end in ends) == pytest.approx(began, abs=1e-12)
    first = prepared(tmp_path)
    x_0 = make_flat_model(first.scenario, first.data, PLAIN).parameters.double().numpy()
    total = sum(end["x"].astype(np.float64) for end in ends)
    np.testing.assert_allclose(total, began * x_0, atol=2e-5)
    rounds, messages = tables_of(run)
    assert rounds["messages_absorbed"].sum() == len(messages) > 10
    assert rounds["received_bytes"].sum() == messages["bytes"].sum()
    sums = messages.groupby(["device", "round"])["bytes"].sum()
    own = rounds.set_index(["device", "round"])["sent_bytes"]
    pd.testing.assert_series_equal(sums, own[own > 0].sort_index(), check_names=False)
    leavers = [device for device in (1, 3) if f"leaves: [{{device: {device}" in CHURNS[churn]]
    for device in leavers:
        assert float(ends[device]["u"]) == 0
    handovers = messages[messages["kind"] == "handover"]
    assert set(handovers["sender"]) >= set(leavers)


@pytest.mark.parametrize(
    ("battery_rounds", "churn"),
    [(10.5, ""), (None, ", joins: [{device: 1, at_s: 0.015}]")],
    ids=["dead", "not there yet"],
)
def test_a_leaver_hands_over_to_a_neighbour_that_lives_and_is_there(
    tmp_path, battery_rounds, churn
):
    """Neighbours of device 0 are 1, which nobody presumes dead yet, and 3, which is plugged in."""
    more = f"churn: {{leaves: [{{device: 0, at_s: 0.01}}]{churn}}}"
    fleet = mortal(None, battery_rounds, None, None, more=more)
    run = train(tmp_path, "run", *STILL, fleet, "topology.kind=ring", COMPLETE[1], inline=True)
    _, messages = tables_of(run)
    (handover,) = messages[messages["kind"] == "handover"].to_dict("records")
    if battery_rounds:
        died_s = run.summary["dead_devices"]["1"]["virtual_time_s"]
        assert died_s < handover["departure_time_s"], "it was dead, and nobody knew"
    assert handover["receiver"] == 3
    assert list(run.summary["left_after_round"]) == ["0"]
    assert float(ends_of(run)[0]["u"]) == 0


def test_nobody_sends_to_who_is_absent_and_it_does_nothing(tmp_path):
    run = train(tmp_path, "run", churning(CHURNS["absences"]), *COMPLETE, *STILL, inline=True)
    rounds, messages = tables_of(run)
    own = rounds[rounds["device"] == 1]["virtual_time_s"]
    assert not own.between(0.002, 0.006, inclusive="neither").any()
    air_s = (messages["arrival_time_s"] - messages["departure_time_s"]).max()
    away = messages["departure_time_s"].between(0.002 + 2 * air_s, 0.006 - 1e-9)
    assert 1 not in set(messages[away]["receiver"]) | set(messages[away]["sender"])
    assert {0, 2, 3} == set(messages[away]["sender"])
    later = messages[messages["departure_time_s"] > 0.006]
    assert {1} < set(later["receiver"])


def test_without_mass_a_device_computes_nothing_and_its_row_says_so(tmp_path):
    """On a slow link it waits for its first model for some rounds. Before, its row had work."""
    churn = churning("joins: [{device: 2, at_s: 0.003}]").replace("900", "20")
    table = "hardware.energy_table=horowitz_45nm"
    rounds, _ = tables_of(
        train(tmp_path, "run", churn, "topology.kind=complete", table, inline=True)
    )
    idle = rounds[(rounds["device"] == 2) & rounds["loss"].isna()]
    before = idle[idle["received_bytes"] == 0]
    assert len(before) > 1
    for column in ("elementwise_ops", "traffic_bytes", "virtual_compute_s", "energy_compute_j"):
        assert (before[column] == 0).all(), column
    assert (before["virtual_wait_s"] > 0).all()


def test_who_joins_takes_its_first_step_once_it_has_mass(tmp_path):
    settings = (churning("joins: [{device: 2, at_s: 0.003}]"), *COMPLETE)
    run = train(
        tmp_path, "run", *settings, "training={rounds: 60, optimizer: {lr: 0.01}}", inline=True
    )
    rounds, messages = tables_of(run)
    own = rounds[rounds["device"] == 2].sort_values("round")
    assert own["virtual_time_s"].iloc[0] > 0.003
    has_mass = own["push_weight"].shift(fill_value=0.0) > 0
    assert 0 < (~has_mass).sum() < 30
    assert own[~has_mass]["loss"].isna().all()
    assert own[has_mass]["loss"].notna().all()
    assert (own[~has_mass]["messages_sent"] == 0).all()
    # A round without a model lasts as long as its step would, and nothing is computed in it.
    before, after = own[~has_mass].iloc[:-1], own[has_mass]
    quiet = after[after["messages_sent"] == 0]
    longest = quiet["virtual_compute_s"].max()
    assert (before["virtual_wait_s"] <= longest).all()
    assert (before["energy_j"] < after["energy_j"].min()).all()
    to_it = messages[messages["receiver"] == 2]
    assert to_it["departure_time_s"].min() >= 0.003
    assert run.summary["device_accuracy_max"] is not None


@pytest.mark.parametrize("gossip", GOSSIPS)
def test_who_dies_takes_its_x_and_u_and_what_is_on_its_way_to_it(tmp_path, gossip):
    """The average of the others stays an average: without learning, of equal models."""
    settings = (mortal(None, 25.5, None, 40.5), GOSSIPS[gossip], *COMPLETE)
    run = train(tmp_path, "run", *STILL, *settings, inline=True)
    rounds, messages = tables_of(run)
    last = rounds.groupby("device")["round"].max()
    assert last[1] < last[3] < 59
    assert (last[[0, 2]] == 59).all()
    for device, rounds_of_battery in ((1, 25.5), (3, 40.5)):
        drawn_j = rounds[rounds["device"] == device]["energy_j"]
        battery_j = rounds_of_battery * ROUND_WH * 3600
        assert drawn_j.sum() + drawn_j.max() > battery_j >= drawn_j.iloc[:-1].sum()
    ends = ends_of(run)
    absorbed = int(rounds["messages_absorbed"].sum())
    dead = run.summary["dead_devices"]
    assert dict(result_table(run.summary, "").rows)["died"] == "device 1; device 3"
    assert sorted(dead) == ["1", "3"]
    for device in (1, 3):
        own = rounds[rounds["device"] == device].iloc[-1]
        assert dead[str(device)]["rounds"] == last[device] + 1
        assert dead[str(device)]["virtual_time_s"] == own["virtual_time_s"]
        assert dead[str(device)]["push_weight"] == float(ends[device]["u"]) == own["push_weight"]
    lost = run.summary["messages_lost"]
    assert lost == len(messages) - absorbed > 0
    on_the_way = 4 - sum(float(end["u"]) for end in ends)
    assert run.summary["push_weight_lost"] == pytest.approx(on_the_way, abs=1e-12)
    assert on_the_way > 0
    # Each message took x along with its u, so x/u of the others is still the first model.
    first = prepared(tmp_path)
    x_0 = make_flat_model(first.scenario, first.data, PLAIN).parameters.double().numpy()
    living = [ends[device] for device in (0, 2)]
    if gossip == "gradient push":  # it sends whole models
        u = sum(float(end["u"]) for end in living)
        z = sum(end["x"].astype(np.float64) for end in living) / u
        np.testing.assert_allclose(z, x_0, atol=1e-5)
    evaluations = pd.read_parquet(run.path / "evaluations.parquet")
    at_the_end = evaluations[evaluations["round"] >= 59]
    assert sorted(at_the_end["device"]) == [-1, 0, 2]


def test_neighbours_stop_sending_to_the_dead_a_time_out_later(tmp_path):
    for number, timeout_s in enumerate(some([0.003, 0.0], 1)):
        more = f"presumed_dead_after_s: {timeout_s}"
        settings = (mortal(None, 25.5, None, None, more=more), *COMPLETE)
        run = train(tmp_path, f"run{number}", *STILL, *settings, inline=True)
        rounds, messages = tables_of(run)
        died_s = rounds[rounds["device"] == 1]["virtual_time_s"].max()
        to_it = messages[messages["receiver"] == 1]["departure_time_s"].max()
        step_s = rounds[rounds["device"] == 0]["virtual_compute_s"].max()
        air_s = (messages["arrival_time_s"] - messages["departure_time_s"]).max()
        assert to_it < died_s + timeout_s + 2 * (step_s + 3 * air_s)
        assert to_it > died_s + timeout_s - 2 * (step_s + 3 * air_s)


def test_evaluations_leave_the_dead_out_from_their_death_on(tmp_path):
    settings = (mortal(None, 25.5, None, None), *COMPLETE)
    every = "evaluation={every_virtual_s: 0.001, samples: 2, device_models: every}"
    training = "training={rounds: 500, virtual_time_s: 0.01, optimizer: {lr: 0.01}}"
    run = train(tmp_path, "run", *settings, every, training, inline=True)
    rounds, _ = tables_of(run)
    died_s = rounds[rounds["device"] == 1]["virtual_time_s"].max()
    evaluations = pd.read_parquet(run.path / "evaluations.parquet")
    averaged = evaluations[evaluations["device"] == -1]["virtual_time_s"].to_numpy()
    own = evaluations[evaluations["device"] == 1]["virtual_time_s"].to_numpy()
    assert 0 < len(own) < len(averaged)
    np.testing.assert_array_equal(own, averaged[averaged <= died_s])


def test_a_fleet_whose_devices_all_die_ends_calmly_and_says_so(tmp_path):
    settings = (mortal(12.5, 25.5, 18.5, 22.5), *COMPLETE)
    run = train(tmp_path, "run", *STILL, *settings, "evaluation={every_rounds: 10}", inline=True)
    assert sorted(run.summary["dead_devices"]) == ["0", "1", "2", "3"]
    rounds, _ = tables_of(run)
    assert rounds["round"].max() < 59
    evaluations = pd.read_parquet(run.path / "evaluations.parquet")
    averaged = evaluations[evaluations["device"] == -1]
    assert len(averaged) == 6, "where nobody lives any more, of what all ended with"
    assert averaged["loss"].notna().all()
    log = (tmp_path / "run.log").read_text()
    assert "all 4 devices have died" in log


@pytest.mark.ray
def test_churn_and_batteries_are_the_same_inline_and_with_actors(
    tmp_path, started_ray, two_threads
):
    battery = f"battery_wh: {ROUND_WH * 20.5:.9f}"
    board = f"{{profile: raspberry-pi-5, {RADIO}"
    devices = f"{board}, count: 2}}, {board}, {battery}}}, {{profile: raspberry-pi-4b}}"
    fleet = churning(CHURNS["all of it"], devices)
    settings = (fleet, "fleet.presumed_dead_after_s=0.002", *COMPLETE, "training.rounds=40")
    inline = train(tmp_path, "inline", *settings, inline=True)
    assert list(inline.summary["dead_devices"]) == ["2"]
    for per_actor in some(["3", "1"], 1):
        packing = f"fleet.devices_per_actor={per_actor}"
        assert_same_bits(inline, train(tmp_path, f"by-{per_actor}", *settings, packing))
