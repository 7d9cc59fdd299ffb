"""`evaluation.gossip_rounds` and `training.device_seeds` in whole runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from interrupted_runs import resumed
from small_fleets import assert_same_bits, outcome, prepared, train
from thorough import some

from edgesim.assembly.build import PLAIN, make_flat_model
from edgesim.errors import ScenarioError
from edgesim.fleet.host.devices import make_devices
from edgesim.results.columns import GOSSIPED_EVALUATIONS

ROUNDS = "evaluation.gossip_rounds=50"
COLUMNS = [column.name for column in GOSSIPED_EVALUATIONS]


def test_a_run_has_the_same_bits_with_and_without(runs):
    """Also the same messages, and final models with the same arrays and nothing else."""
    without, having = runs.calm(), runs.calm(ROUNDS)
    (rounds, evaluations, models), (rounds_2, evaluations_2, models_2) = map(
        outcome, (without, having)
    )
    pd.testing.assert_frame_equal(rounds, rounds_2, check_exact=True)
    assert set(evaluations_2) - set(evaluations) == set(COLUMNS)
    pd.testing.assert_frame_equal(evaluations, evaluations_2.drop(columns=COLUMNS))
    assert models.keys() == models_2.keys()
    assert all(models[key].tobytes() == models_2[key].tobytes() for key in models)
    messages = [pd.read_parquet(run.path / "messages.parquet") for run in (without, having)]
    pd.testing.assert_frame_equal(*messages)


def test_devices_are_evaluated_once_more_at_the_end_and_their_mean_stands_by_the_average(runs):
    result = runs.calm(ROUNDS)
    evaluations = pd.read_parquet(result.path / "evaluations.parquet")
    last = evaluations[evaluations["round"] == 6]
    assert evaluations[evaluations["round"] == 3][COLUMNS].isna().all(axis=None)
    of_devices = last[last["device"] >= 0]
    average = last[last["device"] < 0].iloc[0]
    assert len(of_devices) == 4
    assert of_devices["after_gossip_loss"].nunique() == 4
    for name in COLUMNS[:2]:
        assert average[name] == pytest.approx(of_devices[name].mean(), abs=1e-15)
    apart = of_devices["after_gossip_consensus_distance"]
    mean_square = float(np.sqrt((apart**2).mean()))
    assert average["after_gossip_consensus_distance"] == pytest.approx(mean_square)
    assert mean_square < average["consensus_distance"]  # the rounds brought devices together
    assert result.summary["after_gossip_accuracy"] == average["after_gossip_accuracy"]
    assert result.summary["after_gossip_rounds"] == 50


def test_uncompressed_gossip_ends_in_the_averaged_model(tmp_path):
    """100 rounds at rate 1 on a ring of 4 leave (1/sqrt(2))^100 of the distance: rounding."""
    result = train(
        tmp_path,
        "run",
        "evaluation.gossip_rounds=100",
        "gossip={algorithm: gradient_push}",
        "evaluation.device_models=every",
        inline=True,
    )
    evaluations = pd.read_parquet(result.path / "evaluations.parquet")
    averages = evaluations[evaluations["device"] < 0]
    assert averages["after_gossip_accuracy"].notna().all()
    np.testing.assert_allclose(averages["after_gossip_loss"], averages["loss"], rtol=1e-5)
    assert (averages["after_gossip_consensus_distance"] < 1e-4 * averages["model_norm"]).all()


def test_what_comes_is_said(runs):
    said = (runs.calm(ROUNDS).path.parent / "run.log").read_text()
    wanted = "those of 4 devices on 50 images each, and once more after 50 rounds of gossip"
    assert wanted in said


@pytest.mark.parametrize(
    "gossip",
    [
        "{algorithm: choco_iclr, averaging_rate: 0.1, compressor: {kind: top_k, keep: 0.2}}",
        "{algorithm: relay_sgd}",
        "{algorithm: dcd, compressor: {kind: min_max_uint8}}",
    ],
)
def test_other_algorithms_bring_devices_together_too(tmp_path, gossip):
    result = train(
        tmp_path, "run", ROUNDS, "topology={kind: chain, weights: metropolis}", f"gossip={gossip}",
        "training.rounds=3", inline=True,
    )  # fmt: skip
    evaluations = pd.read_parquet(result.path / "evaluations.parquet")
    average = evaluations[evaluations["device"] < 0].iloc[-1]
    assert average["after_gossip_consensus_distance"] < 0.9 * average["consensus_distance"]


@pytest.mark.ray
@pytest.mark.parametrize("per_actor", some([3, 1], 1))
def test_as_actors_and_packed_it_has_the_same_bits(tmp_path, runs, started_ray, per_actor):
    packed = train(tmp_path, "run", ROUNDS, f"fleet.devices_per_actor={per_actor}")
    assert_same_bits(runs.calm(ROUNDS), packed)


def test_resumed_it_has_the_same_bits(tmp_path, runs):
    every = (ROUNDS, "evaluation.device_models=every")
    runs.interrupted(tmp_path / "run", *every, at_step=19, num_evaluated=0)
    assert_same_bits(runs.calm(*every), resumed(tmp_path))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["evaluation.device_models=never"], "devices' own models, which it is for, are not"),
        (["fleet.churn={leaves: [{device: 1, round: 3}]}"], "must be 0 with fleet.churn"),
        (
            ["fleet={devices: 4, pace: free, profile: raspberry-pi-5}"],
            "must be 0 at fleet.pace: free",
        ),
        (
            ["fleet={devices: [{profile: raspberry-pi-5, count: 4, battery_wh: 1}]}"],
            "must be 0 where devices have batteries",
        ),
        *(
            (
                ["topology.kind=ring", f"gossip={{algorithm: {name}}}"],
                f"must be 0 for gossip.algorithm: {name}, which goes on with earlier steps",
            )
            for name in ("d2", "gradient_tracking", "momentum_tracking", "gut")
        ),
        (
            [
                "topology.kind=ring",
                "gossip={algorithm: all_reduce}",
                "training={epochs: 1, optimizer: {lr: 0.05}}",
                "evaluation={gossip_rounds: 50}",
            ],
            "must be 0 for gossip.algorithm: all_reduce, whose averages take several rounds",
        ),
    ],
)
def test_fleets_that_are_not_whole_are_refused(tmp_path, overrides, said):
    with pytest.raises(ScenarioError, match=said):
        train(tmp_path, "run", ROUNDS, *overrides, inline=True)


@pytest.mark.parametrize(
    ("choice", "alike"), [("shared", [True] * 4), ("own", [True, False, False, False])]
)
def test_with_shared_seeds_all_devices_draw_the_same_numbers(tmp_path, choice, alike):
    """Devices with the same shard then train on the same batches, with the same compression."""
    plan = prepared(
        tmp_path,
        f"training.device_seeds={choice}",
        "data.batch_size=5",
        "gossip.compressor={kind: random_k, keep: 0.1}",
    )
    model = make_flat_model(plan.scenario, plan.data, PLAIN)
    devices = make_devices(plan, dict.fromkeys(range(4), plan.shards()[0]), model)
    batches = [device.participant.trainer._batches.batch(1)[0] for device in devices]
    assert [bool((batches[0] == batch).all()) for batch in batches] == alike
    payloads = []
    for device in devices:
        edges = device.participant.membership.out_edges(0)
        (envelope,) = device.participant.write_shares(edges, 0)
        payloads.append(envelope.data[-200:])
    assert [payload == payloads[0] for payload in payloads] == alike
