"""A fleet's metrics as metrics of Ray, which its nodes export for Prometheus.

They are told by the driver alone, so that a series goes on when an actor is lost and started again.
"""

from __future__ import annotations

from ray.util.metrics import Counter, Gauge

from edgesim.fleet.recording.fleet_state import FleetState, Sample, Sink, samples
from edgesim.results.metrics import WAITS_FOR, Metric

PREFIX = "edgesim_"  # Ray puts `ray_` before it, and `_total` behind the name of a counter
RUN = "run"  # label of all metrics: a cluster may have several runs


class RayMetrics(Sink):
    """A sink (recording/fleet_state.py) that gives each value to Ray.

    Args:
        run: name of the run's directory.
        most_devices: see `samples`.
    """

    def __init__(self, run: str, most_devices: int) -> None:
        self._run = run
        self._most_devices = most_devices
        self._gauges: dict[str, Gauge] = {}
        self._counters: dict[str, Counter] = {}
        self._counted: dict[tuple[str, tuple[str, ...]], float] = {}
        self._waits: set[tuple[str, ...]] = set()

    def update(self, fleet: FleetState) -> None:
        """Tell Ray the newest values; one that is not there any more keeps its last value."""
        waits = set()
        for sample in samples(fleet, self._most_devices):
            if sample.metric.kind == "counter":
                self._count(sample)
            else:
                self._set(sample.metric, sample.labels, sample.value)
            if sample.metric is WAITS_FOR:
                waits.add(sample.labels)
        for labels in self._waits - waits:
            self._set(WAITS_FOR, labels, 0.0)
        self._waits = waits

    def _set(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        gauge = self._gauges.get(metric.name)
        if gauge is None:
            gauge = Gauge(PREFIX + metric.name, metric.meaning, (RUN, *metric.labels))
            self._gauges[metric.name] = gauge
        gauge.set(value, self._tags(metric, labels))

    def _count(self, sample: Sample) -> None:
        """Add what is new: rounds that are lost and done again were counted before."""
        metric, key = sample.metric, (sample.metric.name, sample.labels)
        more = sample.value - self._counted.get(key, 0.0)
        if more <= 0:
            return
        counter = self._counters.get(metric.name)
        if counter is None:
            counter = Counter(PREFIX + metric.name, metric.meaning, (RUN, *metric.labels))
            self._counters[metric.name] = counter
        counter.inc(more, self._tags(metric, sample.labels))
        self._counted[key] = sample.value

    def _tags(self, metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
        return {
            RUN: _ascii(self._run),
            **dict(zip(metric.labels, map(_ascii, labels), strict=True)),
        }


def _ascii(text: str) -> str:
    r"""Text in ASCII, with escapes such as `\xfc`: one other letter empties Ray's whole export."""
    return text.encode("ascii", "backslashreplace").decode()
