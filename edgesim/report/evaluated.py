"""Of how many test samples and devices a run's evaluations are."""

from __future__ import annotations

from edgesim.report.evaluations import last_of_devices
from edgesim.report.reported_run import ReportedRun
from edgesim.report.run_settings import published_samples

ALL_SAMPLES = "the test samples"


def test_samples(run: ReportedRun) -> str:
    """The test samples that models were evaluated on: `the test samples`, `40 of 355 ...`."""
    published = published_samples(run.settings)
    there = published[1] if published else None
    used = (run.settings.get("evaluation") or {}).get("samples")
    if used is None or (there is not None and used >= there):
        return ALL_SAMPLES
    return (
        f"at most {used:,} test samples" if there is None else f"{used:,} of {there:,} test samples"
    )


def devices_evaluated(run: ReportedRun) -> str:
    """Devices whose own models the last such evaluation tested: `2 of 8`; empty for all."""
    evaluated = last_of_devices(run)["device"].nunique()
    return "" if evaluated == run.num_devices else f"{evaluated:,} of {run.num_devices:,}"
