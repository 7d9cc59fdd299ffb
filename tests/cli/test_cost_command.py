"""`edgesim cost` as a user meets it: exit status, output, files."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from edgesim import cli

ROOT = Path(__file__).resolve().parents[2]
RING8, QUICKSTART = (
    ROOT / "scenarios" / name for name in ("cifar10_ring8.yaml", "quickstart.yaml")
)
SLOW = "fleet.devices=[{profile: raspberry-pi-4b, count: 7}, {profile: raspberry-pi-zero-2w}]"


@pytest.fixture
def edgesim(monkeypatch, capsys, tmp_path):
    """The command in this process: which saves loading torch anew for each call."""
    terminate = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["edgesim", "cost", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    yield run
    signal.signal(signal.SIGTERM, terminate)


def test_resnet20_without_any_data(edgesim, tmp_path):
    """The figures of the paper and the honest ones, each with its arithmetic."""
    status, out, err = edgesim(RING8, "--paper", "--json", "costs.json")
    assert status == 0, err
    lines = {" ".join(line.split()) for line in out.splitlines()}
    for line in (
        "weight gradient int8 4.00x 3 x 32 / (8 + 8 + 8) bit",
        "weight gradient fp16 3.00x 3 x 32 / (8 + 8 + 16) bit",
        "weight gradient fp32 2.00x 3 x 32 / (8 + 8 + 32) bit",
        "training step 3.58x 53.5 MiB / 14.9 MiB",
        "dense 3.99x 1,093,036 B / 273,950 B",
        "weight gradient int8 20.0x 4.6 pJ / 0.23 pJ",
        "weight gradient fp16 7.04x 3 x 4.6 / (0.23 + 0.23 + 1.5) pJ",
        "weight gradient fp32 2.73x 3 x 4.6 / (0.23 + 0.23 + 4.6) pJ",
        "weight gradient int8 15.3x 4.6 pJ / 0.3 pJ",
    ):
        assert line in lines
    record = json.loads((tmp_path / "costs.json").read_text())
    held = record["scenario"]["devices"][0]["memory"]["faithful"]["total"]
    assert f"total {held / 2**20:.1f} MiB 53.5 MiB" in lines
    assert [path.name for path in tmp_path.iterdir()] == ["costs.json"]


def test_a_fleet_with_profiles_has_times(edgesim):
    status, out, _ = edgesim(RING8, "--set", SLOW, "--set", "network.bandwidth_mbps=10")
    assert status == 0
    assert "period of a round, in lockstep" in out
    assert "device 7 (raspberry-pi-zero-2w)" in out
    assert "79.6 MiB of 325.0 MiB, fits" in out


def test_the_answer_comes_first_and_alone_if_asked(edgesim):
    """Tables and the paper's ratios stand below it; `--short` leaves them out."""
    status, out, _ = edgesim(QUICKSTART, "--set", "fleet.profile=raspberry-pi-4b", "--short")
    assert status == 0
    answer = out.strip().splitlines()
    assert answer[0] == "quickstart: 8 devices train small_cnn in fp32 for 30 epochs"
    assert max(map(len, answer)) <= 80
    assert len(answer) <= 16
    assert "what an iteration costs" not in out
    _, whole, _ = edgesim(QUICKSTART, "--set", "fleet.profile=raspberry-pi-4b")
    assert whole.startswith(out.strip())
    assert "what an iteration costs" in whole
    assert "bit width of MACs" not in whole


def test_a_norm_of_fp32_between_8_bit_layers_is_said(edgesim):
    words = ["--set", "model.precision=int8", "--set", "model.norm=evonorm_s0"]
    status, _, err = edgesim(QUICKSTART, *words)
    assert status == 0
    assert "quickstart.yaml: model.norm: evonorm_s0 computes in fp32" in err


