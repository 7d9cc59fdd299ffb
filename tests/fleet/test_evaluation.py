"""The consensus model is sum(x)/sum(u), whatever the push weights are."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import cast

import pytest
import torch

from edgesim.device.trainer import DivergedError
from edgesim.fleet.recording import evaluation
from edgesim.fleet.recording.evaluation import (
    EvaluationStoppedError,
    Evaluator,
    consensus_of,
    debiased,
    distances_to,
)
from edgesim.learning.flat_model import FlatModel, Quality
from edgesim.quant.errors import NonFiniteError
from edgesim.results.snapshot import Snapshot
from edgesim.streams import StreamPurpose, torch_seed


def snapshot(device, x, u, buffers=()):
    return Snapshot(
        device, 7, 7, torch.tensor(x), u, torch.tensor(buffers, dtype=torch.float32), None
    )


SNAPSHOTS = [
    snapshot(1, [3.0, 0.0], 1.5, [4.0]),
    snapshot(0, [1.0, 2.0], 0.5, [2.0]),
]


def test_consensus_weighs_by_push_weight_and_averages_local_statistics():
    """(1 + 3) / 2 and (2 + 0) / 2; the mean of the devices' z would be (2 + 2) / 2, (4 + 0) / 2."""
    center = consensus_of(SNAPSHOTS)
    assert debiased(center).tolist() == [2.0, 1.0]
    assert center.buffers.tolist() == [3.0]
    assert center.round_index == 7


def test_distances_are_those_of_the_debiased_models():
    """z_1 = (2, 0) is 1 from (2, 1); z_0 = (2, 4) is 3 from it."""
    assert distances_to(consensus_of(SNAPSHOTS), SNAPSHOTS) == pytest.approx([1.0, 3.0])


def test_local_statistics_are_averaged_in_double_precision_and_rounds_are_whole():
    """In float32 the 1 is lost beside 1e8. The devices have done 7, 7 and 9 rounds: 23 // 3."""
    snapshots = [snapshot(i, [b], 1.0, [b]) for i, b in enumerate((1e8, 1.0, -1e8))]
    snapshots[2] = replace(snapshots[2], rounds_done=9)
    center = consensus_of(snapshots)
    assert center.x.tolist() == [1.0]
    assert center.buffers.tolist() == pytest.approx([1 / 3], rel=1e-6)
    assert center.buffers.dtype == torch.float32
    assert center.rounds_done == 7


def test_the_order_of_arrival_does_not_matter():
    forward, backward = consensus_of(SNAPSHOTS), consensus_of(SNAPSHOTS[::-1])
    assert torch.equal(forward.x, backward.x)


def test_of_one_device_the_average_is_its_own_model():
    center = consensus_of(SNAPSHOTS[:1])
    assert debiased(center).tolist() == [2.0, 0.0]
    assert (center.round_index, center.rounds_done, center.buffers.tolist()) == (7, 7, [4.0])


def test_who_is_gone_has_no_part_in_the_average_unless_all_are():
    here, gone = SNAPSHOTS[0], replace(SNAPSHOTS[1], gone="died")
    assert debiased(consensus_of([here, gone])).tolist() == [2.0, 0.0]
    all_gone = [replace(here, gone="left"), gone]
    assert debiased(consensus_of(all_gone)).tolist() == [2.0, 1.0]


class Model:
    """Says its first two parameters when it is asked how good it is."""

    leaf_modules = torch.nn.Sequential()
    num_trainable = 2

    def load_(self, parameters, buffers):
        self.parameters, self.buffers = parameters, buffers

    def evaluate(self, batches):
        assert len(list(batches)) == 3
        accuracy, loss = self.parameters.tolist()
        if accuracy > 100:
            raise NonFiniteError("conv", "activations")
        return Quality(accuracy, loss)


def evaluator_of(num_models=1, further_gossip=None):
    models = [cast("FlatModel", Model()) for _ in range(num_models)]
    passes = [(torch.zeros(1), torch.zeros(1))] * 3
    return Evaluator(models, lambda: passes, 4, seed=5, further_gossip=further_gossip)


def test_rows_have_all_that_is_known_of_a_model():
    """z_0 = (4, 0), z_1 = (0, 2); their average is (2, 3) / 2. Four rounds are an epoch."""
    snapshots = [
        replace(snapshot(0, [2.0, 0.0], 0.5), rounds_done=6, virtual_time_s=9.0),
        replace(snapshot(1, [0.0, 3.0], 1.5), rounds_done=7, virtual_time_s=3.5),
    ]
    evaluator = evaluator_of(num_models=2)
    assert evaluator.num_threads == 2
    rows = evaluator.evaluate(snapshots, devices_too=True)
    evaluator.close()
    columns = ("round", "epoch", "model", "device", "accuracy", "loss")
    columns += ("consensus_distance", "model_norm", "virtual_time_s")
    assert [tuple(row) for row in rows] == [columns] * 3
    assert [tuple(row.values()) for row in rows] == [
        (6, 1.5, "consensus", -1, 1.0, 1.5, sqrt((11.25 + 1.25) / 2), sqrt(3.25), 9.0),
        (6, 1.5, "device", 0, 4.0, 0.0, sqrt(11.25), 4.0, 9.0),
        (7, 1.75, "device", 1, 0.0, 2.0, sqrt(1.25), 2.0, 3.5),
    ]


def test_distance_and_norm_are_those_of_trained_parameters(monkeypatch):
    """The second entry, as a range of activations would be, is left out: z = 4 and 0 of 2."""
    monkeypatch.setattr(Model, "num_trainable", 1)
    evaluator = evaluator_of(further_gossip=lambda snapshots, _: list(snapshots))
    snapshots = [snapshot(0, [4.0, 50.0], 1.0), snapshot(1, [0.0, 90.0], 1.0)]
    rows = evaluator.evaluate(snapshots, devices_too=True)
    evaluator.close()
    assert [row["consensus_distance"] for row in rows] == [2.0, 2.0, 2.0]
    assert [row["after_gossip_consensus_distance"] for row in rows] == [2.0, 2.0, 2.0]
    assert [row["model_norm"] for row in rows] == [2.0, 4.0, 0.0]


def test_each_batch_is_rounded_by_seed_model_round_and_its_number(monkeypatch):
    seeds = []
    monkeypatch.setattr(evaluation, "seed_rounding_", lambda leaves, seed: seeds.append(seed))
    evaluator = evaluator_of()
    evaluator.evaluate(SNAPSHOTS, devices_too=True)
    evaluator.close()
    firsts = [torch_seed(5, StreamPurpose.EVALUATION_ROUNDING, subject, 7) for subject in (0, 1, 2)]
    assert seeds == [first + number for first in firsts for number in range(3)]


@pytest.mark.parametrize(
    ("x", "whose"),
    [((900.0, -500.0), "the averaged model"), ((900.0, -900.0), "the model of device 0")],
)
def test_whose_model_diverged_is_told(x, whose):
    snapshots = [snapshot(device, [x[device], 0.0], 1.0) for device in (0, 1)]
    evaluator = evaluator_of()
    with pytest.raises(DivergedError, match=f"^{whose} after round 7 diverged: activations of"):
        evaluator.evaluate(snapshots, devices_too=True)
    evaluator.close()


def test_nothing_is_evaluated_once_it_is_closed():
    evaluator = evaluator_of()
    evaluator.close()
    with pytest.raises(EvaluationStoppedError):
        evaluator.evaluate(SNAPSHOTS, devices_too=False)
