"""A few cases of every fuzzer; `make fuzz` runs as many as one likes."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import fuzz_scenarios
import pytest
import run_cases
from run_cases import fuzzer, kinds
from thorough import THOROUGH

from edgesim.fleet import run as runs
from edgesim.scenario import load_scenario

BATCHES = 2  # so that two processes share a kind


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", kinds())
def test_cases_of_a_fuzzer_pass(kind, batch):
    module = fuzzer(kind)
    num_cases = module.NUM_IN_TESTS if THOROUGH else module.NUM_IN_TESTS // 2
    for seed in range(batch, num_cases, BATCHES):
        module.check(seed)


def test_fuzzers_run_outside_pytest_too():
    """`make fuzz` finds their modules without pytest's paths."""
    script = Path(run_cases.__file__)
    code = f"import sys; sys.path.insert(0, {str(script.parent)!r}); import run_cases\n"
    code += "print(*(run_cases.fuzzer(kind).__name__ for kind in run_cases.kinds()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"fuzz_{kind}" for kind in kinds()]


def test_an_accepted_scenario_that_crashes_is_noticed(monkeypatch):
    def crash(*_, **__):
        raise RuntimeError("as it was run")

    path = fuzz_scenarios.ROOT / "scenarios" / "quickstart.yaml"
    scenario = fuzz_scenarios.cut(load_scenario(path), random.Random(1))
    fuzz_scenarios.check_run(scenario)
    monkeypatch.setattr(runs, "run_scenario", crash)
    with pytest.raises(AssertionError, match="internal error: RuntimeError: as it was run"):
        fuzz_scenarios.check_run(scenario)
