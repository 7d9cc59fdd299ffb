"""examples/texts.py: a CSV file of texts becomes rows of tokens, and is trained on."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import yaml
from runs_of_examples import EXAMPLES, console
from small_texts import TOPICS, text_scenario

from edgesim.assembly.preparation import prepare
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario


def test_a_file_of_texts_is_trained_on_by_author(tmp_path):
    pytest.importorskip("transformers")
    path, rng = tmp_path / "texts.csv", np.random.default_rng(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "author"])
        for row in range(60):
            words = rng.choice(TOPICS[row % 4].split(), 5)
            rows.writerow([" ".join(words), row % 4, f"author {row // 15}"])
    scenario = text_scenario(tmp_path)
    scenario["data"] |= {
        "source": f"{EXAMPLES / 'texts.py'}:Texts",
        "path": str(path),
        "partition": {"kind": "by_owner", "column": "author"},
    }
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(scenario))
    found = prepare(load_scenario(file))
    assert found.dataset.num_classes == 4
    assert found.dataset.image_shape == (2, 14)
    assert [len(part) for part in found.held_out] == [3] * 4
    result = run_scenario(found, tmp_path / "run", console=console(), inline=True)
    assert (result.path / "evaluations.parquet").is_file()
