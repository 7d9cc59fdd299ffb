"""Several runs in one report: labels, settings that differ, curves and bands over seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reported_runs import SCENARIO, content, table, train

import edgesim
from edgesim.report.ends import device_table
from edgesim.report.errors import ReportError
from edgesim.report.figures.comparison import groups_table, spread
from edgesim.report.figures.curves import curve_figures
from edgesim.report.report import report_page, write_report
from edgesim.report.run_settings import (
    _without_folders,
    differing_settings,
    flat_settings,
    trained_alike,
)
from edgesim.report.runs import check_comparable, load_runs
from edgesim.report.units import percent, points
from edgesim.results.run_directory import RunDirectory

PLAIN = SCENARIO | {
    "fleet": {"devices": 3},
    "network": {},
    "training": {"rounds": 4, "optimizer": {"lr": 0.05}},
    "evaluation": {"every_rounds": 2, "samples": 50},
}
KEEP, SEED = "gossip.compressor.keep=0.5", "seed=4"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    overrides = {"first": (), "other-seed": (SEED,), "kept": (KEEP,), "kept-seed": (KEEP, SEED)}
    return [train(folder / name, *words, scenario=PLAIN) for name, words in overrides.items()]


def test_runs_are_named_by_what_differs(places):
    runs = load_runs([places[0], places[2]])
    assert [run.label for run in runs] == ["keep 0.2", "keep 0.5"]
    runs = load_runs(places)
    assert [run.label for run in runs] == [
        "keep 0.2, seed 3",
        "keep 0.2, seed 4",
        "keep 0.5, seed 3",
        "keep 0.5, seed 4",
    ]
    assert [run.group for run in runs] == ["keep 0.2", "keep 0.2", "keep 0.5", "keep 0.5"]
    assert {run.label for run in load_runs([places[0], places[0]])} == {"1: run", "2: run"}


MANY = (
    "model.precision=int8",
    "model.quantization.backend=reference",
    "training.optimizer.lr=0.01",
)


@pytest.fixture(scope="module")
def unlike(tmp_path_factory):
    """Runs with too many differing settings for a label, of which some follow from others."""
    folder = tmp_path_factory.mktemp("unlike")
    rate, identity = "gossip.averaging_rate=0.9", "gossip.compressor={kind: identity}"
    overrides = {"kept": (), "all": (rate, identity), "bits": (*MANY, "evaluation.samples=60")}
    return [train(folder / name, *words, scenario=PLAIN) for name, words in overrides.items()]


def test_a_long_label_keeps_what_tells_more_runs_apart(unlike):
    """Not the averaging rate, which stands before the compressor and follows from it."""
    (label, other, eight_bits) = (run.label for run in load_runs(unlike))
    assert "averaging_rate" not in label + other + eight_bits
    assert "compressor.kind top_k" in label
    assert "compressor.kind identity" in other
    assert len({label, other, eight_bits}) == 3


def test_a_setting_that_follows_from_another_is_shown(unlike):
    differing = differing_settings(load_runs(unlike))
    assert differing["model.norm"] == ["evonorm_s0", "evonorm_s0", "range_evonorm"]
    assert differing["gossip.compressor.values"] == ["fp32", "fp32", "int8"]


def test_the_gate_that_follows_from_the_precision_is_shown(tmp_path):
    norm, int8 = "model.norm=range_evonorm", MANY[:2]
    runs = load_runs([train(tmp_path / "a", norm), train(tmp_path / "b", norm, *int8)])
    assert differing_settings(runs)["model.gate"] == ["sigmoid", "hard_sigmoid"]
    labels = [run.label for run in runs]
    assert labels[0].startswith("precision fp32")
    assert not any("gate" in label or "values" in label for label in labels), "they follow"


def test_devices_of_a_graph_file_differ_by_name_and_its_links_by_content(tmp_path):
    """The file numbers devices in its own order, and its path stays when a link changes."""
    graph = tmp_path / "graph.csv"
    board = "{profile: raspberry-pi-4b"
    rest = f"{board}, names: [b, c]}}, {board}, name: d}}"
    places = []
    for name, watt_hours, mbps in (("one", 5, 10), ("two", 6, 20)):
        graph.write_text(f"source,target,bandwidth_mbps\nb,a,{mbps}\na,c,8\nc,d,8\nd,b,8\n")
        devices = f"fleet.devices=[{board}, name: a, battery_wh: {watt_hours}}}, {rest}]"
        settings = (devices, f"topology={{kind: file, path: {graph}}}")
        places.append(train(tmp_path / name, *settings, scenario=PLAIN))
    differing = differing_settings(load_runs(places))
    assert differing.pop("fleet.devices.a.battery_wh") == ["5.0", "6.0"]
    contents = differing.pop("content of graph.csv")
    assert len(set(contents)) == 2
    assert not differing


def with_samples(run, test, **data):
    """The run as if it had been evaluated on samples with this digest."""
    return replace(
        run,
        settings=run.settings | {"data": run.settings["data"] | data},
        environment=run.environment | {"samples": {"training": "0" * 32, "test": test}},
    )


def test_runs_on_other_files_of_the_same_dataset_are_told_apart(places):
    """CIFAR-10 from another folder, as JPEG: the path alone is no difference."""
    one, two = load_runs(places[:2])
    assert one.environment["samples"]["test"] == two.environment["samples"]["test"], "two seeds"
    alike = with_samples(one, "a" * 32), with_samples(two, "a" * 32, path="/elsewhere")
    assert trained_alike(alike[0]) == trained_alike(alike[1])
    pair = with_samples(one, "a" * 32), with_samples(two, "b" * 32, path="/elsewhere")
    assert differing_settings(pair)["content of test samples"] == ["a" * 8, "b" * 8]
    assert trained_alike(pair[0]) != trained_alike(pair[1])
    resized = pair[0], with_samples(two, "b" * 32, image_size=8)
    assert "data.image_size" in differing_settings(resized)
    assert "content of test samples" not in differing_settings(resized), "it follows"


def with_code(run, **digests):
    """The run as if parts of its scenario were one's own, with these digests."""
    data = run.settings["data"] | {"source": "/here/parts.py:Readings"}
    parts = {f"/here/parts.py:{name}": digest for name, digest in digests.items()}
    return replace(
        run,
        settings=run.settings | {"data": data},
        environment=run.environment | {"own_parts": parts},
    )


