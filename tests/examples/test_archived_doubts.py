"""What puts the results of an own part in doubt is kept with them."""

from __future__ import annotations

import pytest
from broken_examples import ALGORITHM, broken
from runs_of_examples import FREE, train

from edgesim.report.report import report_page
from edgesim.report.runs import load_runs

CROWDED = {  # three messages at once are more than are tried before a run
    "state.u += arriving * share.push_weight": (
        "state.u += arriving * share.push_weight * (1 + 0.01 * (len(received) > 2))"
    )
}
COMPLETE = "topology={kind: complete}"


def warnings_of(tmp_path, changes, *overrides):
    path, _ = broken(tmp_path, ALGORITHM, changes)
    run = train(path, tmp_path / "run", *overrides, "evaluation.samples=null", inline=True)
    told = [said for said in run.summary["warnings"] if said.startswith("gossip.")]
    return run, told


def test_push_weights_whose_sum_has_changed_are_told_of_at_the_end(tmp_path):
    _, (told,) = warnings_of(tmp_path, CROWDED, COMPLETE)
    assert told.startswith("gossip.algorithm: the sum of push weights over devices was 4 at the")
    assert "start and is 4.0" in told


@pytest.mark.parametrize("pace", [(), FREE], ids=["lockstep", "free"])
def test_nothing_is_said_where_it_has_not(tmp_path, pace):
    irregular = "topology={kind: erdos_renyi, probability: 0.5}"
    _, told = warnings_of(tmp_path, {}, irregular, *pace)
    assert told == []


def test_who_left_took_mass_along(tmp_path):
    leaves = "fleet.churn={leaves: [{device: 2, round: 2}]}"
    _, told = warnings_of(tmp_path, CROWDED, COMPLETE, leaves)
    assert told == []


def test_a_moving_average_is_told_of_by_summary_and_report(tmp_path):
    """It was noticed before the run, and whoever reads the results was not there."""
    changes = {"state.x, scale=-leaving": "state.x, scale=-0.9 * leaving"}
    run, (told,) = warnings_of(tmp_path, changes)
    assert told.startswith("gossip.algorithm: one exchange changes the sum of x over devices by")
    page = report_page(load_runs([run.path]))
    assert "gossip moves the average of the models" in page
    assert "nothing went wrong" not in page
