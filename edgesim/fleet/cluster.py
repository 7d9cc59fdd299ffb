"""The Ray cluster that a fleet runs on: joined or started, and what its nodes have."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ray
from ray._private import state  # what is free on which node has no public name
from ray.exceptions import RayError
from rich.console import Console

from edgesim.fleet.fork_server import fork_server
from edgesim.fleet.placement import CPU_STEP, FleetError, Node
from edgesim.fleet.shipping import (
    NEEDED,
    PACKAGES,
    Software,
    missing_packages,
    modules_to_ship,
    runtime_environment,
    software_here,
    software_of_nodes,
    version_differences,
)
from edgesim.learning.accelerator import num_local_gpus

NAMESPACE = "edgesim"
CONNECT_TIMEOUT_S = 10.0
RAY_FAILURES = (ConnectionError, ValueError, RuntimeError, RayError)
_REMEDY_OF_TOKENS = (
    "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's, which "
    "`ray get-auth-token` shows on its nodes"
)
# Ray would start a worker for each core before there is a job, which those of the job have.
_NO_WORKERS_YET = {"RAY_prestart_worker_first_driver": "0"}
# Ray's own metrics, which nobody sees without its dashboard, make a raylet grow and grow.
_NO_METRICS = {"RAY_enable_metrics_collection": "0"}
# Each event loop of each of its processes would count and time all that it does: a quarter of what
# a worker takes that has nothing to do. And what carries workers' output to the driver would list
# all files ten times a second: with "many" of them, that is any, it does so twice.
_LESS_IDLE_WORK = {"RAY_event_stats": "0", "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0"}
_TOKEN_LOGGER = "ray._private.authentication.authentication_token_setup"  # noqa: S105 (a logger)


class AddressError(FleetError, ValueError):
    """There is no Ray cluster where the user said, or it lets nobody in."""


@contextmanager
def ray_session(address: str | None, *, dashboard: bool, console: Console) -> Iterator[None]:
    """Join a Ray cluster, or start one on this machine, and leave or end it afterwards.

    Args:
        address: of a running cluster ("auto" finds a local one); None starts a new one.
        dashboard: start the dashboard with a new cluster.
        console: told where the dashboard is.

    Raises:
        AddressError: there is no cluster at the address, or it does not know this user's token.
        FleetError: Ray can't be started here.
    """
    with ExitStack() as stack:
        if address is not None:
            _check_reachable(address)
            dashboard_url = _join(address, [])
        else:
            python = stack.enter_context(fork_server())
            dashboard_url = _start_here(python, dashboard=dashboard)
        stack.callback(ray.shutdown)
        if address is not None and (modules := _modules_to_ship(console)):
            ray.shutdown()  # what a job ships is said when it joins
            _join(address, modules)
        if dashboard_url:
            console.print(f"Ray dashboard: http://{dashboard_url}")
        yield


def _start_here(python: Path | None, *, dashboard: bool) -> str | None:
    """Start a cluster whose processes are run by a program; where its dashboard is."""
    # A cluster of one's own asks for the token that Ray has made: nothing to tell.
    logging.getLogger(_TOKEN_LOGGER).setLevel(logging.ERROR)
    try:
        settings = (_NO_WORKERS_YET if python else {}) | _LESS_IDLE_WORK
        settings |= {} if dashboard else _NO_METRICS
        with _environment(settings), _executable(python):
            context = ray.init(
                address="local",
                namespace=NAMESPACE,
                num_cpus=len(os.sched_getaffinity(0)),
                include_dashboard=dashboard,
                logging_level=logging.WARNING,
            )
    except RAY_FAILURES as error:
        raise FleetError(f"Ray can't be started on this machine: {_reason(error)}") from error
    url: str | None = context.dashboard_url
    return url


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started within; those that are set stay."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _executable(python: Path | None) -> Iterator[None]:
    """Let Ray, which starts its processes by the path of this one's Python, start them by another.

    It has a setting for that (`py_executable` of a runtime environment), but then imports itself in
    an ordinary Python before each worker: 0.7 s of a core.
    """
    original = sys.executable
    if python is not None:
        sys.executable = str(python)
    try:
        yield
    finally:
        sys.executable = original


def _join(address: str, modules: Sequence[str]) -> str | None:
    """Join a cluster, with packages for its nodes; where its dashboard is."""
    try:
        context = ray.init(
            address=address,
            namespace=NAMESPACE,
            runtime_env=runtime_environment(modules),
            logging_level=logging.WARNING,
        )
    except RAY_FAILURES as error:
        reason = _reason(error)
        if "uthenticat" in reason or "AUTH_TOKEN" in reason:
            sentence = reason.partition(". ")[0].rstrip(".")
            raise AddressError(f"--address {address}: {sentence}; {_REMEDY_OF_TOKENS}") from error
        if _has_port(address):  # somebody listens there
            raise AddressError(
                f"--address {address}: what listens there is no Ray cluster, or does not let this "
                f"user in ({reason}); if it asks for a token, {_REMEDY_OF_TOKENS}"
            ) from error
        raise AddressError(_no_cluster(address, reason)) from error
    url: str | None = context.dashboard_url
    return url


def _modules_to_ship(console: Console) -> list[str]:
    """Packages that the nodes do not have as this process has them.

    Raises:
        FleetError: a node lacks what can't be shipped.
    """
    here = Software(*software_here(PACKAGES, NEEDED))
    try:
        nodes = software_of_nodes()
    except RayError as error:
        raise FleetError(f"a node of the cluster runs no task: {_reason(error)}") from error
    if problem := missing_packages(nodes):
        raise FleetError(problem)
    for difference in version_differences(here, nodes):
        console.print(difference)
    modules = modules_to_ship(here, nodes)
    if modules:
        console.print("some nodes have another edgesim, or none: sending them this one")
    return modules


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes to reach an address that nobody listens at."""
    if address.startswith("ray://"):
        raise AddressError(
            f"--address {address}: a fleet can't be driven through a Ray client; run edgesim on a "
            "machine of the cluster with --address HOST:6379 or auto, or submit it as a Ray job"
        )
    if not _has_port(address):
        return  # "auto" and the like, which Ray looks up
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise AddressError(_no_cluster(address, str(error))) from error


def _has_port(address: str) -> bool:
    _, colon, port = address.rpartition(":")
    return bool(colon) and port.isdigit()


def _no_cluster(address: str, reason: str) -> str:
    return (
        f"--address {address}: no Ray cluster there ({reason}); start one with `ray start --head`, "
        "or leave --address away"
    )


def _reason(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def cluster_nodes() -> list[Node]:
    """Nodes that are alive, in an order that stays the same while they are."""
    free = state.available_resources_per_node()
    nodes = []
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        there, unheld = node["Resources"], free.get(node["NodeID"], {})
        nodes.append(
            Node(
                node["NodeID"],
                num_cpus=there.get("CPU", 0.0),
                free_cpus=unheld.get("CPU", 0.0),
                num_gpus=there.get("GPU", 0.0),
                free_gpus=unheld.get("GPU", 0.0),
            )
        )
    return sorted(nodes, key=lambda node: node.node_id)


def num_cluster_gpus() -> int:
    """GPUs of the cluster that this process has joined, if torch can use them there."""
    num_gpus = int(ray.cluster_resources().get("GPU", 0))
    if not num_gpus:
        return 0
    probe = ray.remote(num_gpus=CPU_STEP, num_cpus=0)(num_local_gpus)
    return num_gpus if ray.get(probe.remote()) else 0
