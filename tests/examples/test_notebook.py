"""The notebook in examples/ runs, cell by cell, within a running event loop as a kernel has one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import matplotlib as mpl
from thorough import thorough_only

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "first_comparison.ipynb"


@thorough_only
def test_every_cell_of_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    names: dict[str, object] = {"__name__": "__main__"}

    async def kernel():
        for number, text in enumerate(code):
            exec(compile(text, f"cell {number}", "exec"), names)

    asyncio.run(kernel())
    assert len(names["results"].final) == 4
    assert [evaluation.epoch for evaluation in names["seen"]] == [*map(float, range(1, 9))]
    assert names["results"].final["accuracy"].min() > 0.6, "untrained models compare nothing"
