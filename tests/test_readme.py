"""Scenarios in README and docs are whole files that pass their checks, or parts of such files."""

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
from edgesim.scenario.files import parse_scenario
from edgesim.scenario.template import new_scenario
from edgesim.sweeps.run import read_sweep

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCES = [
    (page.stem, language, text)
    for page in PAGES
    for language, text in re.findall(
        r"^```([^\n`]*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
    )
]
BLOCKS = [(page, text) for page, language, text in FENCES if language == "yaml"]
EXAMPLES = {
    f"{page}-{whole['name']}": text
    for page, text in BLOCKS
    if page != "tutorial" and "name" in (whole := yaml.safe_load(text)) and "sweep" not in whole
}
PARTS = {
    f"{page}-{next(iter(yaml.safe_load(text)))}": yaml.safe_load(text)
    for page, text in BLOCKS
    if "name" not in yaml.safe_load(text)
}
FILES = [  # scenarios of texts need files and a network; test_scenario_files.py loads them
    yaml.safe_load(path.read_text())
    for folder in ("examples", "scenarios/text")
    for path in (ROOT / folder).glob("*.yaml")
]
SHELL = "\n".join(text for _, language, text in FENCES if language in ("", "sh"))
COMMANDS = re.findall(r"^(?:\.venv/bin/)?edgesim (.*)$", SHELL.replace("\\\n", ""), re.MULTILINE)
OWN = re.compile(r"[A-Z]{3,}|\b[A-Z]\.yaml|://|/shared/|\.\.\.")


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_is_a_whole_scenario(text, tmp_path):
    path = tmp_path / "copied.yaml"
    path.write_text(text)
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")  # as it stands beside the README
    campus = nx.relabel_nodes(
        nx.complete_graph(4), dict(enumerate(("gateway", "attic", "cellar", "hall")))
    )
    nx.write_graphml(campus, tmp_path / "campus.graphml")  # the user's own file
    scenario = load_scenario(path)
    if scenario.data.source == "cifar10":
        return  # its files are the user's
    prepared = prepare(scenario, reads_images=False)
    check_memory(prepared.scenario, schedule=prepared.schedule)
    assert prepared.training.num_rounds > 0


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_part_of_a_scenario_is_one_of_an_example_that_runs_or_fits_a_whole_one(part):
    if any(is_in(part, file) for file in FILES):
        return
    if block := part.pop("sweep", None):
        assert read_sweep("quickstart", block).cells
    whole = yaml.safe_load((ROOT / "scenarios" / "quickstart.yaml").read_text()) | part
    parse_scenario(yaml.safe_dump(whole), "a part", ROOT / "examples")


def is_in(part, whole):
    """Whether a mapping holds all that a part of it says."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_in(value, whole[key]) for key, value in part.items())
    return part == whole


def test_there_are_examples_of_each_kind_of_fleet():
    assert len(EXAMPLES) >= 4
    whole = "\n".join(EXAMPLES.values())
    for words in ("pace: free", "kind: trace", "churn:", "hardware:", "network:"):
        assert words in whole


def _sets(words):
    return [words[place + 1] for place, word in enumerate(words) if word == "--set"]


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_a_command_names_what_there_is(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = shlex.split(command, comments=True)
    if OWN.search(command.partition("#")[0]):
        return  # of files that the reader has
    match words:
        case ["list", "schema", *_]:
            pass
        case ["list", what, *name]:
            assert catalog_table(what, *(name or [None])).rows
        case ["sweep", name] | ["validate" | "cost", "sweeps/digits_comparison" as name, *_]:
            assert len(read_sweep(name, overrides=_sets(words)).cells) > 1
        case ["run" | "validate" | "cost", path, *_]:
            load_scenario(path, _sets(words))
        case ["new", name]:
            assert new_scenario(name, "quickstart")
        case ["calibrate" | "dashboard" | "report" | "resume", *_]:
            pass
        case _:
            pytest.fail(f"a page shows a command that nobody knows: {command}")
