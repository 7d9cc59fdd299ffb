"""Checks that a scenario fits the memory of its devices, and finds changes that make it fit."""

from __future__ import annotations

from dataclasses import dataclass

from edgesim.assembly.build import name_devices
from edgesim.assembly.equipment import check_hardware, device_profiles
from edgesim.assembly.known_data import data_shape
from edgesim.assembly.message_costs import random_message_bytes
from edgesim.assembly.neighbours import Edges, edges_of_devices
from edgesim.assembly.studied_scenario import StudiedScenario, studied_scenario
from edgesim.costs.memory import MemoryModel
from edgesim.costs.memory_table import MemoryTable
from edgesim.data.shape import DataShape
from edgesim.errors import OwnCodeError, ScenarioError
from edgesim.gossip.optional_members import for_device, parts_of_devices
from edgesim.hardware.profiles import DeviceProfile
from edgesim.quant.errors import LayerInputError
from edgesim.scenario.model import ModelSection
from edgesim.scenario.schema import Scenario
from edgesim.streams import StreamPurpose, stream
from topologies import Schedule

KIB, MIB = 2**10, 2**20


@dataclass(frozen=True, slots=True)
class Shortage:
    """A device whose memory is too small.

    Attributes:
        device: number of the device.
        profile: hardware of the device.
        needed: memory at the peak of a round, by component.
    """

    device: int
    profile: DeviceProfile
    needed: MemoryTable


def memory_of_devices(scenario: Scenario, shape: DataShape | None = None) -> list[MemoryTable]:
    """Memory of each device at the peak of a round; `shape` is that of `studied_scenario`."""
    return _memory_of_devices(studied_scenario(scenario, shape))


def check_memory(
    scenario: Scenario, shape: DataShape | None = None, schedule: Schedule | None = None
) -> str | None:
    """Compare the memory that devices need with the memory that they have.

    Args:
        scenario: scenario of the fleet; given a schedule, with its devices in the order of their
            numbers.
        shape: shape of its data, as for `studied_scenario`.
        schedule: its graphs, as for `studied_scenario`.

    Returns:
        A warning with the shortage and its remedies, if `fleet.enforce_memory` is warn; else None.

    Raises:
        ScenarioError: a device's memory is too small, and `fleet.enforce_memory` is refuse.
    """
    if schedule is None:
        scenario, schedule = name_devices(scenario)
        check_hardware(scenario, schedule)
    profiles = device_profiles(scenario)
    if not profiles:
        return None
    studied = studied_scenario(scenario, shape, schedule)
    shortages = _shortages(studied, profiles)
    if not shortages:
        return None
    text = _describe(studied, shortages)
    if scenario.fleet.enforce_memory == "warn":
        return text
    raise ScenarioError(f"{text}; or set fleet.enforce_memory: warn")


def _memory_of_devices(studied: StudiedScenario) -> list[MemoryTable]:
    message_bytes = _message_bytes(studied)
    edges_of = edges_of_devices(studied)
    _, part_of = parts_of_devices(studied.algorithm, len(edges_of))
    found: dict[object, MemoryTable] = {}
    tables = []
    for device, edges in enumerate(edges_of):
        key = part_of[device], edges
        if key not in found:
            found[key] = memory_of_device(studied, edges, message_bytes, device)
        tables.append(found[key])
    return tables


def _message_bytes(studied: StudiedScenario) -> int:
    rng = stream(studied.scenario.seed, StreamPurpose.COMPRESS)
    return random_message_bytes(studied.algorithm, rng)


def memory_of_device(
    studied: StudiedScenario, edges: Edges, message_bytes: int, device: int
) -> MemoryTable:
    """Memory that a device holds at the peak of a round.

    Args:
        studied: the scenario.
        edges: of the device.
        message_bytes: of one message, of the longest ones if they differ.
        device: number of the device.
    """
    return MemoryModel(
        model=studied.model,
        backend=studied.backend,
        optimizer=studied.optimizer,
        algorithm=for_device(studied.algorithm, device),
        out_degree=edges.sent,
        in_degree=edges.taken,
        message_bytes=message_bytes,
        kept_edges=(edges.receivers, edges.senders),
    ).faithful()


def _shortages(studied: StudiedScenario, profiles: tuple[DeviceProfile, ...]) -> list[Shortage]:
    needed = _memory_of_devices(studied)
    pairs = enumerate(zip(profiles, needed, strict=True))
    return [
        Shortage(device, profile, table)
        for device, (profile, table) in pairs
        if table.total > profile.memory_bytes
    ]


