"""environment.json: versions and machine, and what a run began with, to which it is held later.

Wall times and last bits may depend on versions and machine.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from edgesim.assembly.build import Compute
from edgesim.assembly.prepared_run import PreparedRun
from edgesim.code_version import CodeVersion, code_version
from edgesim.learning.accelerator import num_local_gpus
from edgesim.quant.backends import describe_backend
from edgesim.results.run_files import RunDirectoryError
from edgesim.scenario.data import FilePartition
from edgesim.scenario.own_parts import own_parts
from edgesim.scenario.schema import Scenario
from edgesim.system import processor, usable_cpus

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
        "processor": processor(),
        "cpus": len(usable_cpus()),
        "accelerator": compute.accelerator,
        "gpu": torch.cuda.get_device_name(0) if num_local_gpus() else None,
        "cuda": torch.version.cuda,
        "eight_bit_backend": compute.backend and describe_backend(compute.backend),
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "packages": _versions(),
        "code": code_version().written,
    }


def described_content(prepared: PreparedRun) -> dict[str, Any]:
    """What a run begins with, for environment.json.

    Its length, own parts, files and samples, and what the model is made for.
    """
    return {
        "rounds": prepared.training.num_rounds,
        "own_parts": {str(part): part.digest for _, part in own_parts(prepared.scenario)},
        "files": _digests_of_files(prepared),
        "samples": prepared.sample_digests,
        "graphs": prepared.graphs_digest,
        "inputs": asdict(prepared.data),
    }


def _digests_of_files(prepared: PreparedRun) -> dict[str, str]:
    """Digests of the files of graphs, partitions and initial values, by their paths."""
    partition = prepared.scenario.data.partition
    paths = [*prepared.graph_files()]
    if isinstance(partition, FilePartition):
        paths += [Path(path) for path in (partition.path, partition.test_path) if path]
    found = {str(path): _digest(path) for path in paths}
    if prepared.start is not None:
        found[str(prepared.scenario.model.start_from)] = prepared.start.digest
    return found


def check_own_parts(place: str, scenario: Scenario, environment: Mapping[str, Any]) -> None:
    """Refuse to resume a run whose own parts have changed.

    Args:
        place: of the run.
        scenario: of the run, with its parts as they are now.
        environment: of the run when it began.

    Raises:
        RunDirectoryError: a part has changed.
    """
    began_with = environment.get("own_parts", {})
    for key, part in own_parts(scenario):
        if began_with.get(str(part)) != part.digest:
            raise RunDirectoryError(
                f"{place}: {key} names {part.place}, which has changed since the run began; bring "
                "back what it was, or start the run anew"
            )


def check_files(place: str, scenario: Scenario, environment: Mapping[str, Any]) -> None:
    """Refuse to resume a run whose files of graphs or partitions have changed.

    This comes before anything is made of them. Who reads a file that is gone says so.

    Args:
        place: of the run.
        scenario: of the run.
        environment: of the run when it began.

    Raises:
        RunDirectoryError: a file has changed.
    """
    for name, digest in environment.get("files", {}).items():
        path = Path(name)
        if name != str(scenario.model.start_from) and path.is_file() and _digest(path) != digest:
            raise RunDirectoryError(
                f"{place}: {name} is not what this run began with; bring it back, or start anew"
            )


def _digest(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def what_differs(prepared: PreparedRun, compute: Compute, environment: Mapping[str, Any]) -> str:
    """What is not as it was when a run began that has another digest now.

    Args:
        prepared: the run as it is now.
        compute: arithmetic as it is now.
        environment: of the run when it began.
    """
    backend = compute.backend and describe_backend(compute.backend)
    was = f"{environment['accelerator']}, {environment['eight_bit_backend'] or 'fp32'}"
    if was != (now := f"{compute.accelerator}, {backend or 'fp32'}"):
        return f"the arithmetic is {now}, and this run began with {was}"
    data = prepared.scenario.data
    named = f"data.path: {data.path}" if data.path else f"data.source: {data.source}"
    if environment.get("graphs", prepared.graphs_digest) != prepared.graphs_digest:
        kind = prepared.scenario.topology.kind
        return f"topology.kind: {kind} gives other graphs than those that this run began with"
    samples = environment.get("samples", {})
    for split, digest in prepared.sample_digests.items():
        if samples.get(split, digest) != digest:
            return f"the {split} samples ({named}) are not those that this run began with"
    of_model = ", or the files of the model" if prepared.files_digest else ""
    here, there = code_version(), CodeVersion.of(environment)
    if here.differs(there):
        return (
            f"this is {here}, and this run began with {there}, which may compute another digest "
            f"from the same settings; otherwise the data ({named}){of_model} have changed"
        )
    return f"the data ({named}){of_model}, or what edgesim makes of them, have changed"


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
