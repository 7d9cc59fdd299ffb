"""Several runs side by side: their curves, bands over seeds, and the table of their ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgesim.report.figures.figure import (
    COLORS,
    Figure,
    View,
    are_known,
    as_spec,
    channels,
    rounded,
    source,
)
from edgesim.report.frames import Chart, Frame
from edgesim.report.reported_run import CONSENSUS, ReportedRun
from edgesim.report.seeds import by_group, one_per_seed
from edgesim.report.units import Axis, data_size, duration, energy, listed, percent, points
from edgesim.results.columns import GOSSIPED_PREFIX
from edgesim.study.tables.table import Table

_HEIGHT = 300
_AXES = ("round", "virtual_time_s", "fleet_sent_bytes", "fleet_energy_j")
_ROUNDING = 1e-12  # of a mean: sums of the same numbers in another order differ by less


def compared_curves(
    table: Frame,
    counted: Sequence[str],
    measure: str,
    title: str,
    caption: str,
    axes: Sequence[tuple[str, Axis]],
) -> Figure:
    """Curves of the averaged models of runs; of runs that differ in the seed alone, with a band.

    A mean ends where not all of its runs have a value.

    Args:
        table: evaluations of all runs, with columns `run` and `group`.
        counted: labels of the runs that means over seeds are made of.
        measure: column to draw.
        title: what the measure is called.
        caption: what it says.
        axes: label and axis of each view.
    """
    consensus = table[table["model"] == CONSENSUS].reset_index(drop=True)
    of_means = consensus[consensus["run"].isin(counted)]
    has_seeds = bool((of_means.groupby("group")["run"].nunique() > 1).any())
    tables = {"evaluations": consensus}
    is_mean = measure.startswith(GOSSIPED_PREFIX)  # of a run's devices; no model is averaged
    text = caption if is_mean else f"{caption} Of each run's averaged model."
    if has_seeds:
        tables = {"means": _over_seeds(of_means, measure), "evaluations": consensus}
        whose = "" if is_mean else " of the averaged models"
        text = (
            f"{caption} The mean{whose} over runs that differ in the seed alone, and a band from "
            "the lowest to the highest, as far as all of them go."
        )
        names = consensus["run"].drop_duplicates()
        if left_out := [str(name) for name in names if name not in counted]:
            text += (
                f" Not in a mean, as unfinished or with the seed of another: {listed(left_out)}."
            )
    views = [View(label, as_spec(_chart(tables, measure, title, axis))) for label, axis in axes]
    key = measure.replace("_", "-")
    return Figure(key=key, title=title, caption=text, tables=tables, views=views, choice="against")


def _over_seeds(consensus: Frame, measure: str) -> Frame:
    """Mean, deviation, lowest and highest of a measure by group and evaluation.

    Evaluations that not all runs of the group have are left out; so are means of an axis that is
    not known of all of them.
    """
    axes = [axis for axis in _AXES if axis in consensus]
    grouped = consensus.groupby(["group", "evaluation"], sort=False)
    values, places = grouped[measure], grouped[axes]
    num_runs = consensus.groupby("group")["run"].nunique()
    runs = values.count()
    of_all = runs.index.get_level_values("group").map(num_runs)
    means = places.mean().where(places.count().eq(of_all, axis=0))
    means = means.assign(
        mean=values.mean(),
        deviation=values.std(ddof=1),
        lowest=values.min(),
        highest=values.max(),
        runs=runs,
    )
    return rounded(means[runs == of_all].reset_index(), 9)


def _chart(tables: dict[str, Frame], measure: str, title: str, axis: Axis) -> Chart:
    import altair as alt

    name, table = next(iter(tables.items()))
    by, value = ("group", "mean") if name == "means" else ("run", measure)
    labels = list(dict.fromkeys(table[by]))
    colors = [COLORS[place % len(COLORS)] for place in range(len(labels))]
    color = alt.Color(f"{by}:N", title=None, scale=alt.Scale(domain=labels, range=colors))
    scale = alt.Scale(zero=measure.endswith("consensus_distance"))
    base = (
        alt.Chart(source(name, table))
        .transform_filter(are_known(value, axis.field))
        .transform_calculate(x=f"datum.{axis.field} / {axis.per_unit!r}")
    )
    x = alt.X("x:Q", title=axis.title, axis=alt.Axis(tickCount=6))
    y = alt.Y(f"{value}:Q", title=title.lower(), scale=scale)
    tooltip = [
        alt.Tooltip(f"{by}:N", title="run"),
        alt.Tooltip("round:Q"),
        alt.Tooltip("x:Q", title=axis.title, format=".4~g"),
        alt.Tooltip(f"{value}:Q", title=title.lower(), format=".4~g"),
    ]
    layers = [
        base.mark_line(strokeWidth=2, point={"filled": True, "size": 24}).encode(
            **channels(
                x=x,
                y=y,
                color=color,
                tooltip=tooltip,
                order=alt.Order("evaluation", type="quantitative"),
            )
        )
    ]
    if name == "means":
        y_low = alt.Y("lowest:Q", title=title.lower(), scale=scale)
        band = base.mark_area(opacity=0.18).encode(
            **channels(x=x, y=y_low, y2="highest:Q", color=color)
        )
        layers.insert(0, band)
    return alt.layer(*layers).properties(width="container", height=_HEIGHT)


def groups_table(runs: Sequence[ReportedRun], devices_of_runs: Sequence[Frame]) -> Table | None:
    """Means and deviations over finished runs that differ in the seed alone.

    None where no two do.
    """
    tables = dict(zip(runs, devices_of_runs, strict=True))
    groups = by_group(one_per_seed(runs))
    if all(len(members) == 1 for members in groups.values()):
        return None
    rows, notes = [], []
    for group, seeds in groups.items():
        members = [(run, tables[run]) for run in seeds if run.is_finished]
        if len(members) < len(seeds):
            notes.append(_unfinished(str(group), len(members), len(seeds)))
        last = [run.consensus.iloc[-1] for run, _ in members if len(run.consensus)]
        accuracies = [e["accuracy"] for e in last if e["accuracy"] == e["accuracy"]]
        of_devices = [table["accuracy"].astype(float).mean() for _, table in members]
        clocks = [table["virtual_time_s"].max() for run, table in members if run.has_clock]
        energies = [table["energy_j"].sum() for run, table in members if run.has_clock]
        rows.append(
            (
                str(group),
                f"{len(members)}",
                spread([a for a in accuracies if a is not None], percent, points),
                spread([a for a in of_devices if a == a], percent, points),
                spread([e["loss"] for e in last], lambda value: f"{value:.4g}"),
                spread([table["sent_bytes"].sum() for _, table in members], data_size),
                spread([table["messages_sent"].sum() for _, table in members], "{:,.0f}".format),
                spread(clocks, duration),
                spread(energies, energy),
            )
        )
    heads = (
        *("", "runs", "averaged model", "devices", "loss", "sent", "messages", "virtual time"),
        "energy",
    )
    used = [place for place, _ in enumerate(heads) if any(row[place] for row in rows)]
    used = sorted({0, *used})
    return Table(
        "Means over seeds",
        tuple(heads[place] for place in used),
        tuple(tuple(row[place] for place in used) for row in rows),
        (
            "Accuracy of the averaged model, and the mean over the devices' own models.",
            "Behind +-: the standard deviation over runs (n - 1).",
            *notes,
        ),
    )


def _unfinished(group: str, finished: int, of: int) -> str:
    """Which runs of a group its means are of."""
    if not finished:
        return f"{group}: none of {of:,} runs is finished."
    are = "is" if finished == 1 else "are"
    return f"{group}: {finished:,} of {of:,} runs {are} finished; the others do not count."


def spread(
    values: Sequence[float],
    form: Callable[[float], str],
    of_deviation: Callable[[float], str] | None = None,
) -> str:
    """Mean and, of several values, their standard deviation.

    Args:
        values: the values; none give an empty text.
        form: writes a value.
        of_deviation: writes a deviation; None if it is written as a value.
    """
    if not values:
        return ""
    mean = float(np.mean(values))
    if len(values) == 1:
        return form(mean)
    deviation = float(np.std(values, ddof=1))
    if deviation < _ROUNDING * abs(mean):
        deviation = 0.0
    return f"{form(mean)} +- {(of_deviation or form)(deviation)}"
