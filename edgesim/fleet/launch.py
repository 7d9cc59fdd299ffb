"""The fleet as Ray actors that call each other; this side only places, starts and ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import ray
from ray.exceptions import RayActorError, RayTaskError

from edgesim.assembly import FleetPlan, make_schedule
from edgesim.data.images import LabelledImages
from edgesim.errors import EdgesimError
from edgesim.fleet.actor import DeviceActor
from edgesim.fleet.host import Progress

if TYPE_CHECKING:
    from ray.actor import ActorHandle

NAMESPACE = "edgesim"
CPU_STEP = 1e-4  # Ray counts CPUs in ten-thousandths

_log = logging.getLogger(__name__)


class FleetError(EdgesimError):
    """The fleet can't be started, or an actor was lost."""


@contextmanager
def ray_session(address: str | None, *, dashboard: bool) -> Iterator[None]:
    """Join a Ray cluster, or start one on this machine, and leave or end it afterwards.

    Args:
        address: of a running cluster ("auto" finds a local one); None starts a new one.
        dashboard: start the dashboard with a new cluster.

    Raises:
        FleetError: there is no cluster at the address.
    """
    try:
        ray.init(
            address=address or "local",
            namespace=NAMESPACE,
            logging_level=logging.WARNING,
            include_dashboard=None if address else dashboard,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise FleetError(f"no Ray cluster at --address {address}: {reason}") from error
    try:
        yield
    finally:
        ray.shutdown()


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


class RayFleet:
    """Actors of one run, named `<run>/device-<index>` in the namespace "edgesim".

    Args:
        plan: of the whole fleet.
        shards: one per device, in order; each reaches its actor once, through the object store.
    """

    def __init__(self, plan: FleetPlan, shards: Sequence[LabelledImages]) -> None:
        scenario = plan.scenario.fleet
        num_cpus = int(ray.cluster_resources().get("CPU", 1))
        groups = devices_by_actor(len(shards), scenario.devices_per_actor, num_cpus)
        self._actors = self._start(plan, shards, groups, num_cpus)
        self._actor_of = {
            device: actor
            for devices, actor in zip(groups, self._actors, strict=True)
            for device in devices
        }
        self._groups = groups
        self._plan = plan

    @staticmethod
    def _start(
        plan: FleetPlan, shards: Sequence[LabelledImages], groups: Sequence[range], num_cpus: int
    ) -> list[ActorHandle[DeviceActor]]:
        """Create the actors; an equal fraction of the cluster's CPUs each spreads them evenly."""
        share = max(CPU_STEP, int(min(1.0, num_cpus / len(groups)) / CPU_STEP) * CPU_STEP)
        num_threads = max(1, num_cpus // len(groups))
        actor_class = ray.remote(DeviceActor)
        actors: list[ActorHandle[DeviceActor]] = []
        for devices in groups:
            name = f"device-{devices[0]}"
            if len(devices) > 1:
                name = f"devices-{devices[0]}-{devices[-1]}"
            options = {"name": f"{plan.run_directory.name}/{name}", "num_cpus": share}
            references = [ray.put(shards[device]) for device in devices]
            actor: Any = actor_class.options(**options).remote(
                plan, tuple(devices), min(num_threads, len(devices)), *references
            )
            actors.append(actor)
        return actors

    async def run(self) -> None:
        """Introduce neighbours to each other, then run all devices to their last round.

        Raises:
            EdgesimError: of the first device that failed.
            FleetError: an actor was lost.
        """
        runs: list[asyncio.Future[None]] = []
        try:
            await asyncio.gather(*map(self._connect, self._groups, self._actors))
            runs += [asyncio.ensure_future(actor.run.remote()) for actor in self._actors]
            done, _ = await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION)
            for run in done:
                run.result()
        except RayTaskError as error:
            if isinstance(error.cause, EdgesimError):
                raise error.cause from None
            raise
        except RayActorError as error:
            raise FleetError(f"an actor of the fleet was lost: {_reason(error)}") from error
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

    async def flush(self) -> None:
        """Let every host write the rounds that it holds, as far as it still can."""
        await asyncio.gather(
            *(actor.flush.remote() for actor in self._actors), return_exceptions=True
        )

    def close(self) -> None:
        """End all actors."""
        for actor in self._actors:
            ray.kill(actor)

    async def _connect(self, devices: range, actor: ActorHandle[DeviceActor]) -> None:
        peers = possible_receivers(self._plan, devices)
        await actor.connect.remote({peer: self._actor_of[peer] for peer in peers})


def possible_receivers(plan: FleetPlan, devices: Sequence[int]) -> set[int]:
    """Devices that some of `devices` may send to in any round."""
    schedule = make_schedule(plan.scenario)
    if schedule.period is None:
        return set(range(plan.scenario.fleet.devices))
    return {
        receiver
        for round_index in range(schedule.period)
        for device in devices
        for receiver, _ in schedule.out_edges(device, round_index)
    }


def _reason(error: RayActorError) -> str:
    """The first line of Ray's message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
