"""Joins or starts the Ray cluster of a fleet, and lists the resources of its nodes."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import ray
from ray._private import state  # what is free on which node has no public name
from ray.exceptions import RayError
from rich.console import Console

from edgesim.fleet.on_ray.own_ray import NAMESPACE, RAY_FAILURES, first_line, own_ray
from edgesim.fleet.on_ray.placement import (
    CPU_STEP,
    FleetError,
    Node,
    NoRoomError,
    devices_by_node,
)
from edgesim.fleet.on_ray.shipping import (
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
from edgesim.fleet.on_ray.workers import Workers
from edgesim.learning.accelerator import num_local_gpus
from edgesim.program import program

CONNECT_TIMEOUT_S = 10.0
_REMEDY_OF_TOKENS = (
    "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's, which "
    "`ray get-auth-token` shows on its nodes"
)


class AddressError(FleetError, ValueError):
    """There is no Ray cluster at the given address, or it refuses this user."""


@contextmanager
def ray_session(
    address: str | None,
    *,
    dashboard: bool,
    console: Console,
    run: str = "",
    workers: Workers | None = None,
) -> Iterator[None]:
    """Join a Ray cluster, or start one on this machine, and leave or end it afterwards.

    Args:
        address: of a running cluster ("auto" finds a local one); None starts a new one.
        dashboard: start the dashboard with a new cluster.
        console: told where the dashboard is.
        run: place of the run that it is for.
        workers: prepared for a new cluster; None: they are prepared here.

    Raises:
        AddressError: there is no cluster at the address, or it does not know this user's token.
        FleetError: Ray can't be started here.
        TemporaryFolderError: this machine has no folder that only this user can reach.
    """
    with ExitStack() as stack:
        if address is not None:
            _check_reachable(address)
            dashboard_url = _join(address, [])
            stack.callback(ray.shutdown)
            if modules := _modules_to_ship(console):
                ray.shutdown()  # packages to ship are given when joining
                _join(address, modules)
            if dashboard_url:
                url = f"http://{dashboard_url}"
                line = f"Ray dashboard: {url}; in a browser: {program()} dashboard {url}"
                console.print(line, soft_wrap=True, highlight=False)
        else:
            own = own_ray(dashboard=dashboard, console=console, run=run, workers=workers)
            stack.enter_context(own)
        yield


def _join(address: str, modules: Sequence[str]) -> str | None:
    """Join a cluster and ship packages to its nodes; return the address of its dashboard."""
    try:
        context = ray.init(
            address=address,
            namespace=NAMESPACE,
            runtime_env=runtime_environment(modules),
            logging_level=logging.WARNING,
        )
    except RAY_FAILURES as error:
        reason = first_line(error)
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
    """Packages of this process that nodes lack or have with other content.

    Raises:
        FleetError: a node lacks what can't be shipped.
    """
    here = Software(*software_here(PACKAGES, NEEDED))
    try:
        nodes = software_of_nodes()
    except RayError as error:
        raise FleetError(f"a node of the cluster runs no task: {first_line(error)}") from error
    if problem := missing_packages(nodes):
        raise FleetError(problem)
    for difference in version_differences(here, nodes):
        console.print(difference)
    modules = modules_to_ship(here, nodes)
    if modules:
        console.print("some nodes have another edgesim, or none: sending them this one")
    return modules


def _check_reachable(address: str) -> None:
    """Refuse an address without a listener, which Ray would try to reach for minutes."""
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


def devices_of_nodes(num_devices: int) -> list[range]:
    """Devices that fleet.placement: by_node starts on each node; nodes without any are left out.

    Raises:
        NoRoomError: no node offers a CPU.
    """
    nodes = [node for node in cluster_nodes() if node.num_cpus > 0]
    if not nodes:
        raise NoRoomError("no node of the cluster offers a CPU; add nodes")
    return [devices for devices in devices_by_node(num_devices, nodes) if devices]


def num_cluster_gpus() -> int:
    """GPUs of the cluster that this process has joined, if torch can use them there."""
    num_gpus = int(ray.cluster_resources().get("GPU", 0))
    if not num_gpus:
        return 0
    probe = ray.remote(num_gpus=CPU_STEP, num_cpus=0)(num_local_gpus)
    return num_gpus if ray.get(probe.remote()) else 0
