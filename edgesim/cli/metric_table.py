"""Output of `edgesim list metrics`: what Prometheus sees of a run in progress."""

from __future__ import annotations

from edgesim.cli.key_tables import ListingError
from edgesim.errors import did_you_mean
from edgesim.results.columns import GOSSIPED_EVALUATIONS, OWN_EVALUATIONS
from edgesim.results.metrics import (
    DEVICE_METRICS,
    EVALUATION_METRICS,
    FLEET_METRICS,
    WAITS_FOR,
    evaluation_metric,
    series,
)
from edgesim.study.tables.table import Table

_FURTHER = tuple(map(evaluation_metric, (*OWN_EVALUATIONS, *GOSSIPED_EVALUATIONS)))
_NOTES = (
    "All have the label `run`, the last name of the run's directory.",
    "Those of devices are there in fleets of at most metrics.most_devices.",
    "A gauge that a device has no more keeps its last value.",
    "own_: where devices have held-out samples; after_gossip_: with evaluation.gossip_rounds.",
    "A task's further measures have series ray_edgesim_evaluation_<name> of their own.",
)


def metrics_table(name: str | None) -> Table:
    """Metrics with their meanings: all, or one alone.

    Args:
        name: of a metric, with or without `ray_edgesim_` and `_total`.

    Raises:
        ListingError: no metric has this name.
    """
    metrics = (*DEVICE_METRICS, WAITS_FOR, *FLEET_METRICS, *EVALUATION_METRICS, *_FURTHER)
    shown = [metric for metric in metrics if name in {None, metric.name, series(metric)}]
    if not shown:
        known = [metric.name for metric in metrics]
        remedy = did_you_mean(str(name), known, "see `edgesim list metrics`")
        raise ListingError(f"{name} is no metric; {remedy}")
    rows = tuple((series(one), one.kind, ", ".join(one.labels), one.meaning) for one in shown)
    heads = ("series", "kind", "labels", "meaning")
    return Table("", heads, rows, _NOTES, prose=frozenset({"meaning"}))
