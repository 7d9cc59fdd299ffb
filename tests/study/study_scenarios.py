"""Small scenarios to study: digits, the small CNN, four devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import small_fleets
from rich.console import Console
from small_fleets import small_scenario

from edgesim.assembly.preparation import prepare
from edgesim.fleet.run import RunResult, run_scenario
from edgesim.scenario import Scenario, load_scenario

SCENARIO = small_scenario(
    data={"train_samples": 192, "partition": {"kind": "iid"}},
    training={"rounds": None, "epochs": 4},
    gossip={"compressor": {"kind": "top_k", "keep": 0.1}},
    evaluation={"every_rounds": None, "samples": 20},
)
INT8 = ("model.precision=int8", "model.quantization={backend: reference}")
MIXED = (
    "fleet.devices=[{profile: raspberry-pi-4b, count: 3}, {profile: raspberry-pi-zero-2w}]",
    "network={bandwidth_mbps: 10, latency_ms: 3}",
)
DENSE = "gossip.compressor={kind: identity}"
ROOT = Path(__file__).resolve().parents[2]
CIFAR10_RING8 = ROOT / "scenarios" / "cifar10_ring8.yaml"


def write_scenario(folder: Path) -> Path:
    """The scenario above as a file."""
    return small_fleets.write_scenario(folder, SCENARIO)


def small(folder: Path, *overrides: str):
    """The scenario above, with `--set` overrides."""
    return load_scenario(write_scenario(folder), overrides)


def ran(folder: Path, scenario: Scenario, name: str = "run") -> RunResult:
    """The run of a scenario in this process, into folder/name."""
    with (folder / f"{name}.log").open("w") as log:
        console = Console(file=log)
        return run_scenario(prepare(scenario), folder / name, inline=True, console=console)


@contextmanager
def as_if_long() -> Iterator[None]:
    """Within it a short training is foretold as a long one is: by the fleet's steady state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgesim.study.rounds.steady_state.FEW_EVENTS", 0)
        yield
