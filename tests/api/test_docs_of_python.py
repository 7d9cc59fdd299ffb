"""Examples of Python code in docs and README run, or are at least whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from thorough import thorough_only

from edgesim.sweeps.run import check_cells, read_sweep

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README", "docs/python", "docs/sweeps")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SINKS = {"edgesim.TensorBoard": "tensorboard", "edgesim.MLflow": "mlflow"}
BLOCKS = {
    f"{page}-{number}": block
    for page in PAGES
    for number, block in enumerate(PYTHON.findall((ROOT / f"{page}.md").read_text()))
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own use of SQLAlchemy
@pytest.mark.parametrize(
    "block",
    [
        # A sweep starts processes; tests/sweeps sweeps the same scenario.
        pytest.param(text, id=name, marks=thorough_only if "edgesim.sweep(" in text else ())
        for name, text in BLOCKS.items()
    ],
)
def test_an_example_runs(block, tmp_path, monkeypatch):
    for sink, package in SINKS.items():
        if sink in block:
            pytest.importorskip(package, reason=f"{package} is not installed (an extra)")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec"), {"__name__": "__main__"})


def test_there_are_examples():
    assert len(BLOCKS) >= 3


YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_file_of_a_sweep_is_whole_and_its_cells_can_run(tmp_path):
    block, part, sections = YAML.findall((ROOT / "docs" / "sweeps.md").read_text())
    (tmp_path / "rates.yaml").write_text(block)
    assert len(read_sweep("quickstart", yaml.safe_load(part)["sweep"]).cells) == 4
    compared = read_sweep("quickstart", yaml.safe_load(sections)["sweep"])
    found = {(c.settings["gossip.algorithm"], c.scenario.topology.kind) for c in compared.cells}
    assert found == {("choco", "ring"), ("gradient_push", "directed_ring")}
    assert check_cells(compared, "sections") is not None
    planned = read_sweep(tmp_path / "rates.yaml")
    assert len(planned.cells) == 2 * 2 * 2, "two rates, two seeds, two sizes of the fleet"
    assert check_cells(planned, "rates.yaml") is not None
