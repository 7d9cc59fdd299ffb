"""Section `metrics`: metrics of a run in progress; never changes a result."""

from __future__ import annotations

from pydantic import Field

from edgesim.scenario.section import Natural, Section


class MetricsSection(Section):
    """Metrics for Ray's dashboard, Prometheus and the like."""

    most_devices: Natural = Field(
        default=100,
        description=(
            "largest fleet with metrics of each device; a larger fleet has only the least, "
            "mean and greatest values, and sums, over all devices"
        ),
    )
