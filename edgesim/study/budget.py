"""Whether a scenario fits the memory of its devices, and what would make it fit."""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.costs.memory import MemoryModel
from edgesim.costs.memory_table import MemoryTable
from edgesim.costs.message_form import random_message_bytes
from edgesim.equipment import device_profiles
from edgesim.errors import ScenarioError
from edgesim.hardware.profiles import DeviceProfile
from edgesim.scenario.model import ModelSection
from edgesim.scenario.schema import Scenario
from edgesim.streams import Purpose, stream
from edgesim.study.known_data import DataShape
from edgesim.study.neighbours import neighbours_of_devices
from edgesim.study.subject import Subject, subject_of

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Shortage:
    """A device whose memory is too small.

    Attributes:
        device: its number.
        profile: what it is.
        needed: at the peak of a round, by component.
    """

    device: int
    profile: DeviceProfile
    needed: MemoryTable


def memory_of_devices(scenario: Scenario, shape: DataShape | None = None) -> list[MemoryTable]:
    """What each device of a scenario holds at the peak of a round; `shape` as in `subject_of`."""
    return _memory_of_devices(subject_of(scenario, shape))


def check_memory(scenario: Scenario) -> str | None:
    """Compare what devices need with what they have.

    Returns:
        What is short, and what would help, if the scenario wants to be warned only.

    Raises:
        ScenarioError: a device's memory is too small.
    """
    profiles = device_profiles(scenario)
    if not profiles:
        return None
    shortages = _shortages(subject_of(scenario), profiles)
    if not shortages:
        return None
    text = _describe(scenario, shortages)
    if scenario.fleet.enforce_memory == "warn":
        return text
    raise ScenarioError(f"{text}; or set fleet.enforce_memory: warn")


def _memory_of_devices(subject: Subject) -> list[MemoryTable]:
    algorithm = subject.algorithm
    rng = stream(subject.scenario.seed, Purpose.COMPRESS)
    message_bytes = random_message_bytes(algorithm, rng)
    by_degrees: dict[tuple[int, int], MemoryTable] = {}
    tables = []
    for own in neighbours_of_devices(subject):
        degrees = own.out_copies, own.in_copies
        if degrees not in by_degrees:
            by_degrees[degrees] = MemoryModel(
                model=subject.model,
                backend=subject.backend,
                optimizer=subject.optimizer,
                algorithm=algorithm,
                out_degree=degrees[0],
                in_degree=degrees[1],
                message_bytes=message_bytes,
            ).faithful()
        tables.append(by_degrees[degrees])
    return tables


def _shortages(subject: Subject, profiles: tuple[DeviceProfile, ...]) -> list[Shortage]:
    needed = _memory_of_devices(subject)
    pairs = enumerate(zip(profiles, needed, strict=True))
    return [
        Shortage(device, profile, table)
        for device, (profile, table) in pairs
        if table.total > profile.memory_bytes
    ]


def _describe(scenario: Scenario, shortages: list[Shortage]) -> str:
    """Two lines: who is short of how much, of what; what would help."""
    worst = max(shortages, key=lambda s: s.needed.total / s.profile.memory_bytes)
    needed, there = worst.needed.total, worst.profile.memory_bytes
    more = len(shortages) - 1
    others = f"; so do {more} more devices" if more > 1 else "; so does another" if more else ""
    parts = sorted(worst.needed.by_component.items(), key=lambda part: -part[1])
    table = ", ".join(f"{name.replace('_', ' ')} {size / MIB:,.2f}" for name, size in parts if size)
    return (
        f"fleet: device {worst.device} ({worst.profile.name}) has {there / MIB:,.1f} MiB and needs "
        f"{needed / MIB:,.1f} at the peak of a round ({table}){others}\n"
        f"what would fit: {' or '.join(_remedies(scenario))}"
    )


def _remedies(scenario: Scenario) -> list[str]:
    """Changes after which no device is short of memory."""
    remedies = []
    for precision in dict.fromkeys((scenario.model.precision, "int8")):
        model = scenario.model.model_dump() | {"precision": precision}
        if precision != scenario.model.precision:
            model |= {"norm": None, "gate": None}
        changed = scenario.model_copy(update={"model": type(scenario.model)(**model)})
        batch_size = _largest_batch(changed)
        words = _changes(scenario.model, changed.model)
        if batch_size is not None and batch_size < scenario.data.batch_size:
            words.append(f"data.batch_size: {batch_size}")
        if batch_size is not None:
            remedies.append(" with ".join(words))
    return remedies or ["a smaller model, or devices with more memory"]


def _changes(before: ModelSection, after: ModelSection) -> list[str]:
    """Keys to set, the norm among them: one of fp32 would keep most of the memory."""
    names = ("precision", "norm", "gate")
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return [f"model.{name}: {new or 'null'}" for name, old, new in pairs if new != old]


def _largest_batch(scenario: Scenario) -> int | None:
    """Most samples of a batch for which all devices have the memory; None if there are none."""
    profiles = device_profiles(scenario)

    def fits(batch_size: int) -> bool:
        data = scenario.data.model_copy(update={"batch_size": batch_size})
        return not _shortages(subject_of(scenario.model_copy(update={"data": data})), profiles)

    if fits(scenario.data.batch_size):
        return scenario.data.batch_size
    low, high = 0, scenario.data.batch_size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low or None
