"""Metrics of a run in progress, with the names and meanings of columns.

There are three kinds. A metric of a device has the device as a label. A metric of the fleet is the
sum of a counter over all devices, or the least, the mean and the greatest value of a gauge over the
devices that have neither left nor died. A metric of the newest evaluation is about the averaged
model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from edgesim.results.columns import (
    BATTERY_ROUNDS,
    EVALUATIONS,
    FREE_ROUNDS,
    LIVE_DEVICES,
    ROUNDS,
    VIRTUAL_ROUNDS,
    Column,
)

Kind: TypeAlias = Literal["gauge", "counter"]

STATISTICS = ("min", "mean", "max")
"""Values of the label `statistic` of a gauge of the fleet."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: that of its column, behind `fleet_` or `evaluation_` where it is not of one device.
        kind: a counter only grows.
        meaning: that of its column.
        labels: names of its labels.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...]


def _device_metric(name: str, columns: tuple[Column, ...], kind: Kind = "gauge") -> Metric:
    (column,) = (column for column in columns if column.name == name)
    return Metric(name, kind, column.meaning, ("device",))


def _total(name: str, columns: tuple[Column, ...], meaning: str) -> Metric:
    return replace(_device_metric(name, columns, "counter"), meaning=meaning)


def series(metric: Metric) -> str:
    """Name that a metric has in Prometheus, after Ray has exported it."""
    return f"ray_edgesim_{metric.name}" + ("_total" if metric.kind == "counter" else "")


DEVICE_METRICS: tuple[Metric, ...] = (
    _device_metric("rounds_done", LIVE_DEVICES),
    _device_metric("loss", ROUNDS),
    _device_metric("push_weight", ROUNDS),
    _device_metric("virtual_time_s", VIRTUAL_ROUNDS),
    _total("sent_bytes", ROUNDS, "length of all messages encoded so far"),
    _total("received_bytes", ROUNDS, "length of all messages absorbed so far"),
    _total("energy_j", VIRTUAL_ROUNDS, "energy of all rounds so far, joules"),
    _device_metric("charge_left_j", BATTERY_ROUNDS),
    _device_metric("staleness_s", FREE_ROUNDS),
    _device_metric("mailbox_messages", LIVE_DEVICES),
    _device_metric("awaited_messages", LIVE_DEVICES),
    _device_metric("actor_restarts", LIVE_DEVICES),
    _device_metric("accuracy", EVALUATIONS),
    _device_metric("consensus_distance", EVALUATIONS),
)
"""Of one device each; accuracy and distance are of the newest evaluation that has them."""

(_WAITS_FOR,) = (column for column in LIVE_DEVICES if column.name == "waits_for")
WAITS_FOR = Metric("waits_for", "gauge", _WAITS_FOR.meaning, ("device", "other"))
"""Of a device and another one."""

_OVER: Mapping[Kind, str] = {
    "counter": "sum over all devices",
    "gauge": "least, mean, greatest over devices that have neither left nor died",
}
FLEET_METRICS: tuple[Metric, ...] = tuple(
    replace(
        metric,
        name=f"fleet_{metric.name}",
        labels=() if metric.kind == "counter" else ("statistic",),
        meaning=f"{_OVER[metric.kind]}: {metric.meaning}",
    )
    for metric in DEVICE_METRICS
)
"""Of all devices together, in the order of `DEVICE_METRICS`."""


def evaluation_metric(column: Column) -> Metric:
    """A measure of the averaged model, as the newest evaluation found it."""
    return Metric(f"evaluation_{column.name}", "gauge", column.meaning, ())


EVALUATION_METRICS: tuple[Metric, ...] = tuple(
    evaluation_metric(column)
    for column in EVALUATIONS
    if column.name in {"round", "epoch", "accuracy", "loss", "consensus_distance", "model_norm"}
)
"""Of the averaged model; a task of one's own has measures beside these."""
