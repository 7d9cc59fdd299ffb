"""Every scenario in the README is a whole file that can be copied and passes its checks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import networkx as nx
import pytest
import yaml

from edgesim.assembly.budget import check_memory
from edgesim.assembly.preparation import prepare
from edgesim.cli.listing import catalog_table
from edgesim.scenario import load_scenario
from edgesim.scenario.template import new_scenario
from edgesim.sweeps.run import read_sweep

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/edgesim (.*)$", README, re.MULTILINE)


@pytest.mark.parametrize("text", EXAMPLES, ids=[yaml.safe_load(text)["name"] for text in EXAMPLES])
def test_an_example_is_a_whole_scenario(text, tmp_path):
    path = tmp_path / "copied.yaml"
    path.write_text(text)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")  # as it stands beside the README
    campus = nx.relabel_nodes(
        nx.complete_graph(4), dict(enumerate(("gateway", "attic", "cellar", "hall")))
    )
    nx.write_graphml(campus, tmp_path / "campus.graphml")  # the user's own file
    scenario = load_scenario(path)
    prepared = prepare(scenario, reads_images=False)
    check_memory(scenario, schedule=prepared.schedule)
    assert prepared.training.num_rounds > 0


def test_there_are_examples_of_what_the_readme_speaks_of():
    assert len(EXAMPLES) >= 4
    whole = "\n".join(EXAMPLES)
    for words in ("pace: free", "kind: trace", "churn:", "hardware:", "network:"):
        assert words in whole


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_what_there_is(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = shlex.split(command, comments=True)
    match words:
        case ["list", what, *name]:
            assert catalog_table(what, *(name or [None])).rows
        case ["run" | "validate" | "cost", path, *_]:
            places = [place + 1 for place, word in enumerate(words) if word == "--set"]
            load_scenario(path, [words[place] for place in places])
        case ["sweep", name]:
            assert len(read_sweep(name).cells) > 1
        case ["new", name]:
            assert new_scenario(name, "quickstart")
        case ["resume", _] | ["dashboard"]:
            pass
        case _:
            pytest.fail(f"the README shows a command that nobody knows: {command}")
