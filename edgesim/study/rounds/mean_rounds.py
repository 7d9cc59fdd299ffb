"""Work, messages and memory of a device in the mean of its rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from edgesim.assembly.budget import memory_of_device
from edgesim.assembly.neighbours import Neighbours
from edgesim.assembly.studied_scenario import StudiedScenario
from edgesim.costs.memory import paper_memory
from edgesim.costs.memory_table import MemoryTable
from edgesim.costs.round_work import gossip_work
from edgesim.gossip.optional_members import has_several_messages, parts_of_devices
from edgesim.hardware.work import Work
from edgesim.study.rounds.steady_state import BytesBetween
from topologies import takes_step


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationWork:
    """Work of one iteration by part: three passes over the batch, optimizer, gossip.

    Attributes:
        measured: of both passes, that of layers without closed form; None in models of the catalog.
    """

    forward: Work
    input_gradient: Work
    weight_gradient: Work
    optimizer: Work
    gossip: Work
    measured: Work | None = None

    @property
    def by_part(self) -> Mapping[str, Work]:
        """Work of each part by its name, in the order of the attributes."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: work for name, work in parts.items() if work is not None}

    @property
    def total(self) -> Work:
        """Work of all parts together."""
        return sum(self.by_part.values(), Work())


class Works:
    """Work of rounds; it depends on a device's batches, messages, and part."""

    def __init__(self, studied: StudiedScenario) -> None:
        self._studied = studied
        self._steps = studied.steps
        self._optimizer = studied.optimizer.work(studied.model.num_trainable)
        self._means: dict[object, IterationWork] = {}
        self._rounds: dict[object, Work] = {}
        self._parts, self._part_of = parts_of_devices(
            studied.algorithm, studied.schedule.num_devices
        )

    def in_round(self, device: int, round_index: int) -> Work:
        """Work of a device in a round: step, optimizer and gossip; none while it is absent."""
        schedule = self._studied.schedule
        if not schedule.presence.is_present(device, round_index):
            return Work()
        sent = len(schedule.out_edges(device, round_index))
        degrees = sent, len(schedule.in_neighbors(device, round_index))
        has_step = takes_step(schedule, device, round_index)
        part = self._part_of[device]
        key = part, *degrees, id(self._steps[device]) if has_step else None
        if key not in self._rounds:
            step = self._steps[device].total + self._optimizer if has_step else Work()
            self._rounds[key] = step + self._of_gossip(degrees, part)
        return self._rounds[key]

    def mean(self, own: Neighbours, device: int, steps: float) -> IterationWork:
        """Mean work of a round, by part.

        Args:
            own: numbers of messages of the device.
            device: its number.
            steps: share of the rounds in which it takes a step.
        """
        part = self._part_of[device]
        key = part, own.degrees, own.num_rounds, steps, id(self._steps[device])
        if key not in self._means:
            works = Counter(self._of_gossip(pair, part) for pair in own.degrees)
            works[Work()] += own.num_rounds - len(own.degrees)
            self._means[key] = self._iteration(_mean(works), steps, device)
        return self._means[key]

    def mean_of_parts(
        self, device: int, sent: Mapping[int, int], absorbed: Mapping[int, int]
    ) -> IterationWork:
        """Mean work of a round, by part, where sending and absorbing are counted apart.

        Args:
            device: its number.
            sent: number of rounds by the number of messages sent.
            absorbed: number of rounds by the number of messages absorbed.
        """
        key = frozenset(sent.items()), frozenset(absorbed.items()), id(self._steps[device])
        if key not in self._means:
            sending, absorbing = Counter[Work](), Counter[Work]()
            for count, rounds in sent.items():
                sending[self._of_gossip((count, 0))] += rounds
            for count, rounds in absorbed.items():
                absorbing[self._of_gossip((0, count))] += rounds
            self._means[key] = self._iteration(_mean(sending) + _mean(absorbing), 1.0, device)
        return self._means[key]

    def _iteration(self, gossip: Work, steps: float, device: int) -> IterationWork:
        step = self._steps[device]

        def in_mean(work: Work) -> Work:
            return work if steps == 1 else work.each(lambda count: count * steps)

        measured = in_mean(step.measured)
        return IterationWork(
            forward=in_mean(step.forward),
            input_gradient=in_mean(step.input_gradient),
            weight_gradient=in_mean(step.weight_gradient),
            optimizer=in_mean(self._optimizer),
            gossip=gossip,
            measured=measured if self._studied.model.measured_layers else None,
        )

    def _of_gossip(self, degrees: tuple[int, int], part: int = 0) -> Work:
        algorithm = self._parts[part]
        return gossip_work(algorithm, *degrees)


@dataclass(frozen=True, slots=True)
class MeanRound:
    """Work and messages of a device in the mean of its rounds."""

    work: IterationWork
    messages_sent: float
    messages_received: float

    @classmethod
    def of_schedule(cls, own: Neighbours, works: Works, device: int, steps: float) -> MeanRound:
        """All messages of the schedule are sent; steps are taken in this share of the rounds."""
        work = works.mean(own, device, steps)
        return cls(work, own.messages_sent, own.messages_received)

    @classmethod
    def of_clocks(
        cls, device: int, sent: Mapping[int, int], absorbed: Mapping[int, int], works: Works
    ) -> MeanRound:
        """Messages are those of so many rounds of the clocks."""
        return cls(works.mean_of_parts(device, sent, absorbed), _mean_of(sent), _mean_of(absorbed))


def _mean_of(rounds_by_count: Mapping[int, int]) -> float:
    messages = sum(count * rounds for count, rounds in rounds_by_count.items())
    return messages / sum(rounds_by_count.values())


def _mean(rounds_by_work: Mapping[Work, int]) -> Work:
    """Mean of the works of several rounds, rounded to whole operations and bytes."""
    total = sum((work * rounds for work, rounds in rounds_by_work.items()), Work())
    num_rounds = sum(rounds_by_work.values())
    return total.each(lambda count: count / num_rounds)


def mean_bytes(
    studied: StudiedScenario,
    device: int,
    mean: MeanRound,
    bytes_between: BytesBetween,
    rounds: Sequence[int],
) -> tuple[float, float]:
    """Bytes that a device sends and receives in the mean of its rounds.

    Args:
        studied: the scenario.
        device: number of the device.
        mean: of its rounds.
        bytes_between: length of each message.
        rounds: whose mean it is.
    """
    schedule = studied.schedule
    if not has_several_messages(studied.algorithm):
        length = bytes_between(device, device)
        return mean.messages_sent * length, mean.messages_received * length
    sent = received = 0
    for r in rounds:
        sent += sum(bytes_between(device, peer) for peer, _ in schedule.out_edges(device, r))
        received += sum(bytes_between(peer, device) for peer in schedule.in_neighbors(device, r))
    return sent / len(rounds), received / len(rounds)


class Memories:
    """Memory of devices; it depends on their numbers of edges, and on their parts if any."""

    def __init__(self, studied: StudiedScenario, message_bytes: int) -> None:
        self.paper = paper_memory(studied.model)
        self._studied = studied
        self._message_bytes = message_bytes
        self._faithful: dict[object, MemoryTable] = {}
        _, self._part_of = parts_of_devices(studied.algorithm, studied.schedule.num_devices)

    def faithful(self, neighbours: Neighbours, device: int) -> MemoryTable:
        """Memory that a device holds at the peak of a round."""
        key = self._part_of[device], neighbours.edges
        if key not in self._faithful:
            found = memory_of_device(self._studied, neighbours.edges, self._message_bytes, device)
            self._faithful[key] = found
        return self._faithful[key]
