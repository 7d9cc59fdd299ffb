"""`edgesim calibrate`, with tiny networks in place of its own."""

from __future__ import annotations

from functools import partial

import pytest
from test_cli import called  # noqa: F401 (a fixture)

import edgesim.calibration.calibrate
import edgesim.cli.calibrate
from edgesim.calibration.fit import Fit
from edgesim.hardware.profiles import LayerTime


@pytest.fixture
def tiny(monkeypatch):
    whole = edgesim.cli.calibrate.calibrate_here
    monkeypatch.setattr(edgesim.cli.calibrate, "calibrate_here", partial(whole, sizes="tiny"))


def test_the_file_is_a_scenario(called, tiny, tmp_path):  # noqa: F811
    done = called("calibrate", "--rounds", 1, "--out", "mine.yaml", "--name", "mine", cwd=tmp_path)
    assert done.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
    assert "0 %: " in done.stderr
    assert "90 %: " in done.stderr
    assert "mine.yaml is written" in done.stderr
    assert called("validate", "mine.yaml", cwd=tmp_path).returncode == 0
    assert "in caches, fastest of 1 turns" in (tmp_path / "mine.yaml").read_text()


def test_layers_whose_times_fit_badly_are_named():
    fits = [
        Fit(LayerTime(kind=kind), 3, worst)
        for kind, worst in (("linear_fp32", 0.25), ("relu_fp32", 0.3), ("dropout_fp32", 0.61))
    ]
    said = edgesim.cli.calibrate._poor_fits(fits)
    assert "more than 25 % off the profile's times: dropout_fp32 (61 %), relu_fp32 (30 %);" in said
    assert edgesim.cli.calibrate._poor_fits(fits[:1]) == ""


def test_the_median_turn_may_count(called, tiny, tmp_path):  # noqa: F811
    assert (
        "in caches, median of 1 turns"
        in called("calibrate", "--rounds", 1, "--median", cwd=tmp_path).stdout
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "there.yaml"], "--out there.yaml: exists; choose another name"),
        (["--out", "no/x.yaml"], "--out no/x.yaml: there is no folder no; make it first"),
        (["--name", "A board"], "--name A board: must be lower-case letters"),
        (["--name", "raspberry-pi-5"], "is a profile of edgesim's; choose another name"),
        (["--based-on", "abacus"], "--based-on abacus: no such profile"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_before_anything_is_measured(
    options,
    message,
    called,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    (tmp_path / "there.yaml").write_text("mine")
    monkeypatch.setattr(edgesim.calibration.calibrate, "calibrate", None)
    done = called("calibrate", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "there.yaml").read_text() == "mine"


def test_an_interrupted_calibration_leaves_nothing(called, tmp_path, monkeypatch):  # noqa: F811
    def interrupted(note, *_, **__):
        note(3, 10, "linear")
        raise KeyboardInterrupt

    monkeypatch.setattr(edgesim.calibration.calibrate, "calibrate", interrupted)
    done = called("calibrate", "--out", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr.splitlines() == ["0 %: loading torch", "30 %: linear", "interrupted"]
    assert list(tmp_path.iterdir()) == []
