"""examples/machines.yaml: a table without any code, each device with the rows of its machine."""

import pytest
from runs_of_examples import EXAMPLES, INT8, resume, train, train_and_kill
from small_fleets import assert_same_bits

from edgesim.api.checks import prepared_table
from edgesim.assembly.preparation import prepare
from edgesim.errors import ScenarioError
from edgesim.scenario import load_scenario
from edgesim.study.iteration import iteration_costs

NAME = "machines.yaml"


def scenario(*overrides):
    return load_scenario(EXAMPLES / NAME, overrides)


def test_each_device_has_the_rows_of_its_machine():
    run = prepare(scenario())
    for device, indices in enumerate(run.indices):
        assert set(run.dataset.columns["machine"][indices]) == {f"mill-{device + 1}"}
    assert {len(run.dataset.train) + len(run.dataset.test)} == {480}
    assert ("model", "mlp, 131 parameters") in prepared_table(run).rows


@pytest.mark.parametrize("precision", [(), INT8], ids=["fp32", "int8"])
def test_a_fleet_learns_it(tmp_path, precision):
    whole = ("training.rounds=60", "evaluation={every_rounds: 60}", *precision)
    run = train(NAME, tmp_path / "run", *whole, inline=True)
    assert run.summary["consensus_accuracy"] > 0.8  # the most frequent state has 0.4


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    undisturbed = train(NAME, tmp_path / "undisturbed", inline=True)
    assert_same_bits(undisturbed, resume(train_and_kill(NAME, tmp_path / "run", monkeypatch)))


def test_a_quantity_is_a_regression(tmp_path):
    by_temperature = (
        "data.options={target: temperature_c, features: [vibration_mm_s, current_a]}",
        "training={task: regression, rounds: 4, optimizer: {lr: 0.0001}}",
    )
    run = train(NAME, tmp_path / "run", *by_temperature, inline=True)
    assert "mean_absolute_error" in run.summary["measures"]


def test_a_target_that_does_not_fit_the_task_is_refused_with_what_would():
    whole = "data.options={target: speed_rpm, features: [current_a]}"
    with pytest.raises(ScenarioError, match=r"give data\.options\.target_is: quantities, or c"):
        prepare(scenario(whole, "training.task=regression"))
    fractions = "data.options={target: current_a, features: [speed_rpm]}"
    with pytest.raises(ScenarioError, match=r"choose training\.task: regression, or data\.source"):
        prepare(scenario(fractions))


def test_its_costs_are_counted_without_a_run():
    costs = iteration_costs(scenario("fleet.profile=raspberry-pi-4b"))
    assert costs.studied.model.num_trainable == 131


def test_an_owner_that_is_an_input_is_refused():
    with pytest.raises(ScenarioError, match="column is speed_rpm, which is no column of the train"):
        prepare(scenario("data.partition.column=speed_rpm"))
