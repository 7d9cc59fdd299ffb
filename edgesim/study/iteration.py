"""What one iteration costs each device of a scenario: work, memory, bytes, energy, time.

An iteration is a round of a device: a step on a full batch, or on its mean batch where the sizes of
shards are known, then gossip. Where rounds differ, work
and bytes are means over a period of the schedule, and memory is the maximum over that period. At
free pace a busy radio skips messages, so work and bytes are means over rounds of the clocks.
Batteries are assumed to be full, since a device that leaves would change its neighbours' work and
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from edgesim.assembly.equipment import device_hardware, device_profiles
from edgesim.assembly.message_costs import MessageCosts, NoiseMessages
from edgesim.assembly.neighbours import neighbours_of_devices, rounds_of_period, rounds_over
from edgesim.assembly.studied_scenario import (
    StudiedScenario,
    check_studied_length,
    studied_scenario,
)
from edgesim.costs.memory_table import MemoryTable
from edgesim.gossip.optional_members import longest_message, message_layouts
from edgesim.hardware.energy import Activity
from edgesim.hardware.profiles import DeviceProfile
from edgesim.hardware.work import Work
from edgesim.scenario.schema import Scenario
from edgesim.study.energy_costs import IterationEnergy, energies_of_activity, energies_of_work
from edgesim.study.rounds.free_pace import WholeTraining, find_free_pace
from edgesim.study.rounds.mean_rounds import IterationWork, MeanRound, Memories, Works, mean_bytes
from edgesim.study.rounds.steady_state import (
    DeviceCycle,
    SteadyState,
    find_steady_state,
    is_short,
    is_trace,
)
from edgesim.study.wider_link import with_wider_link
from topologies import Schedule, step_share, takes_step, with_everyone

_MOST_COUNTED = 20_000  # rounds of devices on a trace, spread over a long training


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """Time of one iteration, in seconds.

    Attributes:
        int8_s: time of the products of 8-bit codes, at the profile's rate.
        bits16_s: time of the products of 16-bit floats, at the profile's rate.
        fp32_s: time of the products of 32-bit floats, at the profile's rate.
        memory_s: time of the memory traffic, at the profile's bandwidth.
        roofline_s: time of a step: the longer of arithmetic and memory traffic, or the sum of the
            times of its layers where the profile has these.
        cycle: times of the device among the others.
        is_by_layers: whether the profile has times of layers that the step has.
        elementwise_s: time of the other operations, at the profile's rate; 0 if it has none.
    """

    int8_s: float
    bits16_s: float
    fp32_s: float
    memory_s: float
    roofline_s: float
    cycle: DeviceCycle
    is_by_layers: bool = False
    elementwise_s: float = 0.0

    @property
    def arithmetic_s(self) -> float:
        """Time of the products of all precisions."""
        return self.int8_s + self.bits16_s + self.fp32_s

    @property
    def limit(self) -> str:
        """What the time of a step is: the longest of three, or the sum of its layers' times."""
        if self.is_by_layers:
            return "layers, as measured"
        if self.elementwise_s > max(self.memory_s, self.arithmetic_s):
            return "element-wise operations"
        return "memory traffic" if self.memory_s > self.arithmetic_s else "arithmetic"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCosts:
    """Costs of one device in one iteration.

    Attributes:
        device: number of the device.
        profile: hardware of the device; None where the scenario names none.
        degrees: mean numbers of messages that its graphs have it send and receive in a round.
        messages_sent: mean number of messages that the device sends in a round.
        messages_received: mean number of messages that the device receives in a round.
        sent_bytes: mean bytes that the device sends in a round, without packets sent again.
        received_bytes: mean bytes that the device receives in a round.
        work: work of an iteration.
        paper_memory: memory by the paper's convention.
        faithful_memory: memory that is held at the peak of a round.
        energy: energy of an iteration by every price list.
        time: time of an iteration; None without a profile.
    """

    device: int
    profile: DeviceProfile | None
    degrees: tuple[float, float]
    messages_sent: float
    messages_received: float
    sent_bytes: float
    received_bytes: float
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

    def energy_by(self, table: str) -> IterationEnergy:
        """Energy of an iteration by one price list, as runs count it: the paper's sums, DRAM."""
        wanted = table, "paper", "dram"
        return next(e for e in self.energy if (e.table, e.accumulate, e.memory) == wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationCosts:
    """Costs of all devices of a scenario in one iteration.

    Attributes:
        studied: the scenario that is studied, as objects.
        message: costs of one message; if an algorithm has messages of several forms, of those that
            its compressor makes.
        devices: costs of each device, in the order of their numbers.
        steady_state: times of the fleet once it has settled, or in the whole training if that is
            short; None without profiles.
        whole: of a fleet at free pace, the whole training, over whose rounds all means are.
    """

    studied: StudiedScenario
    message: MessageCosts
    devices: tuple[DeviceCosts, ...]
    steady_state: SteadyState | None
    whole: WholeTraining | None = None

    @property
    def heaviest(self) -> DeviceCosts:
        """The device that holds the most memory; of several, the one with the lowest number."""
        return max(self.devices, key=lambda d: (d.faithful_memory.total, -d.device))

    @property
    def energy_table(self) -> str:
        """Price list of the scenario; the first table where devices have no profile."""
        wanted = self.studied.scenario.hardware.energy_table
        tables = [entry.table for entry in self.devices[0].energy]
        return wanted if wanted in tables else tables[0]

    @property
    def sent_bytes(self) -> float:
        """Bytes that the fleet sends in an iteration, without packets that are sent again."""
        return sum(device.sent_bytes for device in self.devices)

    @property
    def energy_j(self) -> float:
        """Joules that the fleet spends in an iteration, by the scenario's price list."""
        return sum(d.energy_by(self.energy_table).total_j for d in self.devices)


def iteration_costs(
    scenario: Scenario,
    *,
    wider: tuple[int, int, float] | None = None,
    most_events: int | None = None,
) -> IterationCosts:
    """Costs of an iteration for each device of a scenario.

    Args:
        scenario: the scenario.
        wider: a link that has another bandwidth than the scenario says: sender, receiver, and bits
            per second, of which the radios at both ends may allow less.
        most_events: largest number of steps and messages for which clocks run; None for the usual.

    Raises:
        ScenarioError: the scenario cannot be run.
        DataError: the size of its images is not known.
    """
    studied = studied_scenario(scenario)
    check_studied_length(studied)
    scenario = studied.scenario  # its devices have numbers now, in place of names
    algorithm = studied.algorithm
    name, layout = algorithm.name, message_layouts(algorithm)[0]
    messages = NoiseMessages()
    message = messages.costs(algorithm.compressor, layout, [name])[name]
    bytes_between = messages.bytes_between(algorithm)
    hardware = device_hardware(scenario, studied.schedule)
    is_free = bool(hardware) and scenario.fleet.rules.goes_by_clock
    is_counted = not is_free and is_short(studied.schedule, studied.num_rounds)
    given = studied
    if not is_counted:
        studied = replace(studied, schedule=with_everyone(studied.schedule))
    counted = range(studied.num_rounds) if is_counted else _typical_rounds(studied)
    neighbours = neighbours_of_devices(studied, counted)
    if wider is not None and hardware:
        hardware = with_wider_link(hardware, *wider)
    works = Works(studied)
    steady_state: SteadyState | None = None
    whole: WholeTraining | None = None
    rounds = []
    for device, own in enumerate(neighbours):
        schedule = studied.schedule
        steps = _steps(schedule, device, counted) if is_counted else step_share(schedule)
        rounds.append(MeanRound.of_schedule(own, works, device, steps))
    if is_free:
        found = find_free_pace(studied, hardware, most_events)
        steady_state, whole = found.steady_state, found.whole
        pairs = zip(found.sent, found.absorbed, strict=True)
        rounds = [MeanRound.of_clocks(n, *counts, works) for n, counts in enumerate(pairs)]
    elif hardware:
        steady_state = find_steady_state(
            hardware,
            studied.schedule,
            works.in_round,
            bytes_between,
            scenario.seed,
            most_events,
            studied.num_rounds,
        )
    longest = messages.costs(*longest_message(algorithm), [name])[name]
    memories = Memories(studied, longest.encoded.total)
    profiles = device_profiles(scenario)
    devices = tuple(
        _device_costs(
            device,
            rounds[device],
            memories.faithful(own, device),
            mean_bytes(studied, device, rounds[device], bytes_between, counted),
            degrees=(own.messages_sent, own.messages_received),
            paper=memories.paper,
            profile=profiles[device] if profiles else None,
            cycle=steady_state.devices[device] if steady_state else None,
        )
        for device, own in enumerate(neighbours)
    )
    return IterationCosts(
        studied=given, message=message, devices=devices, steady_state=steady_state, whole=whole
    )


def _typical_rounds(studied: StudiedScenario) -> list[int]:
    """Rounds whose means are those of a long training, as far as can be known from few."""
    schedule = studied.schedule
    if is_trace(schedule):  # which may begin otherwise than it goes on
        most = max(1, _MOST_COUNTED // schedule.num_devices)
        return rounds_over(schedule, studied.num_rounds, most)
    return rounds_of_period(schedule)


def _steps(schedule: Schedule, device: int, rounds: Sequence[int]) -> float:
    """Share of the rounds in which a device takes a step."""
    is_there = schedule.presence.is_present
    return fmean(is_there(device, r) and takes_step(schedule, device, r) for r in rounds)


def _device_costs(
    device: int,
    rounds: MeanRound,
    faithful: MemoryTable,
    both_bytes: tuple[float, float],
    *,
    degrees: tuple[float, float],
    paper: MemoryTable,
    profile: DeviceProfile | None,
    cycle: DeviceCycle | None,
) -> DeviceCosts:
    total, time = rounds.work.total, None
    if profile is None or cycle is None:
        energy = energies_of_work(total)
    else:
        time = _device_time(total, profile, cycle)
        activity = Activity(
            work=total,
            sent_bytes=both_bytes[0] + cycle.lost_bytes,
            received_bytes=both_bytes[1],
            compute_s=cycle.compute_s,
            wait_s=cycle.wait_s,
        )
        energy = energies_of_activity(activity, profile)
    return DeviceCosts(
        device=device,
        profile=profile,
        degrees=degrees,
        messages_sent=rounds.messages_sent,
        messages_received=rounds.messages_received,
        sent_bytes=both_bytes[0],
        received_bytes=both_bytes[1],
        work=rounds.work,
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
        is_by_layers=bool(
            {tally.kind for tally in work.layers} & {time.kind for time in profile.layer_times}
        ),
        elementwise_s=work.elementwise_ops / profile.elementwise_ops_per_s
        if profile.elementwise_ops_per_s
        else 0.0,
    )