def test_runs_of_changed_own_code_are_told_apart_or_refused(places):
    """Two seeds of one scenario, between which the user edited a file."""
    one, two = load_runs(places[:2])
    assert trained_alike(with_code(one, net="a" * 32)) == trained_alike(
        with_code(two, net="a" * 32)
    )
    pair = with_code(one, net="a" * 32), with_code(two, net="b" * 32)
    assert differing_settings(pair)["content of parts.py"] == ["a" * 8, "b" * 8]
    assert trained_alike(pair[0]) != trained_alike(pair[1])
    check_comparable(pair)  # another model is compared on the same samples
    pair = with_code(one, Readings="a" * 32), with_code(two, Readings="b" * 32)
    with pytest.raises(ReportError, match=r"the code of data\.source was changed between the two"):
        check_comparable(pair)


@pytest.mark.parametrize(("source", "is_alike"), [("cifar10", True), ("image_folder", False)])
def test_the_folder_of_a_published_dataset_tells_no_runs_apart(places, source, is_alike):
    (run,) = load_runs(places[:1])
    here, there = (
        replace(run, settings=run.settings | {"data": {"source": source, "path": path}})
        for path in ("/here", "/there")
    )
    assert ("data.path" not in differing_settings([here, there])) == is_alike
    assert (trained_alike(here) == trained_alike(there)) == is_alike


def test_rounding_is_no_deviation():
    assert spread([0.1 + 0.2, 0.3], str) == "0.30000000000000004 +- 0.0"
    assert spread([1.0, 3.0], lambda value: f"{value:.2f}") == "2.00 +- 1.41"


@pytest.fixture(scope="module")
def all_of_them(places):
    return report_page(load_runs(places))


def test_settings_that_differ_are_shown(all_of_them):
    page = all_of_them
    assert "gossip.compressor.keep" in page
    assert "training.optimizer.lr" not in page[: page.index('id="report-content"')]


