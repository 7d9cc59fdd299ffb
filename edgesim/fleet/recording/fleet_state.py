"""What is known of a running fleet, and the seam to those who are told: the sinks.

The monitor asks the hosts now and then, evaluates models, and gives each sink the state of the
fleet. A terminal shows it, Ray exports it to Prometheus. A sink of one's own is a subclass of
`Sink`; by `samples` it gets every metric with its labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isnan
from types import MappingProxyType
from typing import Any

from edgesim.fleet.transport.progress import DeviceProgress
from edgesim.results.columns import (
    GOSSIPED_EVALUATIONS,
    GOSSIPED_PREFIX,
    OWN_EVALUATIONS,
    OWN_PREFIX,
    Column,
)
from edgesim.results.metrics import (
    DEVICE_METRICS,
    EVALUATION_METRICS,
    FLEET_METRICS,
    STATISTICS,
    WAITS_FOR,
    Metric,
    evaluation_metric,
)

_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """What is known of a fleet before it runs.

    Attributes:
        title: what it is, in a line.
        num_devices: of the fleet.
        num_rounds: of each device.
        horizon_s: virtual time at which the training ends at free pace; None if rounds alone do.
        names: of the devices, where they have some.
        capacities_j: of each device's battery, None without one; empty where no device has one.
        measures: meanings of what a task of one's own measures, by name.
        gossip_rounds: of further gossip, after which devices' models are evaluated once more.
    """

    title: str = ""
    num_devices: int
    num_rounds: int
    horizon_s: float | None = None
    names: Sequence[str] = ()
    capacities_j: Sequence[float | None] = ()
    measures: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    gossip_rounds: int = 0

    def label(self, device: int) -> str:
        """The name of a device, or its number where devices have no names."""
        return self.names[device] if self.names else str(device)


@dataclass(frozen=True, slots=True)
class FleetState:
    """A fleet as it was last heard of.

    Attributes:
        facts: see there.
        devices: by number; those that have not been heard of yet are not there.
        absent: devices whose actor was lost and is not back.
        restarts: times that the actor of a device was started again, by device; 0 if not there.
        evaluation: row of the averaged model in the newest evaluation; empty before the first.
        evaluated: newest row of each device whose model was evaluated.
        distances: distance of each device's model from the averaged one, in the newest evaluation.
    """

    facts: FleetFacts
    devices: Mapping[int, DeviceProgress] = field(default_factory=lambda: _NOTHING)
    absent: frozenset[int] = frozenset()
    restarts: Mapping[int, int] = field(default_factory=lambda: _NOTHING)
    evaluation: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    evaluated: Mapping[int, Mapping[str, Any]] = field(default_factory=lambda: _NOTHING)
    distances: Mapping[int, float] = field(default_factory=lambda: _NOTHING)

    @property
    def slowest_round(self) -> int | None:
        """Fewest rounds of a device that has not ended; None before the first word of any."""
        if not self.devices:
            return None
        owing = [p.rounds_done for p in self.devices.values() if p.end is None]
        return min(owing, default=self.facts.num_rounds)

    @property
    def staying(self) -> Mapping[int, DeviceProgress]:
        """Devices that have neither left nor died, by number."""
        return {i: own for i, own in self.devices.items() if own.end in {None, "finished"}}

    @property
    def share_done(self) -> float:
        """How much of the training of the devices that stay is done, from 0 to 1."""
        facts, staying = self.facts, self.staying
        num_staying = facts.num_devices - (len(self.devices) - len(staying))
        if not num_staying:
            return 1.0
        done = 0.0
        for progress in staying.values():
            share = progress.rounds_done / facts.num_rounds
            if facts.horizon_s is not None and progress.virtual_time_s is not None:
                share = max(share, progress.virtual_time_s / facts.horizon_s)
            done += 1.0 if progress.end is not None else min(share, 1.0)
        return done / num_staying

    @property
    def mean_loss(self) -> float | None:
        """Mean of the newest losses of the devices that stay; None if there is none."""
        losses = [p.loss for p in self.staying.values() if not isnan(p.loss)]
        return fsum(losses) / len(losses) if losses else None

    @property
    def sent_bytes(self) -> int:
        """Of all messages of all devices."""
        return sum(progress.sent_bytes for progress in self.devices.values())

    def value(self, metric: Metric, device: int) -> float | None:
        """Value of a metric of `DEVICE_METRICS`; None if the device has none, or none yet."""
        match metric.name:
            case "actor_restarts":
                return float(self.restarts.get(device, 0))
            case "accuracy":
                value = self.evaluated.get(device, _NOTHING).get("accuracy")
            case "consensus_distance":
                value = self.distances.get(device)
            case name:
                value = getattr(self.devices[device], name)
        return None if value is None or isnan(value) else float(value)


class Sink:
    """Is told how a run goes on. A subclass has the methods that it wants; these do nothing.

    The calls come one after the other, from threads of the run: `update` and `evaluated` while it
    goes on, then `finished` if it came to its end, and `close` last, however it ended.

    An error in a sink ends the telling, never the run, but for `RunStoppedError`.
    """

    def update(self, fleet: FleetState) -> None:
        """Take the newest state; called at intervals and after each evaluation.

        The last state of a run that comes to its end has the figures of its tables: rounds, bytes,
        energy, clocks, charge, and the last evaluation.
        """

    def evaluated(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take the rows of one evaluation as in `Run.evaluations`, the averaged model's first.

        Called before the update with that evaluation, in the order of evaluations.
        """

    def finished(self, summary: Mapping[str, Any]) -> None:
        """Take the content of summary.json: the run came to its end."""

    def close(self) -> None:
        """The run has ended, finished or not; nothing follows."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric.

    Attributes:
        metric: see results/metrics.py.
        labels: values of the metric's labels, in their order.
        value: of a counter the sum so far.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float


def samples(fleet: FleetState, most_devices: int) -> Iterator[Sample]:
    """All values that there are.

    Args:
        fleet: its state.
        most_devices: a larger fleet has no metrics of single devices, only those of the fleet.
    """
    staying = fleet.staying
    for metric, of_fleet in zip(DEVICE_METRICS, FLEET_METRICS, strict=True):
        values = {
            device: value
            for device in fleet.devices
            if (value := fleet.value(metric, device)) is not None
        }
        counts = (v for i, v in values.items() if metric.kind == "counter" or i in staying)
        yield from _of_fleet(of_fleet, list(counts))
        if fleet.facts.num_devices <= most_devices:
            for device, value in values.items():
                yield Sample(metric, (fleet.facts.label(device),), value)
    if fleet.facts.num_devices <= most_devices:
        for device, progress in fleet.devices.items():
            for other in progress.waits_for:
                yield Sample(WAITS_FOR, (fleet.facts.label(device), fleet.facts.label(other)), 1.0)
    for metric in (*EVALUATION_METRICS, *map(evaluation_metric, _further(fleet.facts.measures))):
        value = fleet.evaluation.get(metric.name.removeprefix("evaluation_"))
        if value is not None and not isnan(value):
            yield Sample(metric, (), float(value))


def _further(measures: Mapping[str, str]) -> Iterator[Column]:
    """Columns of evaluations that some runs have: a task's measures, those of own samples, ..."""
    for of_all, prefix in (
        ((), ""),
        (OWN_EVALUATIONS, OWN_PREFIX),
        (GOSSIPED_EVALUATIONS, GOSSIPED_PREFIX),
    ):
        yield from of_all
        for name, meaning in measures.items():
            yield Column(f"{prefix}{name}", "float64", meaning)


def _of_fleet(metric: Metric, values: Sequence[float]) -> Iterator[Sample]:
    if not values:
        return
    if metric.kind == "counter":
        yield Sample(metric, (), fsum(values))
        return
    found = (min(values), fsum(values) / len(values), max(values))
    for statistic, value in zip(STATISTICS, found, strict=True):
        yield Sample(metric, (statistic,), value)
