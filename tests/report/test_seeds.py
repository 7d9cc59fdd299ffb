"""Means over seeds count each seed once, and runs that came to their end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hand_made_runs import waiting_fleet
from reported_runs import SCENARIO, train

from edgesim.code_version import code_version
from edgesim.report.ends import device_table
from edgesim.report.figures.comparison import groups_table
from edgesim.report.figures.curves import curve_figures
from edgesim.report.paper import required_paper_table
from edgesim.report.provenance import unlike_code
from edgesim.report.report import report_page
from edgesim.report.run_settings import groups_of
from edgesim.report.runs import load_runs
from edgesim.report.seeds import in_means, one_per_seed, repeated_seeds
from edgesim.report.units import percent

PLAIN = SCENARIO | {
    "fleet": {"devices": 3},
    "network": {},
    "training": {"rounds": 4, "optimizer": {"lr": 0.05}},
    "evaluation": {"every_rounds": 1, "samples": 50},
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    return [train(folder / f"{s}", f"seed={s}", scenario=PLAIN) for s in (1, 2, 3)]


def stopped(run, evaluations):
    """The run as if it had been stopped after so many evaluations."""
    number = (run.evaluations["model"] == "consensus").cumsum()
    kept = run.evaluations[number <= evaluations]
    return replace(run, run=replace(run.run, evaluations=kept, missing=("summary",)))


def means_of(runs):
    figures = {figure.key: figure for figure in curve_figures(runs)}
    return figures["accuracy"]


def table_of(runs):
    return groups_table(runs, [device_table(run) for run in runs])


def last_accuracy(run):
    return run.consensus["accuracy"].iloc[-1]


def test_a_table_of_means_counts_finished_runs(places):
    first, second, third = load_runs(places)
    found = table_of([first, stopped(second, 1), third])
    row = dict(zip(found.columns, found.rows[0], strict=True))
    assert row["runs"] == "2"
    mean = np.mean([last_accuracy(first), last_accuracy(third)])
    assert row["averaged model"].startswith(f"{percent(mean)} +- ")
    assert f"{first.group}: 2 of 3 runs are finished; the others do not count." in found.notes


def test_a_group_without_a_finished_run_has_no_means_in_the_table(places):
    runs = [stopped(run, 1) for run in load_runs(places)]
    found = table_of(runs)
    assert found.rows == ((runs[0].group, "0"),)
    assert f"{runs[0].group}: none of 3 runs is finished." in found.notes


def test_a_curve_of_means_is_of_finished_runs(places):
    first, second, third = load_runs(places)
    figure = means_of([first, stopped(second, 1), third])
    means = figure.tables["means"]
    assert set(means["runs"]) == {2}
    assert means["mean"].iloc[-1] == pytest.approx(
        (last_accuracy(first) + last_accuracy(third)) / 2
    )
    assert figure.caption.endswith(f"with the seed of another: {second.label}.")


def test_a_curve_of_means_ends_where_one_of_its_runs_does(places):
    runs = [stopped(run, number) for run, number in zip(load_runs(places), (4, 2, 3), strict=True)]
    means = means_of(runs).tables["means"]
    assert list(means["evaluation"]) == [0, 1]
    assert set(means["runs"]) == {3}


def test_a_mean_lies_nowhere_on_an_axis_that_is_not_known_of_all_runs(places):
    first, second, _ = load_runs(places)
    evaluations = second.evaluations.astype({"total_sent_bytes": "Int64"})
    is_last = evaluations["round"] == evaluations["round"].max()
    evaluations.loc[is_last, "total_sent_bytes"] = None
    second = replace(second, run=replace(second.run, evaluations=evaluations))
    figure = means_of([first, second])
    means = figure.tables["means"]
    assert means["fleet_sent_bytes"].isna().tolist() == [False, False, False, True]
    assert means["mean"].notna().all()
    assert f"Against bytes sent the curve of {second.label} ends early" in figure.caption


def test_a_seed_counts_once(places):
    """Of two runs with one seed the finished one counts, and the report names the other."""
    first, again, second = load_runs([places[0], places[0], places[1]])
    unfinished = stopped(first, 1)
    assert one_per_seed([unfinished, again, second]) == [again, second]
    assert in_means([unfinished, again, second]) == [again, second]
    found = table_of([first, again, second])
    assert dict(zip(found.columns, found.rows[0], strict=True))["runs"] == "2"
    assert set(means_of([first, again, second]).tables["means"]["runs"]) == {2}
    (said,) = repeated_seeds([first, again, second])
    assert said.endswith(
        "has the settings and the seed of " + first.place + "; means count the latter alone."
    )
    assert said in report_page([first, again, second])
    assert table_of([first, again]) is None


@pytest.mark.parametrize(
    ("names", "are_groups"), [("aab", False), ("aaa", False), ("abb", True), ("abc", False)]
)
def test_names_are_groups_where_each_has_settings_of_its_own(names, are_groups):
    """Of the three runs the last two have the same settings, too many for a label."""
    some = {"lr": 0.05, "momentum": 0.5, "nesterov": False, "weight_decay": 0.001, "clip": 1.5}
    alike = {name: 2 * value for name, value in some.items()}
    runs = [
        waiting_fleet(
            name=name, seed=seed, training={"optimizer": settings}, evaluation={"samples": None}
        )
        for seed, (name, settings) in enumerate(zip(names, (some, alike, alike), strict=True))
    ]
    groups = groups_of(runs)
    assert groups[0] != groups[1] == groups[2]
    assert (groups == list(names)) == are_groups


def test_a_row_of_the_paper_counts_a_seed_once(places):
    runs = load_runs([places[0], places[0], places[1]], are_compared=False)
    target = {"paper": {"place": "Table 3", "accuracy": 84.49, "epochs": 200}}
    runs = [replace(run, settings={**run.settings, **target}, scenario=None) for run in runs]
    found = required_paper_table(runs)
    row = dict(zip(found.columns, found.rows[0], strict=True))
    assert row["runs"] == "2"
    assert repeated_seeds(runs)[0] in found.notes


def test_runs_that_different_code_has_made_are_named(places):
    first, second, third = load_runs(places)
    assert not unlike_code([first, second, third])
    code = {"digest": "0123456789abcdef", "commit": "abc"}
    other = replace(second, environment={**second.environment, "code": code})
    unknown = replace(third, environment={**third.environment, "code": {}})
    (said,) = unlike_code([first, other, unknown])
    here = f"edgesim {code_version().version}"
    assert said.endswith(
        f"{second.label} by {here} (commit abc, code 01234567); "
        f"{third.label} by {here} (code not on record)."
    )
    assert said in report_page([first, other, unknown])
