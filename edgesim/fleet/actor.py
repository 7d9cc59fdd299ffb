"""The Ray actor around a host: one device each by default, several when packed.

Peers call each other's `deliver`; the driver sees no message. Nothing here waits for a peer inside
a step: `deliver` only fills a mailbox, and its answer says whether the bytes were readable.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import ray
import torch
from ray.exceptions import RayActorError

from edgesim.assembly import FleetPlan
from edgesim.data.images import LabelledImages
from edgesim.errors import EdgesimError
from edgesim.fleet.core_pool import CorePool
from edgesim.fleet.host import Progress, build_host
from edgesim.hardware.timeline import Stamp
from edgesim.learning.allocator import keep_freed_memory
from edgesim.mail import Letter

Peer: TypeAlias = Any
"""Handle of a DeviceActor; Ray does not type the answers of asynchronous actor methods."""


def core_folder(plan: FleetPlan) -> Path:
    """Where the actors of a run on one machine share its cores."""
    run = hashlib.sha256(str(plan.run_directory).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"edgesim-cores-{os.getuid()}-{run}"


class ActorLostError(EdgesimError):
    """An actor that the fleet can't do without has ended."""


class DeviceActor:
    """Hosts the devices of one process; wrapped by `ray.remote` in launch.py.

    Args:
        plan: of the whole fleet.
        devices: numbers of the devices hosted here.
        num_threads: devices that compute at the same time.
        shards: the devices' shards, in the same order.
    """

    def __init__(
        self,
        plan: FleetPlan,
        devices: Sequence[int],
        num_threads: int,
        *shards: LabelledImages,
    ) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self._peers: Mapping[int, Peer] = {}
        by_device = dict(zip(devices, shards, strict=True))
        cores = CorePool(core_folder(plan), len(os.sched_getaffinity(0)))
        self._host = build_host(
            plan, by_device, self._post, num_threads=num_threads, core=cores.core
        )

    async def connect(self, peers: Mapping[int, Peer]) -> None:
        """Take the handles of the actors that host the out-neighbours, by neighbour."""
        self._peers = peers

    async def run(self) -> None:
        """Run the devices to their last round."""
        await self._host.run()

    @ray.method(enable_task_events=False)
    async def deliver(self, data: bytes, stamp: Stamp | None, to: int) -> bool:
        """Take in an encoded message for a device here; False asks for it again."""
        return await self._host.deliver(data, stamp, to)

    @ray.method(enable_task_events=False)
    async def progress(self) -> Progress:
        """How far the devices are."""
        return self._host.progress()

    async def stop(self) -> None:
        """End the run early and write what is recorded."""
        await self._host.stop()

    async def _post(self, letter: Letter) -> bool:
        try:
            peer = self._peers[letter.receiver]
            accepted: bool = await peer.deliver.remote(letter.data, letter.stamp, letter.receiver)
        except RayActorError as error:
            raise ActorLostError(f"the actor of device {letter.receiver} was lost") from error
        return accepted
