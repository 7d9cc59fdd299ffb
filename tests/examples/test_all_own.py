"""examples/all_own.yaml: an algorithm, a compressor, a model and a dataset of one's own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest
from runs_of_examples import EXAMPLES, INT8, resume, train
from small_fleets import assert_same_bits
from thorough import some

from edgesim import cli, load_run
from edgesim.errors import EdgesimError
from edgesim.scenario import load_scenario
from edgesim.scenario.own_parts import own_parts
from edgesim.study.iteration import iteration_costs

NAME = "all_own.yaml"
FILES = {
    "gossip.algorithm": ("ecq_gossip.py", "fade: float", "fade: float = 0.5"),
    "gossip.compressor.kind": ("block_compressor.py", "2 * layout.numel", "3 * layout.numel"),
    "model.name": ("gated.py", "hidden: int = 16", "hidden: int = 17"),
    "data.source": ("sensors.py", "0.5 * rng", "0.6 * rng"),
}
FREE = (
    "fleet.devices=[{profile: raspberry-pi-5, count: 2}, {profile: raspberry-pi-4b, count: 2}]",
    "fleet.pace=free",
)
WAYS = {"lockstep": (), "free pace in 8 bits": (*FREE, *INT8)}
SETTINGS = ("training.rounds=6", "evaluation={every_rounds: 3}")
KILLED = """
import os, signal, sys
from rich.console import Console
from edgesim.assembly.preparation import prepare
from edgesim.device.trainer import Trainer
from edgesim.fleet.run import run_scenario
from edgesim.scenario import load_scenario

step_ = Trainer.step_

def step_or_die_(self, state, model, round_index):
    if round_index == 4 and self.label == "device 2":
        os.kill(os.getpid(), signal.SIGKILL)
    return step_(self, state, model, round_index)

Trainer.step_ = step_or_die_
path, out, *overrides = sys.argv[1:]
prepared = prepare(load_scenario(path, overrides))
run_scenario(prepared, out, inline=True, console=Console(quiet=True))
"""


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """A folder with the scenario and its four files alone."""
    folder = tmp_path_factory.mktemp("own")
    for name in (NAME, *(file for file, _, _ in FILES.values())):
        shutil.copy(EXAMPLES / name, folder)
    return folder


@pytest.fixture(scope="module")
def inline(beside, tmp_path_factory):
    """Runs in one process, by the way they were trained in."""
    return {
        way: train(
            beside / NAME, tmp_path_factory.mktemp("inline") / "run", *SETTINGS, *said, inline=True
        )
        for way, said in WAYS.items()
    }


def test_four_parts_are_loaded_from_files(beside):
    parts = dict(own_parts(load_scenario(beside / NAME)))
    assert {key: part.place for key, part in parts.items()} == {
        key: str(beside / file) for key, (file, _, _) in FILES.items()
    }


@pytest.mark.ray
@pytest.mark.parametrize(
    ("way", "packing"),
    some([("free pace in 8 bits", 2), ("lockstep", 2), ("lockstep", 1)], 1),
)
def test_actors_have_the_bits_of_one_process(beside, inline, started_ray, tmp_path, way, packing):
    settings = (*SETTINGS, *WAYS[way], f"fleet.devices_per_actor={packing}")
    actors = train(beside / NAME, tmp_path / "run", *settings)
    assert_same_bits(inline[way], actors)


def test_products_in_8_bits_are_of_codes(inline):
    """Linear layers 6 x 16 and 16 x 3, 16 samples: both forward, and one input gradient."""
    rounds = load_run(inline["free pace in 8 bits"].path).rounds
    assert (rounds["macs_int8"] == 16 * (96 + 48 + 48)).all()
    assert (rounds["macs_fp32"] == 16 * (96 + 48)).all()  # the gradients of the weights


def test_a_killed_run_goes_on_to_the_same_bits_unless_a_file_has_changed(beside, inline, tmp_path):
    out, often = tmp_path / "run", "recovery.checkpoint_every_rounds=2"
    command = [sys.executable, "-c", KILLED, beside / NAME, out, *SETTINGS, often]
    died = subprocess.run(command, check=False, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    for key, (name, old, new) in FILES.items():
        file, source = beside / name, (beside / name).read_text()
        assert old in source
        file.write_text(source.replace(old, new))
        with pytest.raises(EdgesimError, match=f"{key} names {file}, which has changed"):
            resume(out)
        file.write_text(source)
    assert_same_bits(inline["lockstep"], resume(out))
    assert load_run(out).summary["resumes"] == 1


def test_costs_are_shown(beside, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["edgesim", "cost", str(beside / NAME)])
    terminate = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    signal.signal(signal.SIGTERM, terminate)
    assert not ended.value.code
    shown = capsys.readouterr().out
    for said in ("GatedPerceptron", "ecq", "largest_of_blocks", "measured, no closed form"):
        assert said in shown
    costs = iteration_costs(load_scenario(beside / NAME))
    assert costs.studied.model.measured_layers == ("gate (LearnedGate)",)
    assert costs.devices[0].work.total.macs_fp32 == 16 * (2 * 96 + 3 * 48)
    # Of each tensor an eighth, rounded up: 96, 16, 16, 48 and 3 entries.
    assert costs.message.num_kept == 12 + 2 + 2 + 6 + 1


def test_they_learn(beside, tmp_path):
    run = load_run(train(beside / NAME, tmp_path / "run", "training.rounds=60", inline=True).path)
    assert run.summary["consensus_accuracy"] > 0.7  # by chance 0.33
