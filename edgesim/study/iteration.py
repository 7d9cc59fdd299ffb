"""What one iteration costs each device of a scenario: work, memory, bytes, energy, time.

An iteration is a round of a device: a step on a full batch, then gossip. Where rounds differ, work
and bytes are means over a period of the schedule, and memory is the maximum over that period.
Batteries are assumed to be full, since a device that leaves would change its neighbours' work and
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from edgesim.assembly.equipment import device_hardware, device_profiles
from edgesim.assembly.message_costs import MessageCosts, NoiseMessages
from edgesim.assembly.neighbours import Neighbours, neighbours_of_devices
from edgesim.assembly.subject import Subject, subject_of
from edgesim.costs.layer_work import StepWork
from edgesim.costs.memory import MemoryModel, paper_memory
from edgesim.costs.memory_table import MemoryTable
from edgesim.costs.round_work import gossip_work
from edgesim.hardware.energy import Activity
from edgesim.hardware.profiles import DeviceProfile
from edgesim.hardware.work import Work
from edgesim.scenario.schema import Scenario
from edgesim.study.energy_costs import IterationEnergy, energies_of_activity, energies_of_work
from edgesim.study.steady_state import DeviceCycle, SteadyState, find_steady_state


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """Time of one iteration, in seconds.

    Attributes:
        int8_s: time of the products of 8-bit codes, at the profile's rate.
        bits16_s: time of the products of 16-bit floats, at the profile's rate.
        fp32_s: time of the products of 32-bit floats, at the profile's rate.
        memory_s: time of the memory traffic, at the profile's bandwidth.
        roofline_s: time of a step: the longer of arithmetic and memory traffic.
        cycle: times of the device in the fleet's steady state.
    """

    int8_s: float
    bits16_s: float
    fp32_s: float
    memory_s: float
    roofline_s: float
    cycle: DeviceCycle

    @property
    def arithmetic_s(self) -> float:
        """Time of the products of all precisions."""
        return self.int8_s + self.bits16_s + self.fp32_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCosts:
    """Costs of one device in one iteration.

    Attributes:
        device: number of the device.
        profile: hardware of the device; None where the scenario names none.
        messages_sent: mean number of messages that the device sends in a round.
        messages_received: mean number of messages that the device receives in a round.
        work: work of an iteration.
        paper_memory: memory by the paper's convention.
        faithful_memory: memory that is held at the peak of a round.
        energy: energy of an iteration by every price list.
        time: time of an iteration; None without a profile.
    """

    device: int
    profile: DeviceProfile | None
    messages_sent: float
    messages_received: float
    work: IterationWork
    paper_memory: MemoryTable
    faithful_memory: MemoryTable
    energy: tuple[IterationEnergy, ...]
    time: DeviceTime | None

    @property
    def fits(self) -> bool | None:
        """Whether the device's memory is large enough; None without a profile."""
        if self.profile is None:
            return None
        return self.faithful_memory.total <= self.profile.memory_bytes

    def energy_by(
        self, table: str, accumulate: str = "paper", memory: str = "dram"
    ) -> IterationEnergy:
        """Energy of an iteration by one price list."""
        wanted = table, accumulate, memory
        return next(e for e in self.energy if (e.table, e.accumulate, e.memory) == wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationCosts:
    """Costs of all devices of a scenario in one iteration.

    Attributes:
        subject: the scenario that is studied, as objects.
        message: costs of one message; all devices send messages of the same form.
        devices: costs of each device, in the order of their numbers.
        steady_state: the fleet's steady state; None without profiles.
    """

    subject: Subject
    message: MessageCosts
    devices: tuple[DeviceCosts, ...]
    steady_state: SteadyState | None

    @property
    def heaviest(self) -> DeviceCosts:
        """The device that holds the most memory; of several, the one with the lowest number."""
        return max(self.devices, key=lambda d: (d.faithful_memory.total, -d.device))

    @property
    def energy_table(self) -> str:
        """Price list of the scenario; the first table where devices have no profile."""
        wanted = self.subject.scenario.hardware.energy_table
        tables = [entry.table for entry in self.devices[0].energy]
        return wanted if wanted in tables else tables[0]

    @property
    def sent_bytes(self) -> float:
        """Bytes that the fleet sends in an iteration, without packets that are sent again."""
        return sum(d.messages_sent for d in self.devices) * self.message.encoded.total

    @property
    def energy_j(self) -> float:
        """Joules that the fleet spends in an iteration, by the scenario's price list."""
        return sum(d.energy_by(self.energy_table).total_j for d in self.devices)


def iteration_costs(scenario: Scenario) -> IterationCosts:
    """Costs of an iteration for each device of a scenario.

    Raises:
        ScenarioError: the scenario cannot be run.
        DataError: the size of its images is not known.
    """
    subject = subject_of(scenario)
    scenario = subject.scenario  # its devices have numbers now, in place of names
    algorithm = subject.algorithm
    name, layout = algorithm.name, algorithm.layout
    message = NoiseMessages().costs(algorithm.compressor, layout, [name])[name]
    neighbours = neighbours_of_devices(subject)
    hardware = device_hardware(scenario, subject.schedule)
    works = _Works(subject)
    steady_state = None
    if hardware:
        steady_state = find_steady_state(
            hardware, subject.schedule, works.in_round, message.encoded.total, scenario.seed
        )
    memories = _Memories(subject, message.encoded.total)
    profiles = device_profiles(scenario)
    devices = tuple(
        _device_costs(
            device,
            works.mean(own),
            memories.faithful(own),
            message.encoded.total,
            own,
            paper=memories.paper,
            profile=profiles[device] if profiles else None,
            cycle=steady_state.devices[device] if steady_state else None,
            waits=scenario.fleet.rules.waits_for_all,
        )
        for device, own in enumerate(neighbours)
    )
    return IterationCosts(
        subject=subject, message=message, devices=devices, steady_state=steady_state
    )


class _Works:
    """Work of rounds; it depends on the number of messages in a round alone."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._step: StepWork = subject.model.step_work
        self._optimizer = subject.optimizer.work(subject.model.num_trainable)
        self._means: dict[tuple[tuple[int, int], ...], IterationWork] = {}
        self._rounds: dict[tuple[int, int], Work] = {}

    def in_round(self, device: int, round_index: int) -> Work:
        """Work of a device in a round: step, optimizer and gossip."""
        schedule = self._subject.schedule
        sent = len(schedule.out_edges(device, round_index))
        degrees = sent, len(schedule.in_neighbors(device, round_index))
        if degrees not in self._rounds:
            self._rounds[degrees] = self._step.total + self._optimizer + self._of_gossip(degrees)
        return self._rounds[degrees]

    def mean(self, neighbours: Neighbours) -> IterationWork:
        """Mean work of a round, by part."""
        degrees = neighbours.degrees
        if degrees not in self._means:
            self._means[degrees] = IterationWork(
                forward=self._step.forward,
                input_gradient=self._step.input_gradient,
                weight_gradient=self._step.weight_gradient,
                optimizer=self._optimizer,
                gossip=_mean([self._of_gossip(pair) for pair in degrees]),
                measured=self._step.measured if self._subject.model.measured_layers else None,
            )
        return self._means[degrees]

    def _of_gossip(self, degrees: tuple[int, int]) -> Work:
        algorithm = self._subject.algorithm
        return gossip_work(algorithm, algorithm.layout.numel, *degrees)


def _mean(works: list[Work]) -> Work:
    """Mean of several works, rounded to whole operations and bytes."""
    total = asdict(sum(works, Work()))
    return Work(**{name: round(count / len(works)) for name, count in total.items()})


class _Memories:
    """Memory of devices; it depends on their numbers of neighbours alone."""

    def __init__(self, subject: Subject, message_bytes: int) -> None:
        self.paper = paper_memory(subject.model)
        self._subject = subject
        self._message_bytes = message_bytes
        self._faithful: dict[tuple[int, int], MemoryTable] = {}

    def faithful(self, neighbours: Neighbours) -> MemoryTable:
        """Memory that a device holds at the peak of a round."""
        copies = neighbours.out_copies, neighbours.in_copies
        if copies not in self._faithful:
            subject = self._subject
            self._faithful[copies] = MemoryModel(
                model=subject.model,
                backend=subject.backend,
                optimizer=subject.optimizer,
                algorithm=subject.algorithm,
                out_degree=copies[0],
                in_degree=copies[1],
                message_bytes=self._message_bytes,
            ).faithful()
        return self._faithful[copies]


def _device_costs(
    device: int,
    work: IterationWork,
    faithful: MemoryTable,
    message_bytes: int,
    neighbours: Neighbours,
    *,
    paper: MemoryTable,
    profile: DeviceProfile | None,
    cycle: DeviceCycle | None,
    waits: bool,
) -> DeviceCosts:
    total, time = work.total, None
    if profile is None or cycle is None:
        energy = energies_of_work(total)
    else:
        time = _device_time(total, profile, cycle)
        activity = Activity(
            work=total,
            sent_bytes=round(neighbours.messages_sent * message_bytes + cycle.lost_bytes),
            received_bytes=round(neighbours.messages_received * message_bytes),
            compute_s=cycle.compute_s,
            wait_s=cycle.wait_s if waits else 0.0,
        )
        energy = energies_of_activity(activity, profile)
    return DeviceCosts(
        device=device,
        profile=profile,
        messages_sent=neighbours.messages_sent,
        messages_received=neighbours.messages_received,
        work=work,
        paper_memory=paper,
        faithful_memory=faithful,
        energy=energy,
        time=time,
    )


def _device_time(work: Work, profile: DeviceProfile, cycle: DeviceCycle) -> DeviceTime:
    return DeviceTime(
        int8_s=work.macs_int8 / profile.int8_macs_per_s,
        bits16_s=work.macs_16bit / profile.bits16_macs_per_s,
        fp32_s=work.macs_fp32 / profile.fp32_macs_per_s,
        memory_s=work.traffic_bytes / profile.memory_bandwidth,
        roofline_s=profile.compute_s(work),
        cycle=cycle,
    )
