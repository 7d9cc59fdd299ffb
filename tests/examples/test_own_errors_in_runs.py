"""What one's own code does wrong in the middle of a run is said in two lines; nothing is lost."""

from __future__ import annotations

import re
import signal
import sys

import pytest
from broken_examples import ALGORITHM, COMPRESSOR, TASK, broken, frames_of
from runs_of_examples import train

from edgesim import UnfinishedRunWarning, cli, load_run
from edgesim.device.trainer import DivergedError
from edgesim.errors import OwnCodeError

FAILING = {
    "delta: torch.Tensor": "delta: torch.Tensor\n    rounds: int = 0",
    "        for share in received:": (
        "        state.rounds += 1\n"
        "        if state.rounds == 6:\n"
        "            raise ArithmeticError('six is enough')\n"
        "        for share in received:"
    ),
}
ROUNDS = ("training.rounds=20", "evaluation={every_rounds: 10}")


def test_in_a_run_nothing_is_lost_and_no_traceback_of_edgesim_is_shown(
    tmp_path, monkeypatch, capsys
):
    path, file = broken(tmp_path, ALGORITHM, FAILING)
    out, terminate = tmp_path / "run", signal.getsignal(signal.SIGTERM)
    settings = [word for said in ROUNDS for word in ("--set", said)]
    command = ["edgesim", "run", "--inline", "--out", str(out), *settings, str(path)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    signal.signal(signal.SIGTERM, terminate)
    assert ended.value.code == cli.FAILED
    captured = capsys.readouterr()
    assert re.search(
        rf"stopped; [45](?: to [56] rounds of a device| rounds of each device) are kept: {out}",
        captured.out,
    )
    assert "edgesim resume" not in captured.out
    first, second, *frames = captured.err.splitlines()[1:]  # the first line is of measured costs
    assert first.startswith("gossip.algorithm: EcqGossip.absorb_ on device ")
    assert f" fails at {file}:" in first
    assert first.endswith(": ArithmeticError: six is enough")
    assert second.startswith("mend your code and start the run anew")
    assert frames[:2] == ["in your code:", frames[1]]
    assert "raise ArithmeticError('six is enough')" in frames[2]
    assert len(frames) <= 4
    with pytest.warns(UnfinishedRunWarning):
        rounds = load_run(out).rounds
    assert len(rounds) > 4, "rounds until then"


@pytest.mark.ray
def test_in_actors_too(tmp_path, started_ray):
    path, file = broken(tmp_path, ALGORITHM, FAILING)
    with pytest.raises(OwnCodeError) as caught:
        train(path, tmp_path / "run", *ROUNDS, "fleet.devices_per_actor=2")
    first, second = str(caught.value).splitlines()
    assert first.startswith("gossip.algorithm: EcqGossip.absorb_ on device ")
    assert f" fails at {file}:" in first
    assert second.startswith("mend your code and start the run anew")
    assert "Ray" not in first
    (note,) = frames_of(caught.value)
    assert "raise ArithmeticError" in note


def test_in_an_evaluation(tmp_path):
    """The first six succeed: five before the run, and of the averaged model in round 1."""
    changes = {
        "def sums(": "calls = []\n\n    def sums(",
        "errors = (": "self.calls.append(1)\n        errors = 1 // (len(self.calls) < 7) * (",
    }
    path, file = broken(tmp_path, TASK, changes)
    with pytest.raises(OwnCodeError) as caught:
        train(path, tmp_path / "run", "evaluation={every_rounds: 1}", inline=True)
    first = str(caught.value).splitlines()[0]
    assert first.startswith("training.task: Huber.sums in the evaluation of the averaged model aft")
    assert f"fails at {file}:32: ZeroDivisionError: integer division or modulo by z" in first


@pytest.mark.ray
@pytest.mark.parametrize("inline", [True, False])
def test_messages_that_an_algorithm_does_not_send_end_a_run(tmp_path, inline, started_ray):
    changes = {
        "delta: torch.Tensor": "delta: torch.Tensor\n    rounds: int = 0",
        "        if not out_edges:": "        state.rounds += 1\n        if not out_edges:",
        "edge.address) for edge in out_edges]": (
            "edge.address) for edge in out_edges[state.rounds // 4 :]]"
        ),
    }
    path, _ = broken(tmp_path, ALGORITHM, changes)
    with pytest.raises(OwnCodeError) as caught:
        train(path, tmp_path / "run", *ROUNDS, "topology={kind: ring}", inline=inline)
    first, second = str(caught.value).splitlines()
    assert re.match(
        r"gossip.algorithm: on device \d in round 3 send_ gives shares for devices \d, but its "
        r"out-edges are to devices \d, \d; one Share is due for each edge",
        first,
    )
    assert second.startswith("mend your code and start the run anew")


ONCE = "ROUNDS = []\n\n@dataclass(frozen=True, kw_only=True)"


def test_an_error_of_edgesim_in_own_code_is_told_as_what_it_is(tmp_path):
    """The algorithm compresses a part of the vector: not the training has diverged."""
    changes = {
        "@dataclass(frozen=True, kw_only=True)": ONCE,
        "self.compressor.compress(v,": (
            "self.compressor.compress(v[1:] if ROUNDS.append(1) or len(ROUNDS) > 30 else v,"
        ),
    }
    path, file = broken(tmp_path, ALGORITHM, changes)
    plain = "gossip.compressor={kind: top_k, keep: 0.2}"
    with pytest.raises(OwnCodeError) as caught:
        train(path, tmp_path / "run", *ROUNDS, plain, inline=True)
    first, second = str(caught.value).splitlines()
    assert first.startswith("gossip.algorithm: EcqGossip.send_ on device ")
    assert f" fails at {file}:" in first
    assert "CompressionError: cannot compress" in first
    assert second.startswith("mend your code and start the run anew")
    (note,) = frames_of(caught.value)
    assert "in send_" in note
    assert "compressors.py" not in note


@pytest.mark.parametrize("compressor", ["top_k", None], ids=["of the catalog", "own"])
def test_a_vector_that_is_not_finite_is_divergence_in_own_parts_too(tmp_path, compressor):
    changes = {
        "@dataclass(frozen=True, kw_only=True)": ONCE,
        "self.compressor.compress(v,": (
            "self.compressor.compress(v * (nan if ROUNDS.append(1) or len(ROUNDS) > 30 else 1),"
        ),
        "import torch": "from math import nan\n\nimport torch",
    }
    path, _ = broken(tmp_path, ALGORITHM, changes)
    other = "gossip.compressor={kind: top_k, keep: 0.2}" if compressor else "seed=2"
    with pytest.raises(DivergedError, match=r"device \d diverged in round \d.*not finite"):
        train(path, tmp_path / "run", *ROUNDS, other, inline=True)


def test_a_payload_that_is_not_finite_never_leaves_a_device(tmp_path):
    """Its receiver would refuse it as damaged, again and again."""
    changes = {
        "if not np.isfinite(values).all():": "if ROUNDS.append(1) or len(ROUNDS) > 40:",
        "raise NonFiniteEntryError(": "values = values * np.nan #",
        "FP32 = ": "ROUNDS = []\nFP32 = ",
    }
    path, _ = broken(tmp_path, COMPRESSOR, changes)
    with pytest.raises(OwnCodeError, match="compress gives values that are not finite, though x"):
        train(path, tmp_path / "run", *ROUNDS, inline=True)
