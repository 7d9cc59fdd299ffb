"""Same code on all nodes: compares the software of nodes, and ships packages to them.

If all nodes have the code of the driver, nothing is shipped. Otherwise all nodes get the driver's
packages as Ray's `py_modules`; the packages that these depend on must be installed. Data are sent
separately, as shards through Ray's object store. Credentials are not sent, since a runtime
environment can be read on the dashboard.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import NodeDiedError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from edgesim.fleet.on_ray.placement import FleetError

PACKAGES = ("edgesim", "topologies")
# What actors import, and cells of a sweep on a cluster; these alone use rich.
NEEDED = (
    *("torch", "numpy", "numba", "networkx", "pyarrow", "pydantic", "fsspec", "yaml", "PIL"),
    "rich",
)
DECIDE_BITS = ("torch", "numpy", "numba")
PASSED_ON = frozenset(
    {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"}
)
PROBE_TIMEOUT_S = 120.0
LEAVE_TIMEOUT_S = 30.0  # for Ray to notice that a node is dead
LEAVE_POLL_S = 3.0


@dataclass(frozen=True, slots=True)
class Software:
    """What a Python process runs.

    Attributes:
        host: name of the machine.
        code: digest of edgesim and topologies; None where they are not installed.
        versions: of needed packages by name; missing packages are not listed.
    """

    host: str
    code: str | None
    versions: Mapping[str, str]


def software_here(packages: Sequence[str], needed: Sequence[str]) -> tuple[str, str | None, Any]:
    """Fields of `Software` of this process; needs nothing but the standard library.

    It is sent to nodes that may have no edgesim, so it names nothing outside of itself.
    """
    import hashlib
    import importlib.util
    import platform
    import socket
    from importlib import metadata
    from pathlib import Path

    digest, found = hashlib.blake2b(digest_size=16), True
    for package in packages:
        spec = importlib.util.find_spec(package)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        found = found and bool(folders)
        for folder in folders:
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    versions = {"python": platform.python_version()}
    owners = metadata.packages_distributions()
    for module in needed:
        if importlib.util.find_spec(module) is not None:
            versions[module] = metadata.version(owners[module][0]) if module in owners else "?"
    return socket.gethostname(), digest.hexdigest() if found else None, versions


def software_of_nodes() -> list[Software]:
    """Software of the nodes of the cluster that this process has joined.

    A node that has just died stays in Ray's list for some seconds.

    Raises:
        GetTimeoutError: a node does not answer.
        FleetError: a node that takes no tasks does not leave the list.
    """
    deadline_s: float | None = None
    while True:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        answers, dying = _ask_nodes(nodes)
        if not dying:
            return answers
        now_s = time.monotonic()
        deadline_s = deadline_s or now_s + LEAVE_TIMEOUT_S
        if now_s > deadline_s:
            raise FleetError(f"node {dying[0]} is going away; try again in a minute")
        time.sleep(LEAVE_POLL_S)


def _ask_nodes(nodes: Sequence[Mapping[str, Any]]) -> tuple[list[Software], list[str]]:
    """Software of nodes, and the names of those that take no tasks any more."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)  # nodes may lack it
    try:
        probe = ray.remote(num_cpus=0)(software_here)
        asked = [
            probe.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(PACKAGES, NEEDED)
            for node in nodes
        ]
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    answers, dying, deadline_s = [], [], time.monotonic() + PROBE_TIMEOUT_S
    for node, call in zip(nodes, asked, strict=True):
        try:
            answer = ray.get(call, timeout=max(0.0, deadline_s - time.monotonic()))
            answers.append(Software(*answer))
        except (TaskUnschedulableError, NodeDiedError):
            dying.append(f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})")
    return answers, dying


def missing_packages(nodes: Sequence[Software]) -> str | None:
    """Packages that nodes lack and that are not shipped, as text; None if there are none."""
    for node in nodes:
        missing = [package for package in NEEDED if package not in node.versions]
        if missing:
            return (
                f"node {node.host} lacks {', '.join(missing)}; install there what edgesim depends "
                "on, the same versions as here (docs/deploy.md)"
            )
    return None


def version_differences(here: Software, nodes: Sequence[Software]) -> list[str]:
    """Differences of versions by which a seed may give other bits than on this machine, as text."""
    return [
        f"node {node.host} has {package} {node.versions[package]}, this machine "
        f"{here.versions[package]}: the same bits are certain with the same versions alone"
        for node in nodes
        for package in DECIDE_BITS
        if node.versions.get(package) != here.versions[package]
    ]


def modules_to_ship(here: Software, nodes: Sequence[Software]) -> list[str]:
    """Folders of the packages that the nodes are to get; none if all have this code."""
    if all(node.code == here.code for node in nodes):
        return []
    return [str(Path(sys.modules[package].__path__[0])) for package in PACKAGES]


def variables_to_pass(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with locations, such as endpoints and regions; no credentials."""
    wanted = {
        name: value
        for name, value in environment.items()
        if name in PASSED_ON or (name.startswith("FSSPEC_") and not _is_secret(name))
    }
    return {**wanted, "OMP_NUM_THREADS": "1"}


def _is_secret(name: str) -> bool:
    return any(word in name for word in ("KEY", "SECRET", "TOKEN", "PASS"))


def runtime_environment(modules: Sequence[str]) -> dict[str, Any]:
    """Runtime environment for `ray.init` on an existing cluster.

    Args:
        modules: folders of packages to ship.
    """
    wanted: dict[str, Any] = {"env_vars": variables_to_pass(os.environ)}
    if modules:
        wanted |= {"py_modules": [*modules], "excludes": ["**/__pycache__", "*.nbi", "*.nbc"]}
    return wanted
