"""Devices that are absent, join late or leave when their stay is over: no mass is lost."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from small_fleets import assert_same_bits, prepared, snapshots_of_evaluations, train
from thorough import each_once

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.assembly.preparation import prepare
from edgesim.cli.answers import result_table
from edgesim.errors import ScenarioError
from edgesim.fleet.recording.departures import describe, stay_warning
from edgesim.scenario import load_scenario

STILL = (
    "training.optimizer.lr=1.0e-30",
    "training.rounds=16",
    "evaluation={every_rounds: 1, samples: 2}",
)
CHURNS = {
    "an absence": "fleet.churn={absent: [{device: 1, from_round: 3, until_round: 9}]}",
    "absences by chance": (
        "fleet.churn={random: {absence_probability: 0.3, mean_absence_rounds: 2}}"
    ),
    "two join": "fleet.churn={joins: [{device: 2, round: 4}, {device: 0, round: 7}]}",
    "one leaves": "fleet.churn={leaves: [{device: 1, round: 5}]}",
    "one leaves between exchanges": "fleet.churn={leaves: [{device: 2, round: 4}]}",
    "all of it": (
        "fleet.churn={joins: [{device: 3, round: 2}], leaves: [{device: 2, round: 6}], "
        "absent: [{device: 0, from_round: 1, until_round: 3}]}"
    ),
}
LATE = {"two join": 2, "all of it": 1}
GOSSIPS = {
    "choco": "gossip={algorithm: choco, averaging_rate: 0.3, compressor: {kind: top_k, keep: 0.2}}",
    "choco numerator": (
        "gossip={algorithm: choco_numerator, averaging_rate: 0.3, "
        "compressor: {kind: top_k, keep: 0.2}}"
    ),
    "deepsqueeze": (
        "gossip={algorithm: deepsqueeze, averaging_rate: 0.3, compressor: {kind: top_k, keep: 0.2}}"
    ),
    "gradient push": "gossip={algorithm: gradient_push}",
}


@pytest.mark.parametrize(("churn", "gossip"), each_once(CHURNS, GOSSIPS))
def test_no_mass_is_lost_or_made_whoever_comes_and_goes(tmp_path, monkeypatch, churn, gossip):
    """Without learning sum(x) and sum(u) stay those of the devices that began."""
    taken = snapshots_of_evaluations(monkeypatch)
    ready = prepared(tmp_path)
    x_0 = make_flat_model(ready.scenario, ready.data, PLAIN).parameters.double().numpy()
    began = 4 - LATE.get(churn, 0)
    settings = [*STILL, CHURNS[churn], GOSSIPS[gossip], "topology.kind=complete"]
    if churn == "one leaves between exchanges":
        settings.append("gossip.local_steps=2")
    run = train(tmp_path, "run", *settings, inline=True)
    assert list(taken) == list(range(1, 17))
    for round_index, snapshots in taken.items():
        assert sum(s.u for s in snapshots) == pytest.approx(began, abs=1e-12), round_index
        total = sum(s.x.double().numpy() for s in snapshots)
        np.testing.assert_allclose(total, began * x_0, atol=2e-5)
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    assert len(rounds) < 4 * 16, "somebody was not there"
    if churn == "one leaves between exchanges":  # its turns are the rounds 5, 13, ...
        assert run.summary["left_after_round"] == {"2": 4}


def test_a_device_is_not_heard_of_while_it_is_absent(tmp_path):
    run = train(
        tmp_path,
        "run",
        CHURNS["an absence"],
        "topology.kind=complete",
        "training.rounds=12",
        inline=True,
    )
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    own = rounds[rounds["device"] == 1]["round"].tolist()
    assert own == [0, 1, 2, 9, 10, 11]
    messages = pd.read_parquet(run.path / "messages.parquet")
    away = messages[messages["round"].between(3, 8)]
    assert 1 not in set(away["sender"]) | set(away["receiver"])
    assert set(away["sender"]) == {0, 2, 3}
    assert (rounds[rounds["round"].between(3, 8)]["messages_sent"] == 2).all()


@pytest.mark.parametrize(
    ("churn", "device", "first"),
    [("an absence", 1, 9), ("two join", 0, 7)],
    ids=["is back", "joins"],
)
def test_a_device_has_not_waited_while_it_was_not_there(tmp_path, churn, device, first):
    """Of one device the first round that it is there takes no longer than others, nor its energy.

    Before, it waited awake from the end of its last round, and paid for it.
    """
    run = train(
        tmp_path,
        "run",
        CHURNS[churn],
        "topology.kind=complete",
        "training.rounds=14",
        "fleet.profile=raspberry-pi-4b",
        inline=True,
    )
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    own = rounds[rounds["device"] == device].set_index("round")
    later = own.loc[first + 1 :]
    for column in ("virtual_wait_s", "energy_idle_j", "energy_j"):
        assert own.at[first, column] <= 1.05 * later[column].max(), column
    away_s = own["virtual_time_s"].diff().fillna(own["virtual_time_s"])
    away_s -= own["virtual_compute_s"] + own["virtual_wait_s"]
    others = rounds[(rounds["device"] != device) & (rounds["round"] == first - 1)]
    begins_s = others["virtual_time_s"].max()
    before_s = own["virtual_time_s"].get(2, 0.0)  # a device that joins has no such round
    assert 0 < away_s[first] <= 1.1 * begins_s - before_s
    assert away_s.drop(first).abs().max() < 1e-9
    assert own.at[first, "virtual_time_s"] > begins_s, "it is back with the fleet"


def test_a_leaver_is_awake_until_its_handover_is_sent(tmp_path):
    """On a slow link that takes far longer than a round."""
    run = train(
        tmp_path,
        "run",
        "fleet.churn={leaves: [{device: 1, round: 5}]}",
        "topology.kind=complete",
        "training.rounds=8",
        "fleet.profile=raspberry-pi-4b",
        "network.bandwidth_mbps=1",
        inline=True,
    )
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    messages = pd.read_parquet(run.path / "messages.parquet")
    own = messages[messages["device"] == 1]
    last = rounds[rounds["device"] == 1].iloc[-1]
    assert set(own["kind"]) >= {"handover", "copy"}
    assert last["virtual_time_s"] == own["sent_time_s"].max()
    idle_w = last["energy_idle_j"] / last["virtual_wait_s"]
    assert idle_w == pytest.approx(2.7)  # of a Raspberry Pi 4B


def test_a_device_that_joins_takes_its_first_step_once_it_has_mass(tmp_path):
    run = train(
        tmp_path,
        "run",
        "fleet.churn={joins: [{device: 2, round: 4}]}",
        "topology.kind=ring",
        "training.rounds=8",
        inline=True,
    )
    rounds = pd.read_parquet(run.path / "rounds.parquet")
    own = rounds[rounds["device"] == 2].set_index("round")
    assert own.index.tolist() == [4, 5, 6, 7]
    assert np.isnan(own.loc[4, "loss"])
    assert own.loc[4, "macs_fp32"] < own.loc[5, "macs_fp32"]
    assert own.loc[4, "push_weight"] > 0
    assert own["loss"].loc[5:].notna().all()


def test_a_device_whose_stay_is_over_is_succeeded_in_its_turn(tmp_path):
    """Device 1 of 4 has its turn after rounds 0, 4 and 8; after round 4 it is gone from 5 on."""
    run = train(
        tmp_path,
        "run",
        CHURNS["one leaves"],
        "topology.kind=ring",
        "training.rounds=16",
        inline=True,
    )
    messages = pd.read_parquet(run.path / "messages.parquet")
    assert messages[messages["kind"] == "handover"]["round"].tolist() == [4]
    assert run.summary["left_after_round"] == {"1": 4}
    assert run.summary["left_because"] == {"1": "plan"}
    assert dict(result_table(run.summary, "").rows)["left"] == "device 1 after 5 rounds, by plan"


@pytest.mark.parametrize(
    "away",
    [
        "absent: [{device: 0, from_round: 11, until_round: 14}]",
        "random: {absence_probability: 0.3, mean_absence_rounds: 2}",
    ],
)
def test_a_successor_answers_for_the_leaver_also_where_it_is_absent_itself(tmp_path, away):
    """On this ring device 0 is the successor of device 1."""
    churn = f"fleet.churn={{leaves: [{{device: 1, round: 5}}], {away}}}"
    run = train(tmp_path, "run", *STILL, churn, "topology.kind=ring", inline=True)
    ends = [dict(np.load(path)) for path in sorted((run.path / "models").glob("*.npz"))]
    assert sum(float(end["u"]) for end in ends) == pytest.approx(4, abs=1e-12)
    messages = pd.read_parquet(run.path / "messages.parquet")
    handover = messages[messages["kind"] == "handover"]
    assert handover[["sender", "receiver"]].to_numpy().tolist() == [[1, 0]]
    assert run.summary["left_after_round"] == {"1": int(handover["round"].iloc[0])}


@pytest.mark.ray
def test_churn_is_the_same_inline_and_with_actors(tmp_path, started_ray):
    settings = (CHURNS["all of it"], "topology.kind=complete", "training.rounds=12")
    assert_same_bits(
        train(tmp_path, "inline", *settings, inline=True),
        train(tmp_path, "each", *settings),
    )


@pytest.mark.parametrize(
    ("device", "leave_round", "rounds", "local_steps", "remedy"),
    [
        (1, 6, 8, 1, "in round 5 or before"),
        (0, 5, 8, 1, "in round 4 or before"),
        (0, 1, 4, 1, None),  # nobody leaves in the first exchange of all
        (2, 30, 8, 1, "in round 6 or before"),
        (0, 4, 8, 2, None),
        (1, 12, 16, 2, "in round 11 or before"),
    ],
)
def test_a_leave_that_would_find_no_turn_is_refused(
    tmp_path, device, leave_round, rounds, local_steps, remedy
):
    settings = (
        f"fleet.churn={{leaves: [{{device: {device}, round: {leave_round}}}]}}",
        f"training.rounds={rounds}",
        f"gossip.local_steps={local_steps}",
        "topology.kind=complete",
    )
    with pytest.raises(ScenarioError) as caught:
        prepared(tmp_path, *settings)
    text = str(caught.value)
    assert f"device {device} can't leave in round {leave_round} or later" in text
    assert (remedy in text) if remedy else ("or before" not in text)
    prepare(load_scenario(tmp_path / "scenario.yaml", settings), goes_on=True)


@pytest.mark.parametrize("leave_round", [6, 7])
def test_who_was_away_in_the_round_before_its_turn_has_none(tmp_path, leave_round):
    away = "absent: [{device: 2, from_round: 4, until_round: 6}]"
    churn = f"fleet.churn={{leaves: [{{device: 2, round: {leave_round}}}], {away}}}"
    with pytest.raises(ScenarioError, match="let it leave in round 2 or before"):
        prepared(tmp_path, churn, "training.rounds=8", "topology.kind=complete")
    prepared(tmp_path, churn, "training.rounds=11", "topology.kind=complete")


def test_a_leaver_that_would_never_have_a_neighbour_in_its_turn_is_refused(tmp_path):
    """On this ring device 1 sends to device 2 alone, which is absent in each of its turns."""
    away = ", ".join(f"{{device: 2, from_round: {r}, until_round: {r + 1}}}" for r in (5, 9, 13))
    churn = f"fleet.churn={{leaves: [{{device: 1, round: 5}}], absent: [{away}]}}"
    settings = ("topology.kind=directed_ring", "training.rounds=16")
    with pytest.raises(
        ScenarioError, match=r"device 1 can't leave in round 5.* if a neighbour is there"
    ):
        train(tmp_path, "refused", *STILL, *settings, churn, inline=True)


def test_who_was_to_leave_and_stayed_is_named():
    scenario = SimpleNamespace(fleet=SimpleNamespace(num_devices=3, label="device {}".format))
    presence = SimpleNamespace(leave_round={0: None, 1: 5, 2: 7}.get)
    assert stay_warning(scenario, presence, {"1": 5, "2": 8}, 20) is None
    assert stay_warning(scenario, presence, {}, 5) is None, "after the last round"
    assert stay_warning(scenario, presence, {"1": 5}, 20) == (
        "device 2 was to leave in round 7; no neighbour was there in a turn to leave, so they "
        "stayed"
    )


def test_a_joiner_that_no_message_reached_is_named(tmp_path):
    """With one matching a round, a device that joins in the last round may meet nobody."""
    for seed in range(1, 8):
        run = train(
            tmp_path,
            f"run{seed}",
            "fleet.devices=3",
            "fleet.churn={joins: [{device: 1, round: 7}]}",
            "topology={kind: random_matching}",
            "training.rounds=8",
            f"seed={seed}",
            inline=True,
        )
        u = float(np.load(run.path / "models" / "device-000001.npz")["u"])
        assert run.summary["without_model"] == ([1] if u == 0 else [])
        if u == 0:
            assert describe(run.summary)[-1].startswith("device 1 got no model: no message")
            return
    pytest.fail("each seed gave it a model")
