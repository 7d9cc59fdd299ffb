"""Curves lie where their evaluations do, and say of what they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import vl_convert
from reported_runs import SCENARIO, train

from edgesim.report.ends import device_table
from edgesim.report.figures import curves
from edgesim.report.figures.curves import curve_figures
from edgesim.report.figures.figure import csv_text
from edgesim.report.runs import load_runs
from edgesim.report.summary import in_short, results_table
from edgesim.report.units import percent
from edgesim.results.columns import EVALUATIONS

PLAIN = SCENARIO | {
    "fleet": {"devices": 3},
    "network": {},
    "training": {"rounds": 4, "optimizer": {"lr": 0.05}},
    "evaluation": {
        "every_rounds": 1,
        "samples": 40,
        "device_models": "every",
        "device_sample": 2,
        "gossip_rounds": 3,
    },
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without clocks."""
    return load_runs([train(tmp_path_factory.mktemp("curves"), scenario=PLAIN)])[0]


def figures_of(*runs):
    return {figure.key: figure for figure in curve_figures(runs)}


def num_dots(figure, label):
    """Evaluations that are drawn in a view."""
    (view,) = [view for view in figure.views if view.label == label]
    spec = view.spec | {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 500,
        "datasets": {name: csv_text(table) for name, table in figure.tables.items()},
    }
    return vl_convert.vegalite_to_svg(spec).count('aria-roledescription="point"')


def labelled(run, label):
    return replace(run, label=label, group=label)


def test_evaluations_are_drawn_only_where_their_place_is_known(plain, free):
    """A run without a clock has no place at virtual time 0."""
    figure = figures_of(labelled(free, "with"), labelled(plain, "without"))["accuracy"]
    assert num_dots(figure, "bytes sent") == len(free.consensus) + len(plain.consensus)
    assert num_dots(figure, "virtual time") == len(free.consensus)
    assert "Against virtual time there is no curve of without: it is not known." in figure.caption
    assert "no curve of with:" not in figure.caption


def test_the_curve_of_an_interrupted_run_ends_where_its_sums_do(plain):
    evaluations = plain.evaluations.astype({"total_sent_bytes": "Int64"})
    is_last = evaluations["round"] == evaluations["round"].max()
    evaluations.loc[is_last, "total_sent_bytes"] = None
    figure = figures_of(replace(plain, run=replace(plain.run, evaluations=evaluations)))["loss"]
    assert num_dots(figure, "rounds") == 4 * 3  # the averaged model and two devices
    assert num_dots(figure, "bytes sent") == 3 * 3
    assert f"Against bytes sent the curve of {plain.label} ends early" in figure.caption


def test_bands_at_free_pace_are_over_all_devices_of_an_evaluation(free, monkeypatch):
    """Each device has done another number of rounds by then."""
    monkeypatch.setattr(curves, "MOST_LINES", 2)
    figure = figures_of(free)["accuracy"]
    bands = figure.tables["bands"].set_index("evaluation")
    assert bands.index.is_unique
    table = free.evaluations
    number = (table["model"] == "consensus").cumsum() - 1
    of_devices = table[table["model"] == "device"]
    own = of_devices.groupby(number)["accuracy"]
    np.testing.assert_allclose(bands["lowest"], own.min())
    np.testing.assert_allclose(bands["median"], own.median())
    np.testing.assert_allclose(bands["highest"], own.max())
    assert list(bands["virtual_time_s"]) == list(free.consensus["virtual_time_s"])


def test_rounds_are_no_axis_where_their_mean_falls(plain, free):
    rounds = free.consensus["round"]
    assert (rounds.diff() < 0).any()
    labels = [view.label for view in figures_of(free)["accuracy"].views]
    assert labels == ["virtual time", "bytes sent", "energy"]
    assert "rounds" in [view.label for view in figures_of(plain)["accuracy"].views]
    for run in (plain, free):  # evaluations are joined in their order
        *_, lines = figures_of(run)["accuracy"].views[0].spec["layer"]
        assert lines["encoding"]["order"]["field"] == "evaluation"
    meaning = {column.name: column.meaning for column in EVALUATIONS}["round"]
    assert "mean over the devices present" in meaning


def test_results_after_further_gossip_are_shown(plain):
    figure = figures_of(plain)["after-gossip-accuracy"]
    assert figure.title == "Accuracy after further gossip"
    assert set(figure.tables["evaluations"]["series"]) > {"whole fleet"}
    assert "averaged model" not in set(figure.tables["evaluations"]["series"])
    rows = dict(row[:2] for row in results_table([plain], [device_table(plain)]).rows)
    mean = plain.consensus["after_gossip_accuracy"].iloc[-1]
    assert rows["accuracy after 3 further rounds of gossip, mean"] == percent(mean)
    of_two = figures_of(labelled(plain, "a"), labelled(plain, "b"))["after-gossip-loss"]
    assert "averaged model" not in of_two.caption


def test_a_sample_of_devices_and_of_test_samples_is_told(plain):
    (line,) = [text for text in in_short(plain, device_table(plain)) if "classifies" in text]
    assert "of 40 of 355 test samples correctly" in line
    assert "; the own models of 2 of 3 devices " in line
    figures = figures_of(plain)
    for key in ("accuracy", "loss"):
        assert "Evaluated on 40 of 355 test samples." in figures[key].caption
        assert "Own models were evaluated of 2 of 3 devices." in figures[key].caption
    assert "Evaluated on" not in figures["consensus-distance"].caption
    rows = dict(row[:2] for row in results_table([plain], [device_table(plain)]).rows)
    assert rows["  evaluated on"] == "40 of 355 test samples"
    assert rows["  devices evaluated"] == "2 of 3"


def test_all_devices_and_samples_need_no_words(free):
    settings = free.settings | {"evaluation": free.settings["evaluation"] | {"samples": 355}}
    whole = replace(free, settings=settings)
    figure = figures_of(whole)["accuracy"]
    assert "Evaluated on" not in figure.caption
    assert any("of the test samples correctly" in t for t in in_short(whole, device_table(whole)))
