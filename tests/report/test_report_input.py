"""What cannot be reported is refused in one line; what is unfinished says what is missing."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace

import pytest
from reported_runs import SCENARIO, content, train

from edgesim import cli
from edgesim.errors import EdgesimError
from edgesim.fleet import run as fleet_run
from edgesim.report.ends import device_table
from edgesim.report.figures.curves import curve_figures
from edgesim.report.report import report_page, write_report
from edgesim.report.runs import load_runs
from edgesim.report.summary import in_short

SMALL = SCENARIO | {
    "fleet": {"devices": 3},
    "network": {},
    "training": {"rounds": 4, "optimizer": {"lr": 0.05}},
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return train(tmp_path_factory.mktemp("small"), scenario=SMALL)


def refusal(*places):
    with pytest.raises(EdgesimError) as refused:
        load_runs(places)
    assert isinstance(refused.value, ValueError), "bad input"
    (line,) = str(refused.value).splitlines()
    return line


def test_an_empty_a_foreign_and_an_absent_directory(tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("nothing of a run")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "absent"):
        assert refusal(tmp_path / name).startswith(f"{tmp_path / name}: there is nothing")
    assert refusal(tmp_path / "foreign").startswith(f"{tmp_path / 'foreign'}: no run directory")


def test_code_that_a_run_directory_names_is_not_run(tmp_path):
    """It may be somebody else's, or another than it was; the rest is reported."""
    place = train(tmp_path, scenario=SMALL | {"model": {"name": f"{write_model(tmp_path)}:Tiny"}})
    page = report_page(load_runs([place]))
    assert "What a round computes" not in page
    (trap,) = (place / "own_parts").iterdir()
    mark = tmp_path / "mark"
    (tmp_path / "own.py").write_text(f"open({str(mark)!r}, 'w')")
    assert report_page(load_runs([place]))
    assert not mark.exists()
    assert trap.is_file()


def test_a_page_has_the_name_of_a_page(small):
    """Not of a table of the run, which it would replace."""
    table = small / "rounds.parquet"
    before = table.read_bytes()
    with pytest.raises(EdgesimError, match=r"rounds\.parquet: a report is a page; its name must"):
        write_report([small], table)
    assert table.read_bytes() == before


def write_model(folder):
    """File of a model of one's own."""
    path = folder / "own.py"
    path.write_text(
        "from torch import nn\n"
        "class Tiny(nn.Sequential):\n"
        "    def __init__(self, input_shape, num_classes):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    return path


def test_a_file(small):
    line = refusal(small / "rounds.parquet")
    assert line.startswith(f"{small / 'rounds.parquet'}")


def test_runs_of_different_data(tmp_path, small):
    other = train(tmp_path, "seed=4", scenario=SMALL)
    assert len(load_runs([small, other])) == 2
    text = (other / "scenario.yaml").read_text()
    changed = text.replace("source: digits", "source: cifar10")
    assert changed != text
    rewrite(other, changed)
    assert (
        f"{small} and {other} can't be compared: data.source is digits in the first and cifar10 "
        "in the second; report them apart"
    ) == refusal(small, other)


def rewrite(run, text):
    """Another scenario.yaml under the run's seal."""
    from edgesim.results.run_files import RunFiles
    from edgesim.storage.store import Store

    RunFiles(Store.at(run)).write_text("scenario.yaml", text[: text.rindex("# ")])


def test_a_run_that_has_recorded_nothing(tmp_path):
    from edgesim.results.run_directory import RunDirectory

    RunDirectory.create(tmp_path / "new", "digest")
    assert refusal(tmp_path / "new").endswith(
        "no round of this run is recorded yet; report it later"
    )


def test_an_unfinished_run_is_reported_and_says_what_is_missing(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet_run, "write_devices", stop)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, scenario=SMALL)
    page = report_page(load_runs([tmp_path / "run"]))
    assert "The run is not finished: of each device 4 rounds are recorded." in page
    assert "Missing here: labels, memory and the closing figures of devices" in page
    assert "accuracy" in content(page)["figures"]


def test_an_unfinished_run_does_not_hide_that_devices_are_not_equally_far(tmp_path):
    """Its sums are of unequal rounds; the board with a battery has done the fewest."""
    place = train(tmp_path)
    (run,) = load_runs([place])
    assert not [line for line in in_short(run, device_table(run)) if line.startswith("So far")]
    unfinished = replace(run, run=replace(run.run, summary={}, missing=("summary",)))
    said = in_short(unfinished, device_table(unfinished))
    rounds = run.rounds.groupby("device").size()
    assert rounds.min() < rounds.max() == 12
    assert f"So far: devices have done {rounds.min()} to 12 rounds, and the next" in "".join(said)
    assert any(line.startswith("That took the real fleet ") for line in said)


def test_the_command_says_where_the_page_is(small, monkeypatch, capsys):
    terminate = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "argv", ["edgesim", "report", str(small)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    signal.signal(signal.SIGTERM, terminate)
    assert not ended.value.code
    page = small / "report.html"
    assert capsys.readouterr().out.startswith(f"report: {page} (")
    figures = content(page.read_text())["figures"]
    assert "accuracy" in figures
    assert not {"timeline", "charge", "energy"} & set(figures), "devices have no clocks"


def test_a_page_that_cannot_be_written(small, tmp_path):
    with pytest.raises(EdgesimError, match=r"can't be written .*; name another --out"):
        write_report([small], tmp_path / "no" / "page.html")


def test_under_each_curve_stands_by_what_devices_are_the_best_and_the_worst(tmp_path):
    """The lines of a figure of another measure have the colours of these devices, too."""
    (run,) = load_runs([train(tmp_path)])
    of_devices = run.evaluations[run.evaluations["model"] == "device"]
    last = of_devices[of_devices["round"] == of_devices["round"].max()]
    by_accuracy = last.sort_values(["accuracy", "loss"], ascending=[True, False])["name"]
    by_loss = last.sort_values("loss", ascending=False)["name"]
    assert [by_accuracy.iloc[0], by_accuracy.iloc[-1]] != [by_loss.iloc[0], by_loss.iloc[-1]]
    figures = {figure.key: figure for figure in curve_figures([run])}
    assert len(figures) > 2
    for key, figure in figures.items():
        measure, order = ("loss", by_loss) if key == "loss" else ("accuracy", by_accuracy)
        assert figure.caption.endswith(_said(measure, order.iloc[-1], order.iloc[0]))
        (table,) = figure.tables.values()
        assert set(table.loc[table["series"] == "best device", "name"]) == {order.iloc[-1]}


def _said(measure, best, worst):
    return (
        f"By {measure} on the common test samples the best device at the end is {best}, the worst "
        f"{worst}."
    )


def test_equal_accuracies_are_told_apart_by_the_loss_and_equal_devices_are_not(small):
    (run,) = load_runs([small])
    is_device = run.evaluations["model"] == "device"
    table = run.evaluations.copy()
    table.loc[is_device, "accuracy"] = 0.125
    alike = replace(run, run=replace(run.run, evaluations=table))
    losses = table[is_device].groupby("device").tail(1).set_index("device")["loss"]
    said = _said("loss", f"device {losses.idxmin()}", f"device {losses.idxmax()}")
    for figure in curve_figures([alike]):
        assert figure.caption.endswith(said)
    table.loc[is_device, "loss"] = 2.3
    for figure in curve_figures([alike]):
        assert "the best device" not in figure.caption
