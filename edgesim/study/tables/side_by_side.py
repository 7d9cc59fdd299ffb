"""Two scenarios side by side: the heaviest device of each, then both fleets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgesim.study.iteration import DeviceCosts, IterationCosts
from edgesim.study.tables.ratio import Topic, times
from edgesim.study.tables.table import Table
from edgesim.study.tables.units import Unit, alike, plain
from edgesim.study.training import training_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One quantity of two scenarios.

    Attributes:
        topic: topic of the quantity.
        key: name of the quantity in files, unique within its topic.
        label: name of the quantity in tables.
        first: value of the first scenario.
        second: value of the second scenario.
        unit: unit of both values; None for plain numbers.
    """

    topic: Topic
    key: str
    label: str
    first: float
    second: float
    unit: Unit | None

    @property
    def ratio(self) -> float | None:
        """First divided by second; None if one of them is zero."""
        return self.first / self.second if self.first and self.second else None


def side_by_side(first: IterationCosts, second: IterationCosts) -> tuple[Pair, ...]:
    """Every quantity that both scenarios have."""
    ours, theirs = (list(_quantities(costs)) for costs in (first, second))
    others = {(topic, key): value for topic, key, _, value, _ in theirs}
    return tuple(
        Pair(
            topic=topic,
            key=key,
            label=label,
            first=value,
            second=others[topic, key],
            unit=unit,
        )
        for topic, key, label, value, unit in ours
        if (topic, key) in others and (value or others[topic, key])
    )


def side_by_side_table(
    names: tuple[str, str], pairs: tuple[Pair, ...], notes: tuple[str, ...]
) -> Table:
    """Table of both scenarios and of the ratios, first by second, with notes below it."""
    rows: list[tuple[str, ...]] = []
    topic: str = ""
    for pair in pairs:
        values = (pair.first, pair.second)
        texts = alike(values, pair.unit) if pair.unit else tuple(map(plain, values))
        ratio = "-" if pair.ratio is None else times(pair.ratio)
        if pair.topic != topic:
            rows.append((pair.topic, "", "", ""))
            topic = pair.topic
        rows.append((f"  {pair.label}", *texts, ratio))
    return Table(
        f"{names[0]} / {names[1]}",
        ("", *names, "ratio"),
        tuple(rows),
        ("Of each fleet's device that holds the most, but for the lines on the fleet.", *notes),
    )


_Quantity = tuple[Topic, str, str, float, Unit | None]


def _quantities(costs: IterationCosts) -> Iterator[_Quantity]:
    device = costs.heaviest
    yield from _of_work(device)
    for name, held in device.faithful_memory.by_component.items():
        yield "memory", f"faithful_{name}", f"held, {name.replace('_', ' ')}", held, "MiB"
    yield "memory", "faithful_total", "held", device.faithful_memory.total, "MiB"
    yield "memory", "paper_total", "paper's convention", device.paper_memory.total, "MiB"
    yield from _of_messages(costs, device)
    for entry in device.energy:
        if (entry.accumulate, entry.memory) == ("paper", "dram"):
            label = f"iteration, {entry.table}"
            yield "energy", f"iteration_{entry.table}", label, entry.total_j, "J"
    yield from _of_time(device)
    yield from _of_fleet(costs)


def _of_work(device: DeviceCosts) -> Iterator[_Quantity]:
    work = device.work.total
    yield "compute", "macs_int8", "int8 products", work.macs_int8, "MAC"
    yield "compute", "macs_16bit", "16-bit products", work.macs_16bit, "MAC"
    yield "compute", "macs_fp32", "fp32 products", work.macs_fp32, "MAC"
    in_fp32 = (8 * work.macs_int8 + 16 * work.macs_16bit + 32 * work.macs_fp32) / 32
    yield "compute", "macs_by_width", "products by bit width", in_fp32, "MAC"
    yield "compute", "elementwise_ops", "other operations", work.elementwise_ops, "ops"
    yield "compute", "traffic_bytes", "memory traffic", work.traffic_bytes, "MiB"


def _of_messages(costs: IterationCosts, device: DeviceCosts) -> Iterator[_Quantity]:
    counts = costs.message.encoded
    yield "communication", "values", "message, values", counts.values, "B"
    yield "communication", "indices", "message, indices", counts.indices, "B"
    overhead = counts.scales + counts.header
    yield "communication", "overhead", "message, overhead", overhead, "B"
    yield "communication", "encoded", "message", counts.total, "B"
    yield "communication", "sent_bytes", "sent in an iteration", device.sent_bytes, "B"


def _of_time(device: DeviceCosts) -> Iterator[_Quantity]:
    if device.time is None:
        return
    yield "time", "arithmetic_s", "arithmetic", device.time.arithmetic_s, "s"
    yield "time", "memory_s", "memory traffic", device.time.memory_s, "s"
    yield "time", "roofline_s", "step", device.time.roofline_s, "s"
    yield "time", "air_s", "on air", device.time.cycle.air_s, "s"
    yield "time", "wait_s", "waiting", device.time.cycle.wait_s, "s"


def _of_fleet(costs: IterationCosts) -> Iterator[_Quantity]:
    training, table = training_of(costs), costs.energy_table
    yield "fleet", "devices", "devices", len(costs.devices), None
    yield "fleet", "sent_bytes", "sent in an iteration", costs.sent_bytes, "B"
    yield "fleet", f"energy_j_{table}", f"energy, {table}", costs.energy_j, "J"
    if costs.steady_state is not None:
        yield "fleet", "period_s", "period of a round", costs.steady_state.period_s, "s"
        yield "fleet", "training_s", "whole training", training.seconds or 0.0, "s"
    yield "fleet", "rounds", "rounds of it, at most", max(training.rounds), None
    yield "fleet", "training_bytes", "bytes sent in it", sum(training.sent_bytes), "MB"
    if costs.steady_state is not None:
        energy_j = sum(training.energy_j)
        yield "fleet", f"training_j_{table}", f"energy of it, {table}", energy_j, "J"
    if training.lives:
        used = max(life.used for life in training.lives)
        yield "fleet", "battery_used", "battery, share of it, the most", used, None
