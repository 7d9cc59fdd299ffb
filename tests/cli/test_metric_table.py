"""`edgesim list metrics`: what Prometheus sees of a run in progress."""

from __future__ import annotations

import pytest

from edgesim.cli.key_tables import ListingError
from edgesim.cli.listing import catalog_table
from edgesim.results.columns import GOSSIPED_EVALUATIONS, OWN_EVALUATIONS
from edgesim.results.metrics import DEVICE_METRICS, EVALUATION_METRICS, FLEET_METRICS, WAITS_FOR


def test_all_metrics_are_listed_as_prometheus_names_them():
    rows = catalog_table("metrics", None).rows
    metrics = (*DEVICE_METRICS, WAITS_FOR, *FLEET_METRICS, *EVALUATION_METRICS)
    further = (*OWN_EVALUATIONS, *GOSSIPED_EVALUATIONS)
    assert len(rows) == len(metrics) + len(further)
    assert {f"ray_edgesim_evaluation_{column.name}" for column in further} < {
        row[0] for row in rows
    }
    assert ("ray_edgesim_sent_bytes_total", "counter", "device") in {row[:3] for row in rows}
    assert ("ray_edgesim_fleet_loss", "gauge", "statistic") in {row[:3] for row in rows}
    assert all(meaning for *_, meaning in rows)


@pytest.mark.parametrize("name", ["sent_bytes", "ray_edgesim_sent_bytes_total"])
def test_one_is_found_by_either_name(name):
    ((series, *_),) = catalog_table("metrics", name).rows
    assert series == "ray_edgesim_sent_bytes_total"


def test_what_is_no_metric_is_refused():
    with pytest.raises(ListingError, match="fleet_los is no metric; did you mean fleet_loss"):
        catalog_table("metrics", "fleet_los")
