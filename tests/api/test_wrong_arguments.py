"""Arguments of functions that are of a wrong kind are told by their names."""

from __future__ import annotations

import pytest
import torch

import edgesim


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"on_evaluation": 3}, "on_evaluation is of type int; must be a function, or a list of"),
        ({"on_evaluation": [None]}, "on_evaluation: None is no function"),
        ({"sinks": edgesim.Sink()}, "sinks is of type Sink; must be a list of sinks"),
        (
            {"fleet__devices": 3, "fleet.devices": 4},
            "fleet.devices is given twice, with dots and with underscores",
        ),
    ],
)
def test_arguments_of_a_wrong_kind_are_told_by_name(arguments, problem):
    with pytest.raises(edgesim.ScenarioError, match=problem):
        edgesim.run("quickstart", inline=True, **arguments)


@pytest.mark.parametrize("workers", [0, -1, "two"])
def test_a_sweep_needs_a_worker(workers):
    with pytest.raises(edgesim.SweepError, match=r"workers is .*; must be a whole number from 1"):
        edgesim.sweep("sweeps/digits_comparison", workers=workers)


@pytest.mark.parametrize("scale", [0, 2, "half"])
def test_a_scale_is_a_share(scale):
    told = f"scale is {scale!r}; must be a number above 0 and at most 1"
    for train in (edgesim.run, edgesim.sweep):
        with pytest.raises(edgesim.ScenarioError, match=told):
            train(
                "sweeps/digits_comparison" if train is edgesim.sweep else "quickstart", scale=scale
            )


def test_cells_are_chosen_by_a_dict():
    with pytest.raises(edgesim.ScenarioError, match="str: keys with values are a dict, such as"):
        edgesim.sweep("sweeps/digits_comparison", only="seed=1")


def test_what_is_no_scenario_is_told():
    with pytest.raises(edgesim.ScenarioError, match="the scenario is None; must be a file, the na"):
        edgesim.run(None)


def test_settings_of_torch_that_models_cant_be_made_with_are_told():
    """A notebook may have set them long before."""
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(
            edgesim.EdgesimError, match=r"torch's default type is torch\.float64; mo"
        ):
            edgesim.validate("quickstart")
    finally:
        torch.set_default_dtype(torch.float32)
    with (
        torch.inference_mode(),
        pytest.raises(edgesim.EdgesimError, match=r"torch\.inference_mode\(\) is on, in which not"),
    ):
        edgesim.validate("quickstart")
