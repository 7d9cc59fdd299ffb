"""The fleets of `reality.py`: their shapes, and the scenario that the clock gets for each.

A device has a share of a core and an uplink. The share is a quota of the processor's time: in each
period of some milliseconds the process may run for so much of it, and then stands still. While it
runs, core, caches and memory are all its own. So every rate of the machine, that of the memory
included, is reached for this share of the time, and every time is that much longer: `of_share`.
(A core with a slower clock would be another matter: its memory would not slow down with it.)
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgesim.errors import ScenarioError
from edgesim.scenario.files import load_scenario

SOURCES = {"small_cnn": "digits", "resnet20": "cifar10"}  # whose shapes are known without reading


@dataclass(frozen=True, slots=True)
class Seat:
    """What a device of the fleet gets of the machine.

    Attributes:
        share: of a core, in (0, 1].
        uplink_mbps: rate of TCP's payload at which the device sends.
    """

    share: float
    uplink_mbps: float


@dataclass(frozen=True, slots=True)
class Shape:
    """A fleet.

    Attributes:
        seats: of the devices, in order.
        model: of the catalog.
        batch: samples of a step.
        keep: share of the entries that messages carry; 1: dense messages.
        reach: a device sends to the neighbours at these distances along the circle.
    """

    seats: tuple[Seat, ...]
    model: str
    batch: int
    keep: float
    reach: tuple[int, ...] = (1, -1)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Sender and receiver of each link."""
        size = len(self.seats)
        return [(i, (i + step) % size) for i in range(size) for step in self.reach]


def _seats(shares: Sequence[float], uplinks_mbps: Sequence[float]) -> tuple[Seat, ...]:
    return tuple(Seat(*pair) for pair in zip(shares, uplinks_mbps, strict=True))


SHAPES = {
    "compute-bound": Shape(
        _seats((0.35, 0.30, 0.25, 0.20), (40, 30, 20, 40)), "resnet20", batch=8, keep=0.01
    ),
    "network-bound": Shape(
        _seats((0.25, 0.25, 0.2, 0.2, 0.25, 0.2), (6, 4, 3, 8, 5, 4)), "small_cnn", batch=16, keep=1
    ),
    "mixed": Shape(  # device 1 computes slowly, the link of device 3 is slow
        _seats((0.35, 0.15, 0.35, 0.30), (20, 15, 20, 2)), "resnet20", batch=8, keep=0.1
    ),
    "directed": Shape(  # a circle in one direction: each link is an uplink of its own
        _seats((0.35, 0.20, 0.35, 0.30), (16, 12, 16, 2.5)),
        "resnet20",
        batch=8,
        keep=0.1,
        reach=(1,),
    ),
}


def machine_profile(path: Path) -> dict[str, Any]:
    """The profile in a file of `edgesim calibrate --out`, as keys of `hardware.profiles`.

    Raises:
        ScenarioError: there is no such profile in it.
    """
    profiles = load_scenario(path).hardware.profiles
    if len(profiles) != 1 or not profiles[0].layer_times:
        raise ScenarioError(
            f"{path}: has no profile with layer_times; write one: edgesim calibrate --out FILE"
        )
    section: dict[str, Any] = profiles[0].model_dump(mode="json", exclude_none=True)
    return section


def of_share(profile: Mapping[str, Any], share: float, name: str | None = None) -> dict[str, Any]:
    """The profile of a share of a core, as the module's docstring derives it.

    Args:
        profile: of the whole core, as keys of `hardware.profiles`; by processor time, so also one
            that was measured within the quota.
        share: in (0, 1].
        name: of the new profile; None: after its share.
    """
    changed = {
        key: value * share if key.endswith("_per_s") else value for key, value in profile.items()
    }
    changed["name"] = name or f"share-{round(1000 * share)}"
    changed["layer_times"] = [
        {key: value if key == "layer" else value / share for key, value in time.items()}
        for time in profile["layer_times"]
    ]
    # Faster than any uplink: links have the rates of the file of edges.
    changed["radio"] = {"name": "wire", "bandwidth_mbps": 1e4, "half_duplex": False}
    return changed


def write_scenario(
    shape: Shape, profiles: Sequence[Mapping[str, Any]], folder: Path, *, precision: str
) -> Path:
    """Write the scenario of a fleet, and the file of its edges beside it; gives the scenario.

    Args:
        shape: of the fleet.
        profiles: of each device's share of a core.
        folder: for the files.
        precision: of the model.
    """
    with (folder / "edges.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("source", "target", "bandwidth_mbps"))
        rows.writerows((*edge, shape.seats[edge[0]].uplink_mbps) for edge in shape.edges)
    kept = {"kind": "identity"} if shape.keep == 1 else {"kind": "top_k", "keep": shape.keep}
    scenario = {
        "name": "reality",
        "hardware": {"profiles": list({each["name"]: each for each in profiles}.values())},
        "fleet": {"devices": [{"profile": each["name"]} for each in profiles]},
        "topology": {"kind": "file", "path": "edges.csv"},
        "data": {
            "source": SOURCES[shape.model],
            "partition": {"kind": "iid"},
            "batch_size": shape.batch,
        },
        "model": {"name": shape.model, "precision": precision},
        "training": {
            "rounds": 100,
            "optimizer": {"lr": 0.001, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
        },
        "gossip": {"algorithm": "choco", "averaging_rate": 0.2, "compressor": kept},
    }
    path = folder / "scenario.yaml"
    path.write_text(json.dumps(scenario, indent=1) + "\n")  # which is YAML too
    return path
