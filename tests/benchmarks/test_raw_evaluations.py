"""What docs/measured keeps of a run is what the run recorded."""

from __future__ import annotations

import json

import pytest
from raw_evaluations import add
from small_fleets import killed_at_its_end, small_scenario

import edgesim
from edgesim.results.load import UnfinishedRunWarning

AS_THE_AUTHORS = {"every_rounds": 2, "samples": 40, "gossip_rounds": 3}


def train(folder, seed):
    scenario = small_scenario(seed=seed, training={"rounds": 4}, evaluation=AS_THE_AUTHORS)
    return edgesim.run(scenario, out=folder, inline=True)


def test_a_run_is_kept_once_with_the_accuracies_that_it_recorded(tmp_path):
    file, run = tmp_path / "kept.json", train(tmp_path / "a", 1)
    other = train(tmp_path / "b", 2)
    add(file, [tmp_path / "a"], "Zen 4")
    content = add(file, [tmp_path / "b", tmp_path / "a"], "Zen 4")
    assert content == json.loads(file.read_text())
    assert [cell["cell"] for cell in content["cells"]] == ["b", "a"]
    for cell, of in zip(content["cells"], (other, run), strict=True):
        assert cell["finished"]
        assert cell["rounds"] == 4
        averaged = of.evaluations[of.evaluations["model"] == "consensus"]
        assert [one["averaged"] for one in cell["evaluations"]] == averaged["accuracy"].tolist()
        assert cell["sent_bytes"] == of.summary["sent_bytes"]
        devices = of.evaluations[of.evaluations["model"] == "device"]
        assert cell["evaluations"][-1]["devices"] == devices["accuracy"].tolist()
        after = devices["after_gossip_accuracy"]
        assert cell["evaluations"][-1]["as_the_authors"] == pytest.approx(after.mean())


def test_a_run_without_an_evaluation_is_refused(tmp_path, monkeypatch):
    with killed_at_its_end(monkeypatch):
        train(tmp_path / "a", 1)
    (tmp_path / "a" / "evaluations.parquet").unlink(missing_ok=True)  # of round 2
    with pytest.warns(UnfinishedRunWarning), pytest.raises(SystemExit, match="no evaluation yet"):
        add(tmp_path / "kept.json", [tmp_path / "a"], "Zen 4")
    assert not (tmp_path / "kept.json").exists()
