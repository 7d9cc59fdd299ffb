"""The environment of a run: versions and machine, on which wall times and last bits may depend."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from edgesim.assembly.build import Compute
from edgesim.learning.accelerator import num_local_gpus
from edgesim.quant.backends import describe_backend

PACKAGES = (
    *("edgesim", "ray", "torch", "torchvision", "numpy", "numba", "llvmlite", "networkx"),
    *("pandas", "pyarrow"),
)


def describe_environment(mode: str, compute: Compute) -> dict[str, Any]:
    """Environment of a run that begins now, for environment.json."""
    return {
        "started_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": mode,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "accelerator": compute.accelerator,
        "gpu": torch.cuda.get_device_name(0) if num_local_gpus() else None,
        "cuda": torch.version.cuda,
        "eight_bit_backend": compute.backend and describe_backend(compute.backend),
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "packages": _versions(),
    }


@cache
def _versions() -> dict[str, str]:
    """Of installed packages; finding them takes longer than a round. The result is shared."""
    return {package: version(package) for package in PACKAGES}


def quiet_ray() -> None:
    """Let Ray, once it is imported, say nothing that edgesim says itself, and send nothing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    # The launcher reports a lost actor or node in one line, so Ray's own paragraphs are left out.
    losses = "A worker died or was killed|The node with node id|Raylet is terminated"
    # Ray warns of more actors than cores, but the scenario asks for them.
    crowds = "PYTHON worker processes have been started on node"
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", f"{losses}|{crowds}")