def test_figures_and_page_go_where_they_are_asked_to(edgesim, tmp_path):
    status, out, _ = edgesim(QUICKSTART, "--out", tmp_path / "figures")
    assert status == 0
    assert "figures/index.html" in "".join(out.split())
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    pictures = ("compute.svg", "memory.svg", "message.svg", "energy.svg")
    assert names == {*pictures, "index.html"}  # no clocks, hence no figure of the fleet


def test_a_device_that_is_too_small_is_named(edgesim):
    status, out, _ = edgesim(RING8, "--set", "fleet.profile=esp32-s3")
    assert status == 0
    assert "DOES NOT FIT devices 0-7 (esp32-s3): 79.6 MiB of 8 MiB" in " ".join(out.split())
    assert "devices 0-7 (esp32-s3): 79.6 MiB of 8 MiB, DOES NOT FIT" in out


def test_two_scenarios_side_by_side(edgesim):
    words = ["--compare", QUICKSTART, "--compare-set", "model.precision=int8"]
    status, out, err = edgesim(QUICKSTART, *words)
    assert status == 0
    assert err.count("messages carry 8-bit values because model.precision is int8") == 1
    assert "quickstart / other" in out
    assert "fp32 products" in out
    assert "int8 products" in out


BAD_INPUT = {
    "no scenario": (["absent.yaml"], ["absent.yaml", "no such file"]),
    "unknown profile": (
        [QUICKSTART, "--set", "fleet.profile=raspbery-pi-4b"],
        ["fleet.profile", "did you mean raspberry-pi-4b"],
    ),
    "photographs without a size": (
        [QUICKSTART, "--set", "data.source=imagenette"],
        ["quickstart.yaml: data.image_size is missing"],
    ),
    "impossible graph": (
        [QUICKSTART, "--set", "topology.kind=torus", "--set", "fleet.devices=7"],
        ["quickstart.yaml: topology: ", "torus of 7"],
    ),
    "other is missing": ([QUICKSTART, "--compare", "absent.yaml"], ["absent.yaml: no such file"]),
    "a change of nothing": (
        [QUICKSTART, "--compare-set", "seed=2"],
        ["--compare-set", "--compare: add one"],
    ),
    "folder is a file": ([QUICKSTART, "--out", QUICKSTART], ["can't be written", "another place"]),
}


@pytest.mark.parametrize(("words", "named"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_ends_with_2_and_a_line_that_says_what_to_do(edgesim, tmp_path, words, named):
    status, _, err = edgesim(*words)
    assert status == 2, err
    assert 1 <= len(err.strip().splitlines()) <= 2, err
    for part in named:
        assert part in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_has_a_row_for_each_cell(edgesim, tmp_path):
    words = "sweeps/digits_comparison", "--only", "model.precision=fp32", "--only", "seed=1"
    status, out, err = edgesim(*words, "--json", "costs.json")
    assert status == 0, err
    assert out.splitlines()[0] == "digits-comparison: what 4 of 24 cells cost"
    assert out.count("algorithm=") == 4
    assert len(json.loads((tmp_path / "costs.json").read_text())["cells"]) == 4


@pytest.mark.parametrize(
    "option",
    [
        ("--compare", QUICKSTART),
        ("--compare-set", "seed=2"),
        ("--out", "folder"),
        ("--all-models",),
        ("--paper",),
    ],
)
def test_a_sweep_refuses_options_that_are_for_one_scenario(edgesim, tmp_path, option):
    status, out, err = edgesim("sweeps/digits_comparison", *option)
    assert (status, out) == (2, "")
    assert err.startswith(f"{option[0]} is for one scenario, and sweeps/digits_comparison is a sw")
    assert list(tmp_path.iterdir()) == []


def test_cells_are_chosen_of_sweeps_alone(edgesim):
    status, _, err = edgesim(QUICKSTART, "--only", "seed=1")
    assert status == 2
    assert err == f"--only chooses cells of a sweep, and {QUICKSTART} is none\n"
