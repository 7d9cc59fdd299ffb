"""The Ray cluster that a fleet runs on: joined or started, and what its nodes have."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray._private import state  # what is free on which node has no public name
from ray.exceptions import RayError
from rich.console import Console

from edgesim.fleet.placement import CPU_STEP, FleetError, Node
from edgesim.learning.accelerator import num_local_gpus

NAMESPACE = "edgesim"
CONNECT_TIMEOUT_S = 10.0
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
    if address is not None:
        _check_reachable(address)
    else:  # a cluster of one's own asks for the token that Ray has made: nothing to tell
        logging.getLogger(_TOKEN_LOGGER).setLevel(logging.ERROR)
    try:
        context = ray.init(
            address=address or "local",
            namespace=NAMESPACE,
            num_cpus=None if address else len(os.sched_getaffinity(0)),
            include_dashboard=None if address else dashboard,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        reason = _reason(error)
        if address is None:
            raise FleetError(f"Ray can't be started on this machine: {reason}") from error
        raise AddressError(_no_cluster(address, reason)) from error
    try:
        if context.dashboard_url:
            console.print(f"Ray dashboard: http://{context.dashboard_url}")
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes to reach an address that nobody listens at."""
    if address.startswith("ray://"):
        raise AddressError(
            f"--address {address}: a fleet can't be driven through a Ray client; run edgesim on a "
            "machine of the cluster with --address HOST:6379 or auto, or submit it as a Ray job"
        )
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdigit()):
        return  # "auto" and the like, which Ray looks up
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise AddressError(_no_cluster(address, str(error))) from error


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
