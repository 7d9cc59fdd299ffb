"""`--scale` shortens the length of a training and all that goes by it."""

from __future__ import annotations

import pytest
import yaml
from small_fleets import SCENARIO

from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario
from edgesim.scenario.files import scenario_of
from edgesim.scenario.scale import scaled
from edgesim.scenario.sweep import parse_sweep, scaled_sweep

PAPER = (
    "training={epochs: 200, optimizer: {lr: 0.1}, schedule: {milestones: [100, 150], "
    "warmup_epochs: 1}}"
)
EVERY = "evaluation={every_epochs: 10}"


def scenario(*overrides):
    return scenario_of(SCENARIO, overrides)


@pytest.mark.parametrize(
    ("scale", "epochs", "milestones", "every"),
    [(1, 200, (100, 150), 10), (0.1, 20, (10, 15), 1), (0.02, 4, (2, 3), 1), (0.013, 3, (1, 2), 1)],
)
def test_epochs_milestones_and_evaluations_keep_their_proportion(scale, epochs, milestones, every):
    short = scaled(scenario(PAPER, EVERY), scale)
    assert short.training.epochs == epochs
    assert short.training.schedule.milestones == milestones
    assert short.training.schedule.warmup_epochs == 1
    assert short.evaluation.every_epochs == every
    changed = {"training", "evaluation"}
    assert short.model_dump(exclude=changed) == scenario(PAPER, EVERY).model_dump(exclude=changed)
    assert scenario_of(short.model_dump(mode="json")) == short  # it passes the checks of a file


def test_rounds_and_virtual_time_are_shortened_too():
    fleet = "fleet={devices: 4, pace: free, profile: raspberry-pi-5}"
    free = scenario(
        fleet,
        "training={rounds: 60, virtual_time_s: 0.4, optimizer: {lr: 0.02}}",
        "evaluation={every_virtual_s: 0.1}",
    )
    short = scaled(free, 0.5)
    assert (short.training.rounds, short.training.virtual_time_s) == (30, 0.2)
    assert short.evaluation.every_virtual_s == 0.05


@pytest.mark.parametrize(
    ("scale", "overrides", "said"),
    [
        (0, (), "must be a number above 0 and at most 1"),
        (1.5, (), "must be a number above 0 and at most 1"),
        (float("nan"), (), "must be a number above 0 and at most 1"),
        (0.005, (PAPER,), r"milestones 100 and 150 both come after epoch 1; raise it to 0.02"),
        (0.5, ("fleet.churn={leaves: [{device: 1, round: 3}]}",), "fleet.churn says when"),
    ],
)
def test_what_cannot_be_shortened_is_refused(scale, overrides, said):
    with pytest.raises(ScenarioError, match=said):
        scaled(scenario(*overrides), scale)


def test_all_cells_of_a_sweep_are_shortened_and_keep_their_names(tmp_path):
    text = yaml.safe_dump({**SCENARIO, "sweep": {"grid": {"training.rounds": [10, 20]}}})
    planned = parse_sweep(text, "sweep.yaml", tmp_path)
    short = scaled_sweep(planned, 0.5)
    assert [cell.scenario.training.rounds for cell in short.cells] == [5, 10]
    assert [cell.name for cell in short.cells] == [cell.name for cell in planned.cells]


def test_targets_of_the_paper_are_no_part_of_the_names_of_cells(tmp_path):
    cells = [{"seed": 1, "paper.accuracy": 90.5}, {"seed": 2, "paper.accuracy": 91}]
    text = yaml.safe_dump({**SCENARIO, "paper": {"place": "Table 1"}, "sweep": {"list": cells}})
    planned = parse_sweep(text, "sweep.yaml", tmp_path)
    assert [cell.name for cell in planned.cells] == ["seed=1", "seed=2"]
    assert [cell.scenario.paper.accuracy for cell in planned.cells] == [90.5, 91]


def test_a_target_is_in_a_range(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump({**SCENARIO, "paper": {"place": "Table 1", "accuracy": 101}}))
    with pytest.raises(ScenarioError, match=r"paper.accuracy is 101; must be .* 100"):
        load_scenario(path)
