"""Which runs of a group count in its means: one of each seed, and finished ones before others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from edgesim.report.reported_run import ReportedRun

Key = Callable[[ReportedRun], Hashable]
"""What runs that differ in the seed alone have in common."""


def group_of(run: ReportedRun) -> str:
    """The group of a run in its report."""
    return run.group


def by_group(runs: Iterable[ReportedRun], key: Key = group_of) -> dict[Hashable, list[ReportedRun]]:
    """The runs of each group, in their order."""
    groups: dict[Hashable, list[ReportedRun]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def one_per_seed(runs: Sequence[ReportedRun], key: Key = group_of) -> list[ReportedRun]:
    """The runs without those that repeat a seed of their group, in their order.

    Of runs with one seed the first that is finished counts; if none is, the first.
    """
    counted = _counted(runs, key)
    return [run for run in runs if counted[_identity(run, key)] is run]


def in_means(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Runs whose figures a mean over seeds is made of, in their order.

    They are the finished runs of a group, one of each seed. Of a group without finished runs all
    seeds count.
    """
    found = one_per_seed(runs)
    with_end = {run.group for run in found if run.is_finished}
    return [run for run in found if run.is_finished or run.group not in with_end]


def repeated_seeds(runs: Sequence[ReportedRun], key: Key = group_of) -> list[str]:
    """A sentence for each run that repeats a seed of its group."""
    counted = _counted(runs, key)
    pairs = [(run, counted[_identity(run, key)]) for run in runs]
    return [
        f"{run.place} has the settings and the seed of {other.place}; means count the latter alone."
        for run, other in pairs
        if other is not run
    ]


def _counted(runs: Sequence[ReportedRun], key: Key) -> dict[Hashable, ReportedRun]:
    """The run that counts for each group and seed."""
    counted: dict[Hashable, ReportedRun] = {}
    for run in sorted(runs, key=lambda run: not run.is_finished):
        counted.setdefault(_identity(run, key), run)
    return counted


def _identity(run: ReportedRun, key: Key) -> Hashable:
    return key(run), run.settings.get("seed")
