"""What Python code may not give to edgesim, and what it is told."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
import yaml

import edgesim

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios" / "quickstart.yaml"

BAD = {
    "unknown key": ({"gossip__avraging_rate": 1}, "did you mean averaging_rate"),
    "unknown section": ({"sede": 3}, "sede is no key of a scenario and no argument; did you mean"),
    "value": ({"data__partition__skew": 1.4}, "argument data.partition.skew=1.4: data.partition"),
    "no plain value": (
        {"seed": object()},
        "seed is an object of type object; a scenario holds text, numbers, truth values, lists",
    ),
    "text for a number": ({"seed": "1"}, "seed is the text '1'; must be a whole number"),
}


@pytest.mark.parametrize(("overrides", "said"), BAD.values(), ids=BAD)
def test_bad_overrides_are_refused_with_their_remedy(overrides, said):
    with pytest.raises(edgesim.ScenarioError) as refused:
        edgesim.validate("quickstart", **overrides)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) <= 2


def of_main(kind):
    """As if a notebook had made it."""
    kind.__module__, kind.__qualname__ = "__main__", kind.__name__
    return kind


class Net(torch.nn.Module):
    """Many lines of text."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(9)))


OF_NOTEBOOK = of_main(type("Net", (Net,), {}))
SAVED = "save it in a file and write './parts.py:"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Net, "is the class Net; write './tests/api/test_refused_in_python.py:Net'"),
        (OF_NOTEBOOK, f"is the class Net; {SAVED}Net'"),
        (lambda: 1, f"is the function <lambda>; {SAVED}Name'"),
        (torch.nn.Identity, "is the class Identity; write 'torch.nn.modules.linear:Identity'"),
        (
            Net(),
            (
                "is an object of type Net; name its class, "
                "'./tests/api/test_refused_in_python.py:Net', and give its arguments in options"
            ),
        ),
        (
            OF_NOTEBOOK(),
            (
                "is an object of type Net; name its class, and give its arguments in options: "
                f"{SAVED}Net'"
            ),
        ),
        (
            nx.path_graph(3),
            f"is an object of type Graph; name a function that makes it: {SAVED}Name'",
        ),
        ({1}, "is an object of type set; a scenario holds text, numbers, truth values, lists and"),
        (np.float32, "is the class float32; "),
    ],
)
@pytest.mark.parametrize("form", ["mapping", "override", "sweep"])
def test_code_in_a_scenario_is_told_to_be_named(monkeypatch, form, value, said):
    monkeypatch.chdir(QUICKSTART.parents[1])
    calls = {
        "mapping": lambda: edgesim.validate({"model": {"name": value}}),
        "override": lambda: edgesim.validate("quickstart", model={"name": value}),
        "sweep": lambda: edgesim.sweep("quickstart", {"grid": {"model.name": [value]}}),
    }
    with pytest.raises(edgesim.ScenarioError) as refused:
        calls[form]()
    key = "sweep.grid.model.name[0]" if form == "sweep" else "model.name"
    assert str(refused.value).startswith(f"{key} {said}")
    assert "\n" not in str(refused.value)


def test_a_class_of_a_notebook_is_told_to_be_saved():
    with pytest.raises(edgesim.ScenarioError) as refused:
        edgesim.validate("quickstart", model={"name": "__main__:Net"})
    assert "model.name is __main__:Net; no other process has what" in str(refused.value)
    assert str(refused.value).endswith("save it in a file and write ./parts.py:Net")


def test_a_range_is_a_list():
    checked = edgesim.validate("quickstart", training__schedule__milestones=range(3, 6))
    assert checked.scenario.training.schedule.milestones == (3, 4, 5)


def test_a_misspelt_argument_is_refused_with_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(edgesim.ScenarioError, match=r"inlin is no key .* did you mean inline"):
        edgesim.run("quickstart", inlin=True)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_mapping_is_refused_without_lines_of_a_file():
    with pytest.raises(edgesim.ScenarioError, match=r"^the scenario given: sed is an unknown key"):
        edgesim.validate(yaml.safe_load(QUICKSTART.read_text()) | {"sed": 3})


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(edgesim.ScenarioError, match="did you mean quickstart"):
        edgesim.validate("quikstart")
    with pytest.raises(edgesim.ScenarioError, match="edgesim list scenarios"):
        edgesim.validate("zzz")
