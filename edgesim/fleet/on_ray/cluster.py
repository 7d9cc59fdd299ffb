"""Joins or starts the Ray cluster of a fleet, and lists the resources of its nodes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from math import isclose
from pathlib import PurePath
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray._private import state  # what is free on which node has no public name
from ray._private.worker import global_worker
from ray.autoscaler.v2.sdk import get_cluster_resource_state
from ray.exceptions import RayError
from rich.console import Console

from edgesim.fleet.on_ray.access import leave_word
from edgesim.fleet.on_ray.addresses import (
    REMEDY_OF_TOKENS,
    AddressError,
    check_auth_mode,
    find_cluster,
)
from edgesim.fleet.on_ray.leaving import PATIENT, leave
from edgesim.fleet.on_ray.own_ray import (
    NAMESPACE,
    RAY_FAILURES,
    environment,
    first_line,
    own_ray,
    read_settings_of_ray,
)
from edgesim.fleet.on_ray.placement import (
    CPU_STEP,
    FleetError,
    Need,
    Node,
    NoRoomError,
    devices_by_node,
)
from edgesim.fleet.on_ray.private_folder import (
    TemporaryFolderError,
    private_folder,
    safe_parent,
    temporary_folders,
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

if TYPE_CHECKING:
    from ray.actor import ActorHandle

Answer = TypeVar("Answer")

NAME_TIMEOUT_S = 60.0  # for Ray to end the actors of a driver that was killed
POLL_S = 0.5  # between looks at whether a name is free
_MOST_BYTES = 4096  # of a private folder's path, in which no socket is

_log = logging.getLogger(__name__)


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
        FleetError: Ray can't be started here, or this process uses it already.
        TemporaryFolderError: this machine has no folder that only this user can reach.
    """
    check_auth_mode()
    if ray.is_initialized():  # another Ray would take its place, and end the caller's actors
        raise FleetError(
            "this process is connected to Ray already; ray.shutdown() ends that, with what it "
            "started; or run without Ray: --inline"
        )
    with ExitStack() as stack:
        if address is not None:
            address = find_cluster(address, console)
            dashboard_url = _join(address, [])
            stack.push(leave)
            if modules := _modules_to_ship(console):
                ray.shutdown()  # packages to ship are given when joining
                _join(address, modules)
            _wait_for_name(PurePath(run).name)
            if dashboard_url:
                url = f"http://{dashboard_url}"
                if run:
                    _tell_dashboards(stack, url, run)
                line = f"Ray dashboard: {url}; in a browser: {program()} dashboard {url}"
                console.print(line, soft_wrap=True, highlight=False)
        else:
            own = own_ray(dashboard=dashboard, console=console, run=run, workers=workers)
            stack.enter_context(own)
        yield


def _wait_for_name(run: str) -> None:
    """Wait until no actors of another run have the names that this one needs.

    Raises:
        FleetError: that run does not end.
    """
    deadline_s, is_told = time.monotonic() + NAME_TIMEOUT_S, False
    while any(name.startswith(f"{run}/") for name in ray.util.list_named_actors()):
        if time.monotonic() > deadline_s:
            raise FleetError(name_is_taken(run))
        if not is_told:
            _log.warning("actors of a run called %s are on this cluster; waiting for its end", run)
        is_told = True
        time.sleep(POLL_S)


def name_is_taken(run: str) -> str:
    """What to do about another run of the same name."""
    return (
        f"a run called {run} uses this cluster already; end it, or give a new run an --out with "
        "another last part"
    )


def _tell_dashboards(stack: ExitStack, url: str, run: str) -> None:
    """Let `edgesim dashboard` know where the dashboard of this run is, until the run ends."""
    with suppress(TemporaryFolderError, OSError):  # the run goes on without
        parent = safe_parent(temporary_folders(), _MOST_BYTES)
        leave_word(stack.enter_context(private_folder(parent)), url, None, run)


def _join(address: str, modules: Sequence[str]) -> str | None:
    """Join a cluster and ship packages to its nodes; return the address of its dashboard."""
    try:
        with environment({name: os.environ.get(name, PATIENT[name]) for name in PATIENT}):
            read_settings_of_ray()
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
            raise AddressError(f"--address {address}: {sentence}; {REMEDY_OF_TOKENS}") from error
        raise AddressError(
            f"--address {address}: what listens there is no Ray cluster, or does not let this "
            f"user in ({reason}); if it asks for a token, {REMEDY_OF_TOKENS}"
        ) from error
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


async def why_absent(number: int, need: Need) -> str:
    """Why so many actors are not there yet, in words.

    Args:
        number: of actors.
        need: what each asks for.
    """
    return await _apart(lambda: _why_absent(number, need))


async def restarts(actors: Mapping[range, ActorHandle[Any]]) -> dict[range, int]:
    """How often Ray has started each actor again."""
    ids = {devices: actor._actor_id.hex() for devices, actor in actors.items()}  # noqa: SLF001
    found = await _apart(lambda: {devices: state.actors(own) for devices, own in ids.items()})
    return {devices: about.get("NumRestarts", 0) for devices, about in found.items()}


async def _apart(ask_ray: Callable[[], Answer]) -> Answer:
    """Ask Ray in a thread that nobody waits for when the run ends: Ray asks a lost head forever."""
    answer: Future[Answer] = Future()

    def ask() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(ask_ray())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            answer.set_exception(error)

    Thread(target=ask, daemon=True).start()
    return await asyncio.wrap_future(answer)


def _why_absent(number: int, need: Need) -> str:
    head = global_worker.gcs_client  # type: ignore[attr-defined]  # where a driver has joined
    requests = get_cluster_resource_state(head).pending_resource_requests
    waiting = [
        asked.count
        for asked in requests
        if isclose(asked.request.resources_bundle.get("CPU", 0.0), need.cpus, abs_tol=CPU_STEP / 2)
    ]
    number = min(number, sum(waiting))
    if not number:
        return "they are being started"
    nodes = cluster_nodes()
    free = ", ".join(f"{round(node.free_cpus, 1):g}" for node in nodes)
    of_gpus = ", ".join(f"{node.free_gpus:g}" for node in nodes) if need.gpus else ""
    have = "the node has" if len(nodes) == 1 else f"the {len(nodes)} nodes have"
    return f"{number} lack room; each asks for {need}, and {have} {free} CPUs free" + (
        f", {of_gpus} GPUs" if of_gpus else ""
    )


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
