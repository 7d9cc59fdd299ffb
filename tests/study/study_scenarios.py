"""Small scenarios to study: digits, the small CNN, four devices."""

from __future__ import annotations

from pathlib import Path

import yaml

from edgesim.scenario import load_scenario

SCENARIO = {
    "name": "small",
    "seed": 3,
    "fleet": {"devices": 4},
    "topology": {"kind": "directed_ring"},
    "data": {
        "source": "digits",
        "train_samples": 192,
        "partition": {"kind": "iid"},
        "batch_size": 16,
    },
    "model": {"name": "small_cnn"},
    "training": {"epochs": 4, "optimizer": {"lr": 0.05}},
    "gossip": {
        "algorithm": "choco",
        "averaging_rate": 0.2,
        "compressor": {"kind": "top_k", "keep": 0.1},
    },
    "evaluation": {"samples": 20},
}
INT8 = ("model.precision=int8", "model.quantization={backend: reference}")
MIXED = (
    "fleet.devices=[{profile: raspberry-pi-4b, count: 3}, {profile: raspberry-pi-zero-2w}]",
    "network={bandwidth_mbps: 10, latency_ms: 3}",
)
ROOT = Path(__file__).resolve().parents[2]
CIFAR10_RING8 = ROOT / "scenarios" / "cifar10_ring8.yaml"


def write_scenario(folder: Path) -> Path:
    """The scenario above as a file."""
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(SCENARIO))
    return path


def small(folder: Path, *overrides: str):
    """The scenario above, with `--set` overrides."""
    return load_scenario(write_scenario(folder), overrides)
