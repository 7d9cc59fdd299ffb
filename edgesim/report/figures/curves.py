"""Figures of curves: accuracy, loss and consensus distance of one run or of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgesim.report.evaluated import ALL_SAMPLES, devices_evaluated, test_samples
from edgesim.report.evaluations import (
    AVERAGED,
    BEST,
    MOST_LINES,
    OTHERS,
    WORST,
    evaluations_of,
    extremes,
    own_metrics,
    quantile_bands,
    with_extremes,
)
from edgesim.report.figures.comparison import compared_curves
from edgesim.report.figures.figure import (
    BANDS,
    BLUE,
    GREEN,
    GREY,
    RED,
    Figure,
    View,
    are_known,
    as_spec,
    channels,
    source,
)
from edgesim.report.frames import Chart, Frame
from edgesim.report.reported_run import CONSENSUS, ReportedRun
from edgesim.report.run_settings import held_back_of
from edgesim.report.seeds import in_means
from edgesim.report.units import Axis, bytes_axis, energy_axis, listed, time_axis
from edgesim.results.columns import GOSSIPED_PREFIX, OWN_PREFIX

if TYPE_CHECKING:
    import altair as alt

_MEAN = "whole fleet"  # in place of the averaged model, which is not mixed further
_SERIES = {AVERAGED: BLUE, _MEAN: BLUE, BEST: GREEN, WORST: RED, OTHERS: GREY}
_HEIGHT = 280
_TITLES = {"accuracy": "Accuracy", "loss": "Loss", "consensus_distance": "Consensus distance"}
_CAPTIONS = {
    "accuracy": "Share of test samples classified correctly.",
    "loss": "Mean loss on the test samples.",
    "consensus_distance": "How far devices' trained parameters are from their average: the root of "
    "the mean squared distance. It falls while gossip makes models agree, and grows while they "
    "move apart.",
}


_PREFIXES = {OWN_PREFIX: "on devices' own samples", GOSSIPED_PREFIX: "after further gossip"}
_OF_SAMPLES = {
    OWN_PREFIX: "Of each device on its own held-out samples; of the averaged model, the mean over "
    "devices.",
    GOSSIPED_PREFIX: "Of devices' models after further rounds of gossip without training; of the "
    "whole fleet, the mean over devices, and of distances the root of their mean square.",
}


def curve_figures(runs: Sequence[ReportedRun]) -> list[Figure]:
    """Accuracy, loss, further measures and consensus distance, against four axes."""
    import pandas as pd

    evaluated = [run for run in runs if not run.evaluations.empty]
    if not evaluated:
        return []
    parts = [evaluations_of(run) for run in evaluated]
    for run, part in zip(evaluated, parts, strict=True):
        part.insert(1, "group", run.group)
    table: Frame = pd.concat(parts, ignore_index=True)
    axes = x_axes(table)
    counted = [run.label for run in in_means(evaluated)]
    samples = list(dict.fromkeys(map(test_samples, evaluated)))
    # Rounds of devices at free pace are not at the same time, nor as long as those in lockstep.
    if any(run.is_free for run in evaluated) and all(run.has_clock for run in evaluated):
        axes.sort(key=lambda entry: entry[0] != "virtual time")
    measures = ["accuracy", "loss", *_metrics(evaluated), "consensus_distance"]
    figures = []
    for measure in measures:
        if not table[measure].notna().any():
            continue
        caption = caption_of(measure)
        if "test samples" in caption and len(samples) > 1:
            caption += f" Runs were evaluated on different samples: {listed(samples)}."
        elif "test samples" in caption and samples[0] != ALL_SAMPLES:
            caption += f" Evaluated on {samples[0]}."
            if held_back_of(evaluated[0].settings) is not None:
                caption = caption.replace("test samples", "validation samples")
        if len({run.is_free for run in evaluated}) > 1:
            caption += (
                " A round at free pace lasts as long as its device needs, so do not compare curves "
                "by rounds."
            )
        caption += unknown_axes(table, measure, axes)
        if len(runs) == 1:
            figures.append(_of_one_run(runs[0], table, measure, caption, axes))
        else:
            figures.append(
                compared_curves(table, counted, measure, title_of(measure), caption, axes)
            )
    return figures


def x_axes(table: Frame) -> list[tuple[str, Axis]]:
    """Axes that evaluations have, each with its label.

    Rounds are none where the mean over the devices present falls, as when quick ones leave.
    """
    consensus = table[table["model"] == CONSENSUS]
    axes = []
    if (consensus.groupby("run")["round"].diff().fillna(0) >= 0).all():
        axes.append(("rounds", Axis("round", "rounds")))
    if "virtual_time_s" in table and table["virtual_time_s"].notna().any():
        most = table["virtual_time_s"].max()
        axes.append(("virtual time", time_axis("virtual_time_s", "virtual time", most)))
    most = table["fleet_sent_bytes"].max()
    axes.append(
        ("bytes sent", bytes_axis("fleet_sent_bytes", "sent by the fleet until then", most))
    )
    if "fleet_energy_j" in table and table["fleet_energy_j"].notna().any():
        most = table["fleet_energy_j"].max()
        axes.append(("energy", energy_axis("fleet_energy_j", "spent by the fleet", most)))
    return axes


def unknown_axes(table: Frame, measure: str, axes: Sequence[tuple[str, Axis]]) -> str:
    """Sentences about runs of which some views lack evaluations, as where they lie is not known."""
    drawn = table[table[measure].notna() & (table["model"] == CONSENSUS)]
    said = ""
    for label, axis in axes:
        known = drawn[axis.field].notna().groupby(drawn["run"], sort=False).mean()
        if without := [str(run) for run, share in known.items() if share == 0]:
            said += f" Against {label} there is no curve of {listed(without)}: it is not known."
        if partly := [str(run) for run, share in known.items() if 0 < share < 1]:
            said += (
                f" Against {label} the curve of {listed(partly)} ends early: of some devices no "
                "later rounds are recorded."
            )
    return said


def _metrics(runs: Sequence[ReportedRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in own_metrics(run)))


def caption_of(measure: str) -> str:
    """What a measure says."""
    for prefix, caption in _OF_SAMPLES.items():
        if measure.startswith(prefix):
            return f"{caption_of(measure.removeprefix(prefix))} {caption}"
    return _CAPTIONS.get(measure, "A measure of the task.")


def title_of(measure: str) -> str:
    """What a measure is called."""
    for prefix, words in _PREFIXES.items():
        if measure.startswith(prefix):
            return f"{title_of(measure.removeprefix(prefix))} {words}"
    return _TITLES.get(measure, measure.replace("_", " ").capitalize())


def _of_one_run(
    run: ReportedRun, table: Frame, measure: str, caption: str, axes: list[tuple[str, Axis]]
) -> Figure:
    found = extremes(run, "loss" if measure == "loss" else "accuracy")
    table = with_extremes(table, found)
    if measure.startswith(GOSSIPED_PREFIX):
        table = table.assign(series=table["series"].replace(AVERAGED, _MEAN))
    of_devices = table[table["model"] != CONSENSUS]
    evaluated = of_devices["device"].nunique()
    key = measure.replace("_", "-")
    if evaluated > MOST_LINES:
        shown = table[table["series"] != OTHERS]
        # Rounds and clocks of devices differ at free pace: a band lies where the fleet's mean does.
        bands = quantile_bands(of_devices, ["evaluation"], [measure])
        at = table[table["model"] == CONSENSUS].set_index("evaluation")
        for _, axis in axes:
            bands[axis.field] = bands["evaluation"].map(at[axis.field])
        tables = {"evaluations": shown, "bands": bands}
        caption += (
            f" Bands: the middle half and the middle four fifths of {evaluated:,} devices' own "
            "models, and all of them; they lie at the rounds and the clock of the averaged model."
        )
    else:
        tables = {"evaluations": table}
    if found is not None:
        best, worst = run.device(found.best), run.device(found.worst)
        if some := devices_evaluated(run):
            caption += f" Own models were evaluated of {some} devices."
        caption += (
            f" By {found.by} on the common test samples the best device at the end is {best}, the "
            f"worst {worst}."
        )
    views = [View(label, as_spec(_chart(tables, measure, axis))) for label, axis in axes]
    return Figure(
        key=key,
        title=title_of(measure),
        caption=caption,
        tables=tables,
        views=views,
        choice="against",
    )


def _x(axis: Axis) -> alt.X:
    import altair as alt

    return alt.X("x", type="quantitative", title=axis.title, axis=alt.Axis(tickCount=6))


def _y(measure: str, title: str, *, field: str | None = None) -> alt.Y:
    import altair as alt

    scale = alt.Scale(zero=False)
    if measure.endswith("consensus_distance"):
        scale = alt.Scale(zero=True)
    return alt.Y(field or measure, type="quantitative", title=title.lower(), scale=scale)


def _chart(tables: dict[str, Frame], measure: str, axis: Axis) -> Chart:
    import altair as alt

    table = tables["evaluations"]
    data = source("evaluations", table)
    x_value = f"datum.{axis.field} / {axis.per_unit!r}"
    title = title_of(measure)
    present = [series for series in _SERIES if (table["series"] == series).any()]
    color = alt.Color(
        "series:N",
        title=None,
        scale=alt.Scale(domain=present, range=[_SERIES[series] for series in present]),
    )
    name = "name" if "name" in table else "device"
    tooltip: list[Any] = [
        alt.Tooltip(f"{name}:N", title="device"),
        alt.Tooltip("round:Q"),
        alt.Tooltip("x:Q", title=axis.title, format=".4~g"),
        alt.Tooltip(f"{measure}:Q", format=".4~g"),
    ]
    layers: list[Chart] = []
    if "bands" in tables:
        layers += _bands(tables["bands"], measure, axis, title)
    base = (
        alt.Chart(data)
        .transform_filter(are_known(measure, axis.field))
        .transform_calculate(x=x_value)
    )
    order = alt.Order("evaluation", type="quantitative")
    lines = base.encode(
        **channels(x=_x(axis), y=_y(measure, title), color=color, tooltip=tooltip, order=order)
    )
    dots = {"filled": True, "size": 28}
    of_devices = lines.transform_filter("datum.model != 'consensus'")
    layers.append(
        of_devices.encode(**channels(detail="device:N")).mark_line(
            strokeWidth=1.2, opacity=0.75, point={**dots, "size": 18}
        )
    )
    averaged = lines.transform_filter("datum.model == 'consensus'")
    layers.append(averaged.mark_line(strokeWidth=2.6, point=dots))
    return alt.layer(*layers).properties(width="container", height=_HEIGHT)


def _bands(bands: Frame, measure: str, axis: Axis, title: str) -> list[Chart]:
    import altair as alt

    base = (
        alt.Chart(source("bands", bands))
        .transform_filter(are_known(axis.field))
        .transform_calculate(x=f"datum.{axis.field} / {axis.per_unit!r}")
    )
    layers = []
    single = bands["evaluation"].nunique() == 1
    for low, high, opacity in BANDS:
        chart = base.encode(**channels(x=_x(axis), y=_y(measure, title, field=low), y2=f"{high}:Q"))
        layers.append(
            chart.mark_rule(strokeWidth=14, opacity=opacity, color=GREY)
            if single
            else chart.mark_area(opacity=opacity, color=GREY)
        )
    return layers
