"""Sweeps whose cells have many cores, each by a Ray of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pandas as pd
import pytest
from process_trees import MARK, marked, wait_for, with_interrupts
from thorough import thorough_only

import edgesim
from edgesim.cli import main

SMALL = {
    "fleet.devices": 4,
    "training.rounds": 4,
    "data.train_samples": 80,
    "evaluation": {"every_rounds": 2, "samples": 40},
}
GRID = {"grid": {"seed": [1, 2]}}
pytestmark = pytest.mark.ray


@thorough_only
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_end_in_the_middle_leaves_nothing_and_cells_go_on_in_either_way(
    tmp_path, monkeypatch, capsys, sent
):
    """The first cell is by Ray, the second on one core; both have the bits of an inline sweep."""
    settings = [f"{key}={json.dumps(value)}" for key, value in SMALL.items()]
    scenario, place = tmp_path / "s.yaml", tmp_path / "s"
    text = edgesim.dump_scenario(edgesim.load_scenario("quickstart"))
    scenario.write_text(f"{text}sweep: {json.dumps(GRID)}\n")
    arguments = ["sweep", str(scenario), "--out", str(place)]
    arguments += [word for setting in settings for word in ("--set", setting)]
    mark = str(tmp_path)
    process = subprocess.Popen(
        with_interrupts(signal.SIG_DFL, sys.executable, "-m", "edgesim", *arguments, "--ray"),
        cwd=tmp_path,
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for((place / "seed=1" / "summary.json").is_file, process, look_s=0.05)
    process.send_signal(sent)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == (130 if sent == signal.SIGINT else -sent), output
    assert "Traceback" not in output
    wait_for(lambda: not marked(mark), None)
    assert not (place / "seed=2" / "summary.json").exists()
    assert json.loads((place / "seed=1" / "environment.json").read_text())["mode"] == "ray"

    monkeypatch.setattr(sys, "argv", ["edgesim", *arguments])
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main()
    signal.signal(signal.SIGTERM, handler)
    assert not ended.value.code
    assert "1 of 2 cells are finished already" in capsys.readouterr().out
    given = {key.replace(".", "__"): value for key, value in SMALL.items()}
    inline = edgesim.sweep("quickstart", GRID, out=tmp_path / "inline", **given)
    pd.testing.assert_frame_equal(edgesim.load_sweep(place).evaluations, inline.evaluations)
