"""A whole fleet on one host in this process: the same code as with Ray, without Ray."""

from __future__ import annotations

from collections.abc import Sequence

from edgesim.data.arrays import Shard
from edgesim.fleet.host.build import build_host
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.transport.progress import Progress, Waiting


class InlineFleet:
    """All devices on one host, which needs no network.

    Args:
        plan: of the fleet.
        shards: one per device, in order.
        num_threads: devices that compute at the same time.
        recover: restore devices from checkpoints if there are any.
    """

    def __init__(
        self,
        plan: FleetPlan,
        shards: Sequence[Shard],
        num_threads: int,
        *,
        recover: bool = False,
    ) -> None:
        threads = min(num_threads, len(shards))
        by_device = dict(enumerate(shards))
        self._host = build_host(plan, by_device, None, num_threads=threads, recover=recover)

    async def run(self) -> None:
        """Run all devices to their last round."""
        await self._host.run()

    async def progress(self) -> list[Progress]:
        """How far the devices are."""
        return [self._host.progress()]

    async def waiting(self) -> list[Waiting]:
        """Devices that wait for messages."""
        return self._host.waiting()

    def absent(self) -> str:
        """Nothing: the devices are in this process."""
        return ""

    async def stop(self) -> None:
        """End a run early and write the rounds recorded so far."""
        await self._host.stop()

    def close(self) -> None:
        """End everything that was started."""
        self._host.close()
