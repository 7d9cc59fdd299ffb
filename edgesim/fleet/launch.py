"""The fleet as Ray actors that call each other; this side only places, starts and ends them."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from rich.console import Console

from edgesim.assembly import FleetPlan
from edgesim.data.images import LabelledImages
from edgesim.equipment import has_batteries
from edgesim.errors import EdgesimError
from edgesim.fleet.actor import ActorLostError, DeviceActor, core_folder
from edgesim.fleet.host import Progress
from edgesim.learning.accelerator import num_local_gpus
from topologies import possible_receivers

if TYPE_CHECKING:
    from ray.actor import ActorHandle

NAMESPACE = "edgesim"
CPU_STEP = 1e-4  # Ray counts CPUs in ten-thousandths
CONNECT_TIMEOUT_S = 10.0
START_REPORT_S = 20.0  # between words about actors that are not there yet

_log = logging.getLogger(__name__)


class FleetError(EdgesimError):
    """The fleet can't be started."""


class AddressError(FleetError, ValueError):
    """There is no Ray cluster where the user said."""


@contextmanager
def ray_session(address: str | None, *, dashboard: bool, console: Console) -> Iterator[None]:
    """Join a Ray cluster, or start one on this machine, and leave or end it afterwards.

    Args:
        address: of a running cluster ("auto" finds a local one); None starts a new one.
        dashboard: start the dashboard with a new cluster.
        console: told where the dashboard is.

    Raises:
        AddressError: there is no cluster at the address.
        FleetError: Ray can't be started here.
    """
    if address is not None:
        _check_reachable(address)
    try:
        context = ray.init(
            address=address or "local",
            namespace=NAMESPACE,
            num_cpus=None if address else len(os.sched_getaffinity(0)),
            include_dashboard=None if address else dashboard,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
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
    host, colon, port = address.rpartition("://")[2].rpartition(":")
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


def devices_by_actor(
    num_devices: int, devices_per_actor: int | Literal["auto"], num_cpus: int
) -> list[range]:
    """Consecutive devices of each actor; `auto` makes one actor per CPU."""
    if devices_per_actor == "auto":
        size = ceil(num_devices / max(1, min(num_cpus, num_devices)))
    else:
        size = devices_per_actor
    starts = range(0, num_devices, size)
    return [range(start, min(start + size, num_devices)) for start in starts]


def num_cluster_gpus() -> int:
    """GPUs of the cluster that this process has joined, if torch can use them there."""
    num_gpus = int(ray.cluster_resources().get("GPU", 0))
    if not num_gpus:
        return 0
    probe = ray.remote(num_gpus=CPU_STEP, num_cpus=0)(num_local_gpus)
    return num_gpus if ray.get(probe.remote()) else 0


class RayFleet:
    """Actors of one run, named `<run directory>/device-<index>` in the namespace "edgesim".

    Args:
        plan: of the whole fleet.
        shards: one per device, in order; each reaches its actor once, through the object store.

    Raises:
        FleetError: Ray refuses an actor, such as one whose name is taken.
    """

    def __init__(self, plan: FleetPlan, shards: Sequence[LabelledImages]) -> None:
        num_cpus = int(ray.cluster_resources().get("CPU", 1))
        self._plan = plan
        self._groups = devices_by_actor(
            len(shards), plan.scenario.fleet.devices_per_actor, num_cpus
        )
        self._actors: list[ActorHandle[DeviceActor]] = []
        try:
            self._start(shards, num_cpus)
        except (ValueError, RayError) as error:
            self.close()
            reason = str(error).splitlines()[0]
            raise FleetError(f"Ray refused an actor of {plan.run_directory}: {reason}") from error
        self._actor_of = {
            device: actor
            for devices, actor in zip(self._groups, self._actors, strict=True)
            for device in devices
        }

    def _start(self, shards: Sequence[LabelledImages], num_cpus: int) -> None:
        """Create the actors; an equal fraction of the cluster's CPUs each spreads them evenly."""
        share = min(1.0, num_cpus / len(self._groups))
        gpu_share = self._gpu_share()
        num_threads = max(1, num_cpus // len(self._groups))
        actor_class = ray.remote(DeviceActor)
        plan = ray.put(self._plan)
        for devices in self._groups:
            options = {
                "name": f"{self._plan.run_directory.name}/{_name(devices)}",
                "num_cpus": max(CPU_STEP, int(share / CPU_STEP) * CPU_STEP),
                "num_gpus": gpu_share,
            }
            actor: Any = actor_class.options(**options).remote(
                plan,
                tuple(devices),
                min(num_threads, len(devices)),
                *(ray.put(shards[device]) for device in devices),
            )
            self._actors.append(actor)

    def _gpu_share(self) -> float:
        """GPU of each actor: what the scenario says, or an equal share of all there are.

        Raises:
            FleetError: the GPUs can't hold as many actors of that share.
        """
        wanted = self._plan.scenario.fleet.gpus_per_actor
        if self._plan.compute.accelerator == "cpu":
            return 0.0
        num_gpus = int(ray.cluster_resources().get("GPU", 0))
        if wanted != "auto":
            places = num_gpus * int(1 / wanted)
            if places < len(self._groups):
                raise FleetError(
                    f"fleet.gpus_per_actor is {wanted:g}, so that {num_gpus} GPUs hold {places} of "
                    f"{len(self._groups)} actors; lower it, or raise fleet.devices_per_actor"
                )
            return wanted
        # A share must lie on one GPU: so many actors on each that all find a place.
        actors_of_gpu = ceil(len(self._groups) / num_gpus)
        return int(1 / actors_of_gpu / CPU_STEP) * CPU_STEP

    async def run(self) -> None:
        """Introduce neighbours to each other, then run all devices to their last round.

        Raises:
            EdgesimError: of the first device that failed.
            ActorLostError: an actor ended before its devices did.
        """
        runs: list[asyncio.Future[None]] = []
        try:
            await self._connect()
            runs += [asyncio.ensure_future(actor.run.remote()) for actor in self._actors]
            await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION)
            self._raise_failure(runs)
        except RayActorError as error:
            raise ActorLostError(f"an actor was lost at the start: {_first_line(error)}") from error
        finally:
            for run in runs:
                run.cancel()
            await asyncio.gather(*runs, return_exceptions=True)

    async def progress(self) -> list[Progress]:
        """How far the devices of each actor are; actors that do not answer are left out."""
        answers: list[Progress | BaseException] = await asyncio.gather(
            *(actor.progress.remote() for actor in self._actors), return_exceptions=True
        )
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def stop(self) -> None:
        """End the run early; every host writes the rounds that it holds, as far as it can."""
        await asyncio.gather(
            *(actor.stop.remote() for actor in self._actors), return_exceptions=True
        )

    def close(self) -> None:
        """End all actors."""
        for actor in self._actors:
            ray.kill(actor)
        shutil.rmtree(core_folder(self._plan), ignore_errors=True)  # absent before a first step

    async def _connect(self) -> None:
        """Hand each actor the handles of those it may send to; waits for all actors."""
        waiting: set[asyncio.Future[None]] = {
            asyncio.ensure_future(actor.connect.remote(self._peers(devices)))
            for devices, actor in zip(self._groups, self._actors, strict=True)
        }
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=START_REPORT_S)
            for connected in done:
                connected.result()
            if waiting and not done:
                free = ray.available_resources()
                _log.warning(
                    "waiting for %d of %d actors; the cluster has %g CPUs and %g GPUs free",
                    len(waiting),
                    len(self._actors),
                    free.get("CPU", 0.0),
                    free.get("GPU", 0.0),
                )

    def _peers(self, devices: range) -> dict[int, Any]:
        if has_batteries(self._plan.scenario):  # whoever leaves may be succeeded by anybody
            return {**self._actor_of}
        return {
            peer: self._actor_of[peer]
            for device in devices
            for peer in possible_receivers(self._plan.schedule, device)
        }

    def _raise_failure(self, runs: Sequence[asyncio.Future[None]]) -> None:
        """Raise what explains the end of a run best: a lost actor, then a device's error."""
        errors = {
            devices: error
            for devices, run in zip(self._groups, runs, strict=True)
            if run.done() and (error := run.exception()) is not None
        }
        for devices, error in errors.items():
            if isinstance(error, RayActorError):
                raise ActorLostError(
                    f"the actor {_name(devices)} was lost: {_first_line(error)}"
                ) from error
        for error in errors.values():
            if isinstance(error, RayTaskError) and isinstance(error.cause, EdgesimError):
                raise error.cause from None
            raise error


def _name(devices: range) -> str:
    if len(devices) == 1:
        return f"device-{devices[0]}"
    return f"devices-{devices[0]}-{devices[-1]}"


def _first_line(error: RayError) -> str:
    """The first line of Ray's message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
