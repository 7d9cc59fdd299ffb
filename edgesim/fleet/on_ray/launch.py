"""The fleet as Ray actors that call each other; the driver places, starts, restarts and ends them.

Ray starts a lost actor again, on its node or, if the node is lost, on another. The driver then
builds the devices of the actor again, and they are restored from their checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import ray
from ray._private.worker import global_worker
from ray.exceptions import (
    ActorAlreadyExistsError,
    ActorDiedError,
    RayActorError,
    RayError,
    RayTaskError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from edgesim.assembly.equipment import may_leave
from edgesim.data.arrays import Shard
from edgesim.errors import EdgesimError
from edgesim.fleet.on_ray.actor import ActorLostError, DeviceActor, core_folder
from edgesim.fleet.on_ray.addresses import AddressError, watch_head, watch_node
from edgesim.fleet.on_ray.arithmetics import Arithmetics, Built
from edgesim.fleet.on_ray.cluster import (
    NAME_TIMEOUT_S,
    cluster_nodes,
    name_is_taken,
    num_cluster_gpus,
    ray_session,
    restarts,
    why_absent,
)
from edgesim.fleet.on_ray.losses import Losses
from edgesim.fleet.on_ray.own_ray import RAY_FAILURES, first_line
from edgesim.fleet.on_ray.placement import (
    FleetError,
    Need,
    Node,
    NodeLostError,
    NoRoomError,
    cpu_share,
    devices_by_actor,
    devices_by_node,
    gpu_share,
    place,
)
from edgesim.fleet.on_ray.private_folder import remove
from edgesim.fleet.plan import FleetPlan
from edgesim.fleet.transport.progress import Progress, Waiting

if TYPE_CHECKING:
    from ray.actor import ActorHandle

__all__ = [
    "AddressError",
    "FleetError",
    "NoRoomError",
    "RayFleet",
    "num_cluster_gpus",
    "ray_session",
]

ROOM_TIMEOUT_S = 60.0  # until other programs, such as a run that has just ended, make room
START_REPORT_S = 20.0  # between log lines about missing actors
POLL_S = 0.5  # between attempts to reach, name or place an actor
ANSWER_TIMEOUT_S = 10.0  # of an actor that is asked how far it is
NAMED_ACTORS = 4  # in a message
NAMED_DEVICES = 3  # of an actor
MAX_CALLS = 100_000  # calls of one actor; envelopes wait in calls for room

_log = logging.getLogger(__name__)


class RayFleet:
    """Actors of one run, named `<run directory>/device-<index>` in the namespace "edgesim".

    Args:
        plan: of the whole fleet.
        shards: one per device, in order; those of an actor reach it once, through the object store.
        recover: restore devices from checkpoints if there are any.
        on_restart: called with the devices of a lost actor that has been restarted.
        on_cluster: Ray is that of several machines, and not one of our own.

    Raises:
        NoRoomError: the cluster has no room for the actors.
        FleetError: Ray refuses an actor, such as one whose name is taken.
    """

    def __init__(
        self,
        plan: FleetPlan,
        shards: Sequence[Shard],
        *,
        recover: bool = False,
        on_restart: Callable[[range], None] = lambda _: None,
        on_cluster: bool = False,
    ) -> None:
        self._plan = plan
        self._on_restart = on_restart
        self._on_cluster = on_cluster
        self._name = secrets.token_hex(8)
        self._run = PurePath(str(plan.run_directory)).name
        self._actors: dict[range, ActorHandle[DeviceActor]] = {}
        self._is_node_lost = False
        self._num_threads: dict[range, int] = {}
        try:
            self._start(len(shards))
        except ActorAlreadyExistsError as error:
            self.close()
            raise FleetError(name_is_taken(self._run)) from error
        except (ValueError, RayError) as error:
            self.close()
            reason = first_line(error)
            raise FleetError(f"Ray refused an actor of {plan.run_directory}: {reason}") from error
        except BaseException:
            self.close()
            raise
        # The driver holds them for actors that are started again.
        self._plan_ref = ray.put(plan)
        self._shard_refs = {
            devices: ray.put({device: shards[device] for device in devices})
            for devices in self._actors
        }
        self._actor_of = {
            device: actor for devices, actor in self._actors.items() for device in devices
        }
        self._recovering = set(self._actors) if recover else set()
        self._absent = set(self._actors)
        self._unfinished = set(self._actors)
        self._all_finished = asyncio.Event()
        self._newest: dict[range, Progress] = {}
        self._losses = Losses(self._labels)
        self._arithmetics = Arithmetics()
        self._hosts: dict[range, str] = {}
        self._lost: set[range] = set()

    def _start(self, num_devices: int) -> None:
        """Create the actors, each on the node that the scenario's placement gives it.

        Only the first choice is bound to a node: an actor whose node is lost goes to another.
        """
        groups, nodes = self._find_room(num_devices)
        deadline_s = time.monotonic() + NAME_TIMEOUT_S
        for devices, node in zip(groups, nodes, strict=True):
            options = {
                "name": f"{self._run}/{_name(devices)}",
                "num_cpus": self._need.cpus,
                "num_gpus": self._need.gpus,
                "max_restarts": -1,
                "max_concurrency": MAX_CALLS,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node.node_id, soft=True),
            }
            num_threads = int(node.num_cpus) // nodes.count(node)
            self._num_threads[devices] = max(1, min(num_threads, len(devices)))
            self._actors[devices] = _create(self._label(devices), options, deadline_s)

    def _find_room(self, num_devices: int) -> tuple[list[range], list[Node]]:
        """Find the devices and the node of each actor; wait for room if need be.

        Raises:
            NoRoomError: there is none.
        """
        deadline_s, is_told = time.monotonic() + ROOM_TIMEOUT_S, False
        while True:
            nodes = [node for node in cluster_nodes() if node.num_cpus > 0]
            try:
                return self._divide(num_devices, nodes)
            except NoRoomError as error:
                if time.monotonic() > deadline_s:
                    raise
                if not is_told:
                    _log.warning("%s; waiting %g s for it", error, ROOM_TIMEOUT_S)
                is_told = True
            time.sleep(POLL_S)

    def _divide(self, num_devices: int, nodes: Sequence[Node]) -> tuple[list[range], list[Node]]:
        fleet = self._plan.scenario.fleet
        if not nodes:
            raise NoRoomError("no node of the cluster offers a CPU; add nodes")
        if fleet.placement == "by_node":
            both = zip(devices_by_node(num_devices, nodes), nodes, strict=True)
            pairs = [(devices, node) for devices, node in both if devices]
            groups, nodes = [devices for devices, _ in pairs], [node for _, node in pairs]
        else:
            num_cpus = int(sum(node.num_cpus for node in nodes))
            groups = devices_by_actor(num_devices, fleet.devices_per_actor, num_cpus)
        gpus = 0.0
        if self._plan.compute.accelerator != "cpu":
            gpus = gpu_share(nodes, len(groups), fleet.gpus_per_actor)
        self._need = Need(cpu_share(nodes, len(groups)), gpus)
        return groups, place(nodes, len(groups), self._need, fleet.placement)

    async def run(self) -> None:
        """Introduce neighbours to each other, then run all devices to their last round.

        An actor that is lost meanwhile is started again by Ray and goes on.

        Raises:
            EdgesimError: of the first device that failed.
            ActorLostError: an actor can't be started again.
            HeadLostError: the head of the cluster has ended.
            NodeLostError: the node of this machine has.
        """
        runs = [asyncio.ensure_future(self._supervise(devices)) for devices in self._actors]
        head = ray.get_runtime_context().gcs_address
        runs.append(asyncio.ensure_future(watch_head(head, is_own=not self._on_cluster)))
        node = global_worker.node
        assert node is not None, "a driver has joined one"
        runs.append(asyncio.ensure_future(watch_node(node.raylet_socket_name)))
        runs.append(asyncio.ensure_future(self._report_absent()))
        finished = asyncio.ensure_future(self._all_finished.wait())
        try:
            # Actors stay until all devices have done their last round: a restarted device requests
            # old envelopes from its neighbours, which may have to be restarted themselves.
            await asyncio.wait((*runs, finished), return_when=asyncio.FIRST_COMPLETED)
            self._raise_failure(runs)
        finally:
            for task in (*runs, finished):
                task.cancel()
            await asyncio.gather(*runs, finished, return_exceptions=True)

    async def _supervise(self, devices: range) -> None:
        """Run the devices of one actor; restart them after each loss of the actor."""
        actor: Any = self._actors[devices]  # Ray does not type asynchronous actor methods
        while True:
            try:
                built: Built = await actor.build.remote(
                    self._plan_ref,
                    self._shard_refs[devices],
                    self._peers(devices),
                    self._num_threads[devices],
                    self._name,
                    devices in self._recovering,
                )
                self._hosts[devices] = built.host
                self._arithmetics.note(built)
                self._absent.discard(devices)
                self._losses.note_built(devices)
                if devices in self._lost:
                    self._lost.discard(devices)
                    self._on_restart(devices)
                self._newest[devices] = await actor.run.remote()
                self._unfinished.discard(devices)
                if not self._unfinished:
                    self._all_finished.set()
                await actor.stay.remote()
            except ActorDiedError as error:
                if devices in self._absent:  # Ray does not start it again
                    raise ActorLostError(
                        f"the actor {self._label(devices)} was lost and can't be started again: "
                        f"{first_line(error)}"
                    ) from error
                self._note_loss(devices, error)
            except RayActorError as error:
                self._note_loss(devices, error)
            await asyncio.sleep(POLL_S)

    def _note_loss(self, devices: range, error: RayActorError) -> None:
        """Take note once that an actor is lost; its devices have to repeat rounds.

        Raises:
            ActorLostError: it is lost again and again.
        """
        if devices in self._absent:
            return
        self._absent.add(devices)
        self._lost.add(devices)
        self._recovering.add(devices)
        self._unfinished.add(devices)
        newest = self._newest.get(devices)
        rounds_done = newest.rounds_done if newest else 0
        self._losses.note(devices, self._hosts[devices], rounds_done, error)

    async def _report_absent(self) -> None:
        """Log at intervals which actors are missing.

        Raises:
            ActorLostError: one ends at each start. Its calls may never be answered.
        """
        while True:
            await asyncio.sleep(START_REPORT_S)
            absent = set(self._absent)
            number_of_restarts: dict[range, int] = {}
            try:
                if absent:
                    number_of_restarts = await restarts({a: self._actors[a] for a in absent})
                    why = await why_absent(len(absent), self._need)
            except RAY_FAILURES as error:
                why = f"their state is not known ({first_line(error)})"
            self._losses.note_restarts(number_of_restarts)
            if not absent:
                continue
            _log.warning(
                "waiting for %d of %d actors (%s): %s",
                len(absent),
                len(self._actors),
                self._labels(absent),
                why,
            )

    async def waiting(self) -> list[Waiting]:
        """Devices that wait for messages; actors that do not answer are left out."""
        answers: dict[range, list[Waiting]] = await self._call_all("waiting")
        return [waiting for answer in answers.values() for waiting in answer]

    def absent(self) -> str:
        """Actors without devices, in words; empty if there are none."""
        return self._labels(self._absent)

    async def progress(self) -> list[Progress]:
        """Progress of the devices of each actor; the last known one if an actor does not answer."""
        self._newest.update(await self._call_all("progress"))
        return [
            replace(newest, absent=tuple(devices) if devices in self._absent else ())
            for devices, newest in self._newest.items()
        ]

    async def stop(self) -> None:
        """End the run early; every host writes the rounds that it holds, as far as it can."""
        if self._is_node_lost:
            return
        present = [actor for devices, actor in self._actors.items() if devices not in self._absent]
        answers = await asyncio.gather(
            *(actor.stop.remote() for actor in present), return_exceptions=True
        )
        errors = [e for e in answers if isinstance(e, BaseException)]
        if failed := [error for error in errors if not isinstance(error, RayActorError)]:
            _log.warning(
                "%d of %d hosts could not write their last rounds: %s",
                len(failed),
                len(present),
                _cause(failed[0]),
            )

    def close(self) -> None:
        """End all actors, unless Ray would end this process first; then they end with it."""
        if self._is_node_lost:
            return
        for actor in self._actors.values():
            ray.kill(actor)
        remove(core_folder(self._name), timeout_s=0.0)  # absent before a first step

    async def _call_all(self, method: str) -> dict[range, Any]:
        """Call a method of all reachable actors and return the answers; hanging actors time out."""
        asked = {
            devices: asyncio.ensure_future(getattr(actor, method).remote())
            for devices, actor in self._actors.items()
            if devices not in self._absent
        }
        if asked:
            await asyncio.wait(asked.values(), timeout=ANSWER_TIMEOUT_S)
        answers = {}
        for devices, answer in asked.items():
            if not answer.done():
                answer.cancel()
            elif not isinstance(answer.exception(), RayActorError):
                answers[devices] = answer.result()
        return answers

    def _label(self, devices: range) -> str:
        """An actor in words: its devices by their names, if they have some."""
        names = self._plan.scenario.fleet.names
        if not names:
            return _name(devices)
        return f"{_name(devices)} ({_some(names[devices[0] : devices[-1] + 1], NAMED_DEVICES)})"

    def _labels(self, actors: Iterable[range]) -> str:
        ordered = sorted(actors, key=lambda devices: devices[0])
        return _some([self._label(devices) for devices in ordered], NAMED_ACTORS)

    def _peers(self, devices: range) -> dict[int, Any]:
        if may_leave(self._plan.scenario):  # any device may become a successor
            return {**self._actor_of}
        schedule = self._plan.schedule
        return {
            peer: self._actor_of[peer]
            for device in devices
            for neighbors in (schedule.possible_receivers, schedule.possible_senders)
            for peer in neighbors(device)
        }

    def _raise_failure(self, runs: Sequence[asyncio.Future[None]]) -> None:
        """Raise the error that best explains the end: of a lost node or actor, else of a device."""
        errors = [error for run in runs if run.done() and (error := run.exception()) is not None]
        self._is_node_lost = any(isinstance(error, NodeLostError) for error in errors)
        best = NodeLostError if self._is_node_lost else ActorLostError
        for error in sorted(errors, key=lambda e: not isinstance(e, best)):
            cause = _cause(error)
            if isinstance(cause, EdgesimError):
                raise cause from None
            raise error


def _create(  # Ray does not type actors
    label: str, options: dict[str, Any], deadline_s: float
) -> Any:  # noqa: ANN401
    """Create an actor; wait for its name, which an actor of a killed driver may still have."""
    while True:
        try:
            return ray.remote(DeviceActor).options(**options).remote(label)
        except ValueError:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(POLL_S)


def _name(devices: range) -> str:
    if len(devices) == 1:
        return f"device-{devices[0]}"
    return f"devices-{devices[0]}-{devices[-1]}"


def _some(names: Sequence[str], most: int) -> str:
    hidden = len(names) - most
    return ", ".join(names[:most]) + (f" and {hidden} more" if hidden > 0 else "")


def _cause(error: BaseException) -> BaseException:
    return error.cause if isinstance(error, RayTaskError) else error
