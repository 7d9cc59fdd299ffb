"""The Ray actor around a host: one device each by default, several when packed.

Peers call each other's `deliver`; the driver sees no message. No step waits for a peer: `deliver`
only fills a mailbox, and its acknowledgement says whether the message was valid.

Ray starts a lost actor again, the driver builds its devices, and they go on from their checkpoints.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import ray
import torch
from ray.exceptions import RayActorError, RayTaskError

from edgesim.data.arrays import Shard
from edgesim.device.mail import Announcement, Envelope
from edgesim.errors import EdgesimError
from edgesim.fleet.host.build import build_host
from edgesim.fleet.host.host import Host
from edgesim.fleet.on_ray.arithmetics import Built
from edgesim.fleet.on_ray.core_pool import CorePool
from edgesim.fleet.on_ray.private_folder import PREFIX, sweep
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.transport.network import (
    Acknowledgement,
    Network,
    PeerUnavailableError,
    Request,
)
from edgesim.fleet.transport.progress import Progress, Waiting
from edgesim.learning.allocator import keep_freed_memory
from edgesim.results.run_directory import RunDirectory
from edgesim.results.run_files import ABOUT
from edgesim.system import usable_cpus

Peer: TypeAlias = Any
"""Handle of a DeviceActor; Ray does not type the answers of asynchronous actor methods."""


def core_folder(name: str) -> Path:
    """Folder by which the actors of a fleet on one machine share its cores.

    Args:
        name: of the fleet, drawn at random: another user of the machine can't guess the folder.
    """
    return Path(tempfile.gettempdir()) / f"{PREFIX}cores-{name}"


class ActorLostError(EdgesimError):
    """An actor was lost and cannot be started again."""


class RunDirectoryUnreachableError(EdgesimError, ValueError):
    """A machine of the fleet can't reach the files of the run."""


class DeviceActor:
    """Hosts the devices of one process; wrapped by `ray.remote` in launch.py.

    An actor has no devices until `build`, also after a restart: the driver keeps the data of
    devices and sends them again.

    Args:
        label: which devices it hosts, in words.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        torch.set_num_threads(1)
        keep_freed_memory()
        self._peers: Mapping[int, Peer] = {}
        self._own: frozenset[int] = frozenset()  # devices hosted here, which need no Ray to reach
        self._built: asyncio.Future[Host] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        """The name of the actor on Ray's dashboard and before each of its lines in Ray's logs."""
        return self._label

    async def build(
        self,
        plan: FleetPlan,
        shards: Mapping[int, Shard],
        peers: Mapping[int, Peer],
        num_threads: int,
        name: str,
        recover: bool,
    ) -> Built:
        """Build the devices; does nothing if that was done before.

        Args:
            plan: of the whole fleet.
            shards: of the devices hosted here; the driver gives them by reference.
            peers: handles of the actors that host the neighbours, by neighbour.
            num_threads: devices that compute at the same time.
            name: of the fleet; secret and random.
            recover: restore devices from checkpoints if there are any.

        Returns:
            This machine, and what it computes with.

        Raises:
            RunDirectoryUnreachableError: the run's files can't be reached from here.
            TemporaryFolderError: this machine has no folder that only this user can reach.
        """
        if self._built.done():
            return _built(plan)
        await asyncio.to_thread(_check_run_directory, plan)
        self._peers = peers
        folder = core_folder(name)
        await asyncio.to_thread(sweep, folder.parent)
        cores = CorePool(folder, len(usable_cpus()))
        self._own = frozenset(shards)
        host = await asyncio.to_thread(
            build_host,
            plan,
            shards,
            cast("Network", self),  # which Ray's decorator hides from type checkers
            num_threads=num_threads,
            recover=recover,
            core=cores.core,
            at_once=True,
        )
        self._built.set_result(host)
        return _built(plan)

    async def run(self) -> Progress:
        """Run the devices to their last round; return how they ended."""
        host = await self._built
        await host.run()
        return host.progress()

    @ray.method(enable_task_events=False)
    async def deliver(self, envelope: Envelope) -> Acknowledgement:
        """Bring an envelope to its device, here or in another actor."""
        acknowledgement: Acknowledgement = await self._call(envelope.to, "deliver", envelope)
        return acknowledgement

    @ray.method(enable_task_events=False)
    async def take_announcement(self, announcement: Announcement) -> None:
        """Bring a time bound or a life sign to its device, here or in another actor."""
        await self._call(announcement.edge[1], "take_announcement", announcement)

    @ray.method(enable_task_events=False)
    async def answer(self, request: Request) -> None:
        """Bring a request to its device, here or in another actor."""
        await self._call(request.holder, "answer", request)

    @ray.method(enable_task_events=False)
    async def progress(self) -> Progress:
        """How far the devices are."""
        return (await self._built).progress()

    @ray.method(enable_task_events=False)
    async def waiting(self) -> list[Waiting]:
        """Devices that wait for messages."""
        return (await self._built).waiting()

    async def stay(self) -> None:
        """Never return: the caller that awaits it gets an error if this actor is lost."""
        await asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        """End the run early and write what is recorded."""
        if self._built.done():
            await self._built.result().stop()

    async def _call(self, device: int, method: str, *args: object) -> Any:  # noqa: ANN401
        """Call a method of the host of a device; without Ray if this actor has the host.

        Raises:
            PeerUnavailableError: its actor was lost; Ray starts it again, and the driver builds its
                devices.
            EdgesimError: that the other device raised.
        """
        host = await self._built
        if device in self._own:
            return await getattr(host, method)(*args)
        try:
            return await getattr(self._peers[device], method).remote(*args)
        except RayActorError as error:
            raise PeerUnavailableError(f"the actor of device {device} is away") from error
        except RayTaskError as error:
            if isinstance(error.cause, EdgesimError):
                raise error.cause from None
            raise


def _built(plan: FleetPlan) -> Built:
    return Built(socket.gethostname(), plan.compute.describe())


def _check_run_directory(plan: FleetPlan) -> None:
    """Check that the run directory is here: an actor may have been moved to another machine.

    Raises:
        RunDirectoryUnreachableError: the run's files are not there.
    """
    directory, node = RunDirectory(plan.run_directory), socket.gethostname()
    remedy = "name one by --out that all nodes reach: a shared path, or s3://bucket/run"
    try:
        is_there = directory.has(ABOUT)
        found = directory.run_digest if is_there else None
    except EdgesimError as error:
        raise RunDirectoryUnreachableError(f"node {node}: {error}; {remedy}") from error
    if found != plan.run_digest:
        problem = "is another run's" if is_there else "is not there"
        raise RunDirectoryUnreachableError(
            f"the run directory {directory.place} {problem} on node {node}; {remedy}"
        )
