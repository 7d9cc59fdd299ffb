"""The clocks of a fleet at free pace, run in one event loop without training.

Each device is a `FreeClock`, as in a run. Here all messages are known to one loop, so devices need
no time bounds: the loop handles the ends of their steps in the order of (time, device).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heapreplace
from math import inf

from edgesim.assembly.message_costs import random_message_bytes
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.costs.round_work import gossip_work
from edgesim.device.pace.quiet_times import quiet_until_s
from edgesim.hardware.free_clock import FreeClock, Incoming, MessageKey
from edgesim.hardware.timeline import Hardware, Stamp, Timeline
from edgesim.hardware.work import Work
from edgesim.streams import StreamPurpose, stream
from topologies import OutEdges, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfRound:
    """A device has ended a round.

    Attributes:
        device: which one.
        rounds_done: rounds that it has ended.
        is_last: whether it does no more; then it has absorbed all messages to it.
        step_end_s: its clock at the end of the step.
        end_s: its clock when it has absorbed what had arrived.
        sent: edges on which it sent.
        absorbed: sender, receiver and number of each absorbed message, in order.
        compute_s: awake seconds of the step, and of sending and absorbing the messages.
        rest_s: seconds from the last step until all messages to the device have arrived; 0 before.
        wait_s: those of them in which the device is awake.
        air_s: seconds for which the radio is busy with the messages that it sent.
        lost_bytes: bytes of these that are sent again.
    """

    device: int
    rounds_done: int
    is_last: bool
    step_end_s: float
    end_s: float
    sent: OutEdges
    absorbed: tuple[MessageKey, ...]
    compute_s: float
    rest_s: float
    wait_s: float
    air_s: float
    lost_bytes: int


@dataclass(slots=True)
class _Device:
    """One device: its clock, and the edges of its round under way."""

    clock: FreeClock
    round_index: int = 0
    edges: OutEdges = ()
    place: int = 0
    quiet_s: float = 0.0
    stamps: Sequence[Stamp] = ()


class FreeClocks:
    """The clocks of all devices, from their first step on.

    Args:
        hardware: of each device.
        schedule: of the graphs.
        step_work: work of a device's step, without gossip.
        gossip_work: work of sending (first) and absorbing (second) so many messages.
        message_bytes: length of every message.
        seed: of the scenario: jitter and losses are those of a run.
    """

    def __init__(
        self,
        hardware: Sequence[Hardware],
        schedule: Schedule,
        *,
        step_work: Callable[[int], Work],
        gossip_work: Callable[[int, int], Work],
        message_bytes: int,
        seed: int,
    ) -> None:
        self._schedule = schedule
        self._step_work = step_work
        self._gossip_work = gossip_work
        self._message_bytes = message_bytes
        self._devices = [
            _Device(FreeClock(Timeline(own, seed, index))) for index, own in enumerate(hardware)
        ]
        self._sequences: dict[tuple[int, int], int] = {}
        self._waiting: list[dict[MessageKey, Incoming]] = [{} for _ in hardware]

    def run(self, num_rounds: int | None = None, end_s: float = inf) -> Iterator[EndOfRound]:
        """Ends of rounds, by the time at which their steps end; the last of each device come last.

        Args:
            num_rounds: of each device; None for no end.
            end_s: the first step that ends at this time or later is the device's last, too.
        """
        events = [(self._begin(index), index) for index in range(len(self._devices))]
        heapify(events)
        last: list[tuple[float, int]] = []
        while events:
            step_end_s, index = events[0]
            device = self._devices[index]
            self._listen_and_send(index)
            device.round_index += 1
            if device.round_index == num_rounds or step_end_s >= end_s:
                last.append(heappop(events))
                continue
            yield self._end(index, step_end_s)
            heapreplace(events, (self._begin(index), index))
        for step_end_s, index in last:
            yield self._end(index, step_end_s, is_last=True)

    def _begin(self, index: int) -> float:
        """Compute; returns when the step ends."""
        device = self._devices[index]
        work, round_index = self._step_work(index), device.round_index
        end_s = device.clock.end_of_step_s(work, round_index)
        seconds = self._schedule.seconds_per_round
        device.place = round_index if seconds is None else int(end_s / seconds)
        device.edges = device.stamps = ()
        if device.quiet_s <= end_s:
            device.edges = self._schedule.out_edges(index, device.place)
        device.clock.step(work + self._gossip_work(len(device.edges), 0), round_index)
        return device.clock.now_s

    def _listen_and_send(self, index: int) -> None:
        device = self._devices[index]
        if device.clock.listens_first:
            device.clock.listen(list(self._waiting[index].values()))
        if device.edges:
            self._send(index, device)

    def _end(self, index: int, step_end_s: float, *, is_last: bool = False) -> EndOfRound:
        """Absorb what has arrived, and after the last step what is on its way, too."""
        device, waiting = self._devices[index], self._waiting[index]
        arrived = device.clock.await_rest if is_last else device.clock.arrived
        absorbed = arrived(list(waiting.values()))
        for key in absorbed:
            del waiting[key]
        rest_s = device.clock.now_s - step_end_s
        time = device.clock.absorb(self._gossip_work(0, len(absorbed)))
        return EndOfRound(
            device=index,
            rounds_done=device.round_index,
            is_last=is_last,
            step_end_s=step_end_s,
            end_s=device.clock.now_s,
            sent=device.edges,
            absorbed=tuple(absorbed),
            compute_s=time.compute_s,
            rest_s=rest_s,
            wait_s=time.wait_s,
            air_s=sum(stamp.air_s for stamp in device.stamps),
            lost_bytes=sum(stamp.lost_bytes for stamp in device.stamps),
        )

    def _send(self, index: int, device: _Device) -> None:
        stamps = []
        for receiver, _ in device.edges:
            edge = index, receiver
            sequence = self._sequences.get(edge, 0)
            self._sequences[edge] = sequence + 1
            stamp = device.clock.send(edge, self._message_bytes, sequence)
            stamps.append((receiver, stamp))
            key = (*edge, sequence)
            self._waiting[receiver][key] = Incoming(key, stamp)
        device.stamps = [stamp for _, stamp in stamps]
        device.quiet_s = quiet_until_s(device.clock, self._schedule, index, device.place, stamps)


def step_work(studied: StudiedScenario) -> Work:
    """Work of a device's step on a full batch, without gossip."""
    optimizer = studied.optimizer.work(studied.model.num_trainable)
    return studied.model.step_work.total + optimizer


