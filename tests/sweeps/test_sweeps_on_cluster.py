"""Sweeps whose cells run on a Ray cluster."""

from __future__ import annotations

import pandas as pd
import pytest
from thorough import thorough_only

import edgesim
from edgesim.results.columns import WALL_COLUMNS
from edgesim.storage.store import Store
from edgesim.sweeps import cluster

SMALL = {
    "fleet__devices": 4,
    "training__rounds": 4,
    "data__train_samples": 80,
    "evaluation": {"every_rounds": 2, "samples": 40},
}
pytestmark = pytest.mark.ray


@thorough_only
@pytest.mark.usefixtures("started_ray")
def test_cells_have_the_bits_of_this_machine_and_one_that_fails_is_named(tmp_path):
    block = {"grid": {"training.optimizer.lr": [0.05, 1e30]}}
    begun = []
    with pytest.warns(edgesim.SweepWarning, match=r"1 cells failed: lr=1\.0e\+30: .* diverged"):
        results = edgesim.sweep(
            "quickstart",
            block,
            out=tmp_path / "there",
            address="patched",
            on_event=lambda event: begun.append((event.cell, event.kind)),
            **SMALL,
        )
    assert ("lr=0.05", "begun") in begun
    assert ("lr=0.05", "done") in begun
    assert list(results.missing) == ["lr=1.0e+30"]
    alone = edgesim.run("quickstart", out=tmp_path / "here", inline=True, **SMALL)
    walls = list(WALL_COLUMNS)
    pd.testing.assert_frame_equal(
        results.run("lr=0.05").rounds.drop(columns=walls), alone.rounds.drop(columns=walls)
    )


def test_a_folder_that_a_node_does_not_share_is_told(tmp_path):
    event = cluster._ended("cell", {}, Store.at(tmp_path))
    assert event.kind == "failed"
    assert "is another folder than here; name one by --out" in event.fields["text"]
