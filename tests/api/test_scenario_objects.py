"""Scenarios as objects: what Python code makes of one is checked like a file."""

import pytest

import edgesim
from edgesim.scenario.plain import plain_value

OWN = """
import torch

class {name}(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def forward(self, inputs):
        return super().forward(inputs.flatten(1))
"""


@pytest.fixture
def scenario():
    return edgesim.load_scenario("quickstart")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeed": 4}, "seeed is an unknown key; did you mean seed?"),
        ({"seed": "x"}, "seed is the text 'x'; must be a whole number"),
        ({"training": {"epoch": 1}}, "training.epoch is an unknown key; did you mean epochs?"),
        ({"training": {"epochs": -3}}, "training.epochs is -3; must be a whole number from 1"),
        ({"training": {"rounds": 7}}, "training.rounds is set beside epochs"),
        ({"gossip": {"averaging_rate": 7.0}}, "gossip.averaging_rate is 7.0; must be a number in"),
        ({"model": {"precision": "int4"}}, "model.precision is the text 'int4'; must be one of"),
    ],
)
def test_what_model_copy_makes_is_checked(scenario, changes, said):
    """Pydantic's own way to change an object looks at nothing."""
    changes = {
        key: getattr(scenario, key).model_copy(update=of_section)
        if isinstance(of_section, dict)
        else of_section
        for key, of_section in changes.items()
    }
    changed = scenario.model_copy(update=changes)
    for use in (edgesim.validate, edgesim.load_scenario, edgesim.run):
        with pytest.raises(edgesim.ScenarioError) as raised:
            use(changed)
        assert said in str(raised.value)
        assert raised.value.__cause__ is None  # a notebook would show pydantic's words too
        assert raised.value.__suppress_context__


def test_what_model_copy_makes_right_is_taken(scenario):
    data = scenario.data.model_copy(update={"batch_size": 4})
    changed = scenario.model_copy(update={"data": data})
    assert edgesim.load_scenario(changed) == changed
    assert edgesim.load_scenario(scenario, data__batch_size=4) == changed


def test_a_scenario_that_is_set_in_place_says_how_another_is_made(scenario):
    with pytest.raises(edgesim.ScenarioError, match=r"epochs: .*load_scenario\(scenario, "):
        scenario.training.epochs = 3


@pytest.mark.parametrize("mode", ["python", "json"])
def test_a_dump_of_an_object_is_a_scenario(scenario, mode):
    assert edgesim.load_scenario(scenario.model_dump(mode=mode)) == scenario
    assert plain_value(scenario) == scenario.model_dump(mode="json")


def test_overrides_as_a_text_are_refused(scenario):
    with pytest.raises(edgesim.ScenarioError, match=r"must be a list, \['seed=3'\]"):
        edgesim.load_scenario(scenario, "seed=3")


def test_an_object_keeps_the_code_that_it_has_read(scenario, tmp_path):
    """So does the scenario of a run, whose files may be elsewhere by now."""
    file = tmp_path / "own.py"
    file.write_text(OWN.format(name="Mine"))
    mine = edgesim.load_scenario(scenario, model={"name": f"{file}:Mine", "precision": "fp32"})
    file.unlink()
    again = edgesim.load_scenario(mine, seed=2)
    assert again.model == mine.model == edgesim.load_scenario(mine).model
    file.write_text(OWN.format(name="Other"))
    assert "Mine" in edgesim.load_scenario(mine, seed=3).model.name.source
