"""Of what samples, and of how many devices, a run's evaluations are."""

from __future__ import annotations

from edgesim.report.evaluations import last_of_devices
from edgesim.report.reported_run import ReportedRun
from edgesim.report.run_settings import held_back_of, published_samples

ALL_SAMPLES = "the test samples"


def test_samples(run: ReportedRun) -> str:
    """The samples that models were evaluated on.

    Returns:
        For example `the test samples`, `40 of 355 test samples`, `5,000 validation samples`.
    """
    held_back = held_back_of(run.settings)
    published = published_samples(run.settings)
    there = held_back or (published[1] if published else None)
    used = (run.settings.get("evaluation") or {}).get("samples")
    name = "test samples" if held_back is None else "validation samples"
    if used is None or (there is not None and used >= there):
        return ALL_SAMPLES if held_back is None else f"{held_back:,} {name}"
    return f"at most {used:,} {name}" if there is None else f"{used:,} of {there:,} {name}"


def devices_evaluated(run: ReportedRun) -> str:
    """Devices whose own models the last such evaluation tested: `2 of 8`; empty for all."""
    evaluated = last_of_devices(run)["device"].nunique()
    return "" if evaluated == run.num_devices else f"{evaluated:,} of {run.num_devices:,}"
