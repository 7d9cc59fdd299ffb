"""Every number of the schema has an upper end, which what computes with it can hold."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from edgesim.assembly.preparation import prepare
from edgesim.errors import EdgesimError
from edgesim.fleet.run import run_scenario
from edgesim.scenario import ScenarioError, load_scenario
from edgesim.scenario.guide import guide

QUICKSTART = Path(__file__).resolve().parents[2] / "scenarios" / "quickstart.yaml"
NUMBERS = [entry for entry in guide() if entry.slot.number and not entry.is_choice]
SMALL = (
    "fleet={devices: 3}",
    "training={rounds: 2, optimizer: {lr: 0.05}}",
    "data={source: digits, train_samples: 12, batch_size: 2, partition: {kind: iid}}",
    "evaluation={samples: 4, every_rounds: 1, device_models: final}",
)
LARGEST_LR, SMALLEST_LR = 1e30, 1e-30


@pytest.mark.parametrize("entry", NUMBERS, ids=[f"{n}-{e.key}" for n, e in enumerate(NUMBERS)])
def test_every_number_has_an_upper_end(entry):
    ends = [entry.slot.bound(name) for name in ("le", "lt")]
    high = next(end for end in ends if end is not None)
    if entry.slot.number is int:
        assert high <= (2**63 - 1 if entry.key == "seed" else 2**31 - 1)
    else:
        assert high <= 1e30


def ended(tmp_path, *overrides):
    """What a run comes to: its summary, or a line that says what was wrong."""
    try:
        prepared = prepare(load_scenario(QUICKSTART, [*SMALL, *overrides]))
        run_scenario(prepared, tmp_path / "run", inline=True, console=Console(file=StringIO()))
    except EdgesimError as error:
        return str(error)
    return json.loads((tmp_path / "run" / "summary.json").read_text())


@pytest.mark.parametrize(
    "override",
    [
        *("data.batch_size=2147483647", "evaluation.batch_size=2147483647"),
        *("seed=9223372036854775807", "evaluation.device_sample=2147483647"),
        *("evaluation.every_rounds=2147483647", "training.schedule.warmup_epochs=2147483647"),
        *("recovery.checkpoint_every_rounds=2147483647", "recovery.checkpoint_every_s=1.0e+9"),
        "recovery.stall_timeout_s=1.0e+9",
        *("recovery.checkpoint_every_s=1.0e-300", "training.schedule.milestones=[2147483647]"),
        *("data.partition={kind: dirichlet, alpha: 1.0e+9}", "topology.weights=metropolis"),
        *("training.optimizer.lr=1.0e-30", "training.optimizer.weight_decay=1.0e+30"),
        "training.optimizer.lr=1.0e+30",
        "training.optimizer={lr: 1.0e-30, momentum_kind: quasi_global}",
        "training.optimizer={lr: 1.0e+30, momentum_kind: quasi_global}",
        "fleet={devices: 3, profile: gap9, pace: free}",
        "gossip.averaging_rate=1.0e-300",
    ],
)
def test_the_ends_of_a_range_give_a_result_or_one_line(tmp_path, override):
    outcome = ended(tmp_path, override)
    if isinstance(outcome, str):
        assert "diverged" in outcome or "graph" in outcome or "metropolis" in outcome
        assert len(outcome.splitlines()) == 1


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.batch_size=10000000000000000000000", "data.batch_size"),
        ("evaluation.batch_size=9223372036854775808", "evaluation.batch_size"),
        ("seed=9223372036854775808", "from 0 to 9223372036854775807"),
        ("training.optimizer.lr=1.0e+300", "[1e-30, 1e+30]"),
        ("training.optimizer.lr=1.0e-300", "[1e-30, 1e+30]"),
        ("training.optimizer.weight_decay=1.0e+300", "[0, 1e+30]"),
        (
            "training.schedule={milestones: [1, 2], factor: 1.0e-20}",
            "training.schedule.factor is 1e-20: the learning rate falls to",
        ),
        (
            "training.schedule={warmup_epochs: 1, warmup_factor: 1.0e-40}",
            "training.schedule.warmup_factor is 1e-40",
        ),
    ],
)
def test_numbers_that_no_run_could_hold_are_refused_by_reading(override, named):
    with pytest.raises(ScenarioError) as caught:
        load_scenario(QUICKSTART, [*SMALL, override])
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("written", "digits"),
    [("1e8", "100000000"), ("1.0e+8", "100000000"), ("5e2", "500"), ("'1E3'", "1000")],
)
def test_a_whole_number_with_an_exponent_is_answered_with_its_digits(written, digits):
    with pytest.raises(ScenarioError, match=rf"training\.rounds is .*; .*: write {digits}$"):
        load_scenario(QUICKSTART, [f"training.rounds={written}"])


@pytest.mark.parametrize("written", ["1e99", "1.5", "2.5e-1", "1e9", "1e999999999", "0.0"])
def test_no_digits_are_named_that_would_not_be_taken(written):
    with pytest.raises(ScenarioError) as caught:
        load_scenario(QUICKSTART, [f"training.rounds={written}"])
    assert "write" not in str(caught.value)