def first_steps(studied: StudiedScenario) -> list[Work]:
    """Work of each device's first step, without gossip.

    Its batch is full, unless the device is known to have fewer samples.
    """
    full, own, sizes = step_work(studied), step_works(studied), studied.shard_sizes
    batch_size = studied.scenario.data.batch_size
    return [
        work if sizes is not None and sizes[device] < batch_size else full
        for device, work in enumerate(own)
    ]


def step_works(studied: StudiedScenario) -> list[Work]:
    """Work of a step of each device on its mean batch, without gossip."""
    optimizer = studied.optimizer.work(studied.model.num_trainable)
    return [step.total + optimizer for step in studied.steps]


def clocks_of(
    studied: StudiedScenario,
    hardware: Sequence[Hardware],
    schedule: Schedule,
    *,
    has_full_batches: bool = False,
) -> FreeClocks:
    """Clocks of devices that train and gossip as a scenario says.

    Args:
        studied: the scenario and what its devices compute.
        hardware: of each device of the scenario, or of the smaller fleet of a search.
        schedule: of their graphs.
        has_full_batches: whether all batches count as full, also those of known shards.
    """
    own, seed = studied.algorithm, studied.scenario.seed
    steps = [step_work(studied)] * len(hardware) if has_full_batches else step_works(studied)

    @cache  # by numbers of messages alone; the shared cache compares whole algorithms
    def gossip(sent: int, taken: int) -> Work:
        return gossip_work(own, sent, taken)

    return FreeClocks(
        hardware,
        schedule,
        step_work=steps.__getitem__,
        gossip_work=gossip,
        message_bytes=random_message_bytes(own, stream(seed, StreamPurpose.COMPRESS)),
        seed=seed,
    )
