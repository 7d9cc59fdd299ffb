"""How much devices count in the averaged model: foretold, and counted from the rounds of a run."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from small_fleets import prepared, train

from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.fleet.recording.influence import influence_of_devices
from edgesim.study.notices.influence import _push_weights, find_influence

NAN = float("nan")


def rounds_of(*rows):
    names = ("device", "round", "loss", "learning_rate", "push_weight")
    types = (pa.int32(), pa.int64(), pa.float64(), pa.float64(), pa.float64())
    columns = [
        pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)
    ]
    return pa.table(columns, names=names)


ROUNDS = rounds_of(  # not in order; device 1 joins: its first round has no step
    (1, 1, 0.5, 0.2, 0.25),
    (0, 1, 0.5, 0.1, 9.0),
    (1, 0, NAN, 0.2, 0.5),
    (0, 0, 0.5, 0.2, 1.5),
)


@pytest.mark.parametrize(
    ("steps_on_model", "sums"),
    [(True, [0.2 * 1 + 0.1 * 1.5, 0.2 * 0.5, 0]), (False, [0.2 + 0.1, 0.2, 0])],
)
def test_a_step_counts_by_its_rate_and_the_push_weight_that_it_finds(steps_on_model, sums):
    """The third device died before its first step."""
    found = influence_of_devices(ROUNDS, 3, steps_on_model=steps_on_model)
    np.testing.assert_allclose(found, np.array(sums) / np.mean(sums), rtol=1e-15)


def test_a_fleet_without_a_step_has_no_influence():
    found = influence_of_devices(rounds_of((0, 0, NAN, 0.1, 1.0)), 2, steps_on_model=True)
    assert found.tolist() == [0, 0]


EDGES = "0 1\n0 2\n1 2\n1 3\n2 3\n3 0\n"  # devices 0 and 1 send to two, the others to one
W = np.array(  # from the column's device to the row's
    [[1 / 3, 0, 0, 1 / 2], [1 / 3, 1 / 3, 0, 0], [1 / 3, 1 / 3, 1 / 2, 0], [0, 1 / 3, 1 / 2, 1 / 2]]
)


def free_fleet(folder, **fleet):
    """Overrides of a small fleet at free pace whose radios are never busy when a step ends."""
    (folder / "edges.txt").write_text(EDGES)
    fleet = {"devices": 4, "profile": "arduino-portenta-h7", "pace": "free"} | fleet
    return (
        f"fleet={json.dumps(fleet)}",
        "network={bandwidth_mbps: 10000}",
        f"topology={{kind: file, path: {folder / 'edges.txt'}}}",
        "gossip={algorithm: choco, averaging_rate: 1.0}",
        "gossip.compressor={kind: top_k, keep: 0.01}",
        "training.rounds=100",
        "evaluation.every_rounds=100",
    )


def stationary():
    moduli, vectors = np.linalg.eig(W)
    pi = np.real(vectors[:, np.argmax(np.real(moduli))])
    return pi / pi.mean()


def test_alike_devices_of_an_irregular_graph_count_by_the_stationary_vector(tmp_path):
    overrides = free_fleet(tmp_path)
    result = train(tmp_path, "run", *overrides, inline=True)
    counted = pd.read_parquet(result.path / "devices.parquet")["influence"].to_numpy()
    np.testing.assert_allclose(counted, stationary(), rtol=0.08)  # the first rounds settle u
    summary = json.loads((result.path / "summary.json").read_text())
    assert summary["device_influence_min"] == counted.min()
    assert summary["device_influence_max"] == counted.max()
    foretold, _ = find_influence(studied_scenario(prepared(tmp_path, *overrides).scenario))
    np.testing.assert_allclose(foretold, stationary(), rtol=1e-9)


def test_push_weights_settle_at_pi_by_the_rate_of_messages():
    """Device j sends s_j times a second: u is pi / s."""
    s = np.array([1.0, 0.25, 3.0, 0.5])
    u = stationary() / s
    found = _push_weights((W - np.diag(np.diag(W))) * s)
    np.testing.assert_allclose(found, u / u.mean(), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        ("topology={kind: random_matching}", True),
        ("topology={kind: random_matching, hold: 5000}", False),  # pairs that meet no others
    ],
)
def test_influence_is_foretold_where_messages_connect_all_devices(tmp_path, change, is_known):
    found = find_influence(
        studied_scenario(prepared(tmp_path, *free_fleet(tmp_path), change).scenario)
    )
    assert (found is not None) is is_known
    if is_known:
        np.testing.assert_allclose(found[0], 1, atol=0.2)


@pytest.mark.parametrize("algorithm", ["choco", "dcd"])
def test_dcd_moves_no_mass_and_has_no_influence(tmp_path, algorithm):
    gossip = {"choco": "choco, averaging_rate: 0.5", "dcd": "dcd"}[algorithm]
    overrides = (
        *free_fleet(tmp_path),
        f"gossip={{algorithm: {gossip}}}",
        "topology={kind: ring}",
        "training.rounds=4",
        "evaluation.every_rounds=4",
    )
    result = train(tmp_path, "run", *overrides, inline=True)
    assert ("influence" in pd.read_parquet(result.path / "devices.parquet")) is (algorithm != "dcd")
    assert ("device_influence_min" in result.summary) is (algorithm != "dcd")