def test_bands_are_over_seeds(places, all_of_them):
    page = all_of_them
    means = table(page, "accuracy", "means")
    last = [
        edgesim.load_run(place).evaluations.query("model == 'consensus'")["accuracy"].iloc[-1]
        for place in places
    ]
    ends = means[means["evaluation"] == means["evaluation"].max()].set_index("group")
    for group, own in (("keep 0.2", last[:2]), ("keep 0.5", last[2:])):
        assert ends.loc[group, "runs"] == 2
        assert ends.loc[group, "mean"] == pytest.approx(np.mean(own))
        assert ends.loc[group, "deviation"] == pytest.approx(np.std(own, ddof=1))
        assert (ends.loc[group, "lowest"], ends.loc[group, "highest"]) == (min(own), max(own))
    assert "Means over seeds" in page


def test_means_over_seeds_are_of_devices_too(places):
    runs = load_runs(places)
    devices = [device_table(run) for run in runs]
    found = groups_table(runs, devices)
    row = dict(zip(found.columns, found.rows[0], strict=True))
    summaries = [edgesim.load_run(place).summary for place in places[:2]]
    for head, name in ("averaged model", "consensus_accuracy"), ("devices", "device_accuracy_mean"):
        values = [summary[name] for summary in summaries]
        assert row[head] == f"{percent(np.mean(values))} +- {points(np.std(values, ddof=1))}"
    assert row["messages"].startswith(f"{summaries[0]['messages_sent']:,}")


def test_figures_of_each_run_stand_in_a_part_of_its_own(all_of_them):
    figures = content(all_of_them)["figures"]
    for number in (1, 2, 3):
        assert f"run-{number}-training-loss" in figures
        assert f"run-{number}-labels" in figures
    assert "accuracy" in figures


def test_items_of_lists_are_compared_one_by_one():
    devices = [{"profile": "a", "count": 2, "name": None}, {"profile": "b", "battery_wh": 1}]
    assert flat_settings({"fleet": {"devices": devices}, "classes": [1, 2]}) == {
        "fleet.devices.0.profile": "a",
        "fleet.devices.0.count": 2,
        "fleet.devices.1.profile": "b",
        "fleet.devices.1.battery_wh": 1,
        "classes": [1, 2],
    }


def test_a_folder_of_runs_is_reported_whole(places, tmp_path):
    """As a sweep leaves it; runs that have recorded nothing are left out."""
    folder = places[0].parents[1]
    RunDirectory.create(folder / "not-begun" / "run", "digest")
    runs = load_runs([folder])
    assert len(runs) == len(places)
    assert runs[0].missing == ("runs of the folder that have recorded nothing yet: run",)
    page, _ = write_report([folder])
    assert page == f"{folder}/report.html"


def test_many_runs_have_a_row_each(places):
    page = report_page(load_runs([*places, *places[:3]]))
    assert not [key for key in content(page)["figures"] if key.startswith("run-")]
    assert '<th scope="col">accuracy of the averaged model</th>' in page
    assert "Each of up to 6 runs has a part of its own; these are 7." in page
    assert "a part of its own" not in report_page(load_runs(places))


def test_runs_of_both_paces_are_compared_at_equal_virtual_time(tmp_path):
    """A round at free pace is no round in lockstep."""
    clocked = ("fleet.profile=raspberry-pi-4b",)
    places = [
        train(tmp_path / pace, *clocked, f"fleet.pace={pace}", scenario=PLAIN)
        for pace in ("lockstep", "free")
    ]
    for chosen, first in ((places, "virtual time"), (places[:1], "rounds")):
        figures = curve_figures(load_runs(chosen))
        assert {figure.views[0].label for figure in figures} == {first}


def test_own_parts_are_labelled_without_their_folders_where_that_tells_them_apart():
    assert _without_folders(["/a/beer.py:Beer", "choco"]) == ["beer.py:Beer", "choco"]
    alike = ["/a/beer.py:Beer", "/b/beer.py:Beer"]
    assert _without_folders(alike) == alike