def _describe(studied: StudiedScenario, shortages: list[Shortage]) -> str:
    """Two lines: the shortage of the worst device by component, and changes that would help."""
    worst = max(shortages, key=lambda s: s.needed.total / s.profile.memory_bytes)
    needed, there = worst.needed.total, worst.profile.memory_bytes
    who = f"{studied.scenario.fleet.label(worst.device)}, {worst.profile.name},"
    more = len(shortages) - 1
    others = f"; so do {more} more devices" if more > 1 else "; so does another" if more else ""
    parts = sorted(worst.needed.by_component.items(), key=lambda part: -part[1])
    table = ", ".join(f"{name.replace('_', ' ')} {_size(held)}" for name, held in parts if held)
    return (
        f"fleet: {who} has {_size(there)} and needs {_size(needed)} at the peak of a round "
        f"({table}){others}\n"
        f"what would fit: {' or '.join(_remedies(studied))}"
    )


def _size(num_bytes: float) -> str:
    """Memory in the unit that suits it: 2.83 MiB, 92.1 KiB."""
    value, unit = (num_bytes / MIB, "MiB") if num_bytes >= MIB else (num_bytes / KIB, "KiB")
    return f"{value:,.1f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def fitting_settings(studied: StudiedScenario) -> list[dict[str, str]]:
    """Changes after which no device is short of memory: keys of the scenario and their new values.

    Args:
        studied: the scenario, as objects; its devices have profiles.
    """
    scenario, found = studied.scenario, []
    for precision in dict.fromkeys((scenario.model.precision, "int8")):
        model = scenario.model.model_dump() | {"precision": precision}
        if precision != scenario.model.precision:
            model |= {"norm": None, "gate": None}
        changed = scenario.model_copy(update={"model": type(scenario.model)(**model)})
        batch_size = _largest_batch(changed, studied)
        settings = _changes(scenario.model, changed.model)
        if batch_size is not None and batch_size < scenario.data.batch_size:
            settings["data.batch_size"] = str(batch_size)
        if batch_size is not None:
            found.append(settings)
    return found


def _remedies(studied: StudiedScenario) -> list[str]:
    """Changes after which no device is short of memory, in words."""
    found = (
        " with ".join(f"{key}: {value}" for key, value in settings.items())
        for settings in fitting_settings(studied)
    )
    return list(found) or ["a smaller model, or devices with more memory"]


def _changes(before: ModelSection, after: ModelSection) -> dict[str, str]:
    """Keys to set. The norm is among them, since an fp32 norm would keep most of the memory."""
    names = ("precision", "norm", "gate")
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return {f"model.{name}": new or "null" for name, old, new in pairs if new != old}


def _largest_batch(scenario: Scenario, original: StudiedScenario) -> int | None:
    """Largest batch for which all devices have enough memory; None if one sample is too much.

    Args:
        scenario: the scenario with a changed model.
        original: the original scenario as objects; it has the same graphs.
    """
    shape = data_shape(scenario.data)
    needy = _neediest(original, device_profiles(scenario))
    message_bytes = _message_bytes(studied_scenario(scenario, shape, original.schedule))

    def fits(batch_size: int) -> bool | None:
        """None: a norm of the model refuses so few values."""
        data = scenario.data.model_copy(update={"batch_size": batch_size})
        changed = scenario.model_copy(update={"data": data})
        try:
            studied = studied_scenario(changed, shape, original.schedule)
        except (OwnCodeError, LayerInputError):
            return None
        return all(
            memory_of_device(studied, edges, message_bytes, device).total <= there
            for there, edges, device in needy
        )

    if fits(scenario.data.batch_size):
        return scenario.data.batch_size
    low, high, largest = 0, scenario.data.batch_size, None
    while high - low > 1:
        middle = (low + high) // 2
        if (is_enough := fits(middle)) is False:
            high = middle
        else:
            low, largest = middle, middle if is_enough else largest
    return largest


def _neediest(
    studied: StudiedScenario, profiles: tuple[DeviceProfile, ...]
) -> list[tuple[float, Edges, int]]:
    """Memory, edges and number of the neediest devices: if these fit, all devices fit.

    More edges take more memory. So, among devices with the same memory and part, a device matters
    only if no other has as many edges of all kinds.
    """
    _, part_of = parts_of_devices(studied.algorithm, len(profiles))
    alike: dict[object, dict[Edges, tuple[float, int]]] = {}
    for device, (profile, edges) in enumerate(
        zip(profiles, edges_of_devices(studied), strict=True)
    ):
        there = profile.memory_bytes
        alike.setdefault((there, part_of[device]), {}).setdefault(edges, (there, device))
    return [
        (there, edges, device)
        for group in alike.values()
        for edges, (there, device) in group.items()
        if not any(other != edges and _holds(other, edges) for other in group)
    ]


def _holds(edges: Edges, others: Edges) -> bool:
    """Whether there are as many of each kind."""
    return all(one >= other for one, other in zip(edges, others, strict=True))
