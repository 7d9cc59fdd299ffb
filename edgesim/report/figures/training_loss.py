"""Loss of each device on its own batches, as training goes on."""

from __future__ import annotations

import numpy as np

from edgesim.report.evaluations import MOST_LINES, quantile_bands
from edgesim.report.figures.figure import (
    BANDS,
    BLUE,
    COLORS,
    GREY,
    Figure,
    View,
    as_spec,
    channels,
    rounded,
    source,
)
from edgesim.report.frames import Chart, Frame
from edgesim.report.reported_run import ReportedRun
from edgesim.report.units import Axis, duration, time_axis

_POINTS = 200  # of a curve; each is a mean over as many rounds as it takes
_COLORED = 10  # devices that have a colour each
_FLEET = "mean of the fleet"
_HEIGHT = 260


def training_loss_figure(run: ReportedRun) -> Figure:
    """Curves of all devices, or of a large fleet their spread.

    At free pace devices have done unlike numbers of rounds by the same time, so a point is of a
    span of virtual time; else it is of a round, or of some.
    """
    is_by_time = run.is_free and run.has_clock
    means, span, said = _means_by_time(run) if is_by_time else _means_by_round(run)
    whole = _without_gaps(means, span) if is_by_time else means
    axes = _axes(run)
    keys = [axis.field for _, axis in axes]
    points = whole.groupby("point")
    fleet = points[[*keys, "loss"]].mean().assign(devices=points["device"].nunique()).reset_index()
    caption = "Mean loss of the batches that a device trained on, before each step."
    if said:
        caption += f" A point is the mean {said}."
    fewest, most = fleet["devices"].min(), fleet["devices"].max()
    if fewest < run.num_devices:
        of = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        caption += f" A point of the fleet is over {of} of {run.num_devices:,} devices"
        caption += ", each with its last loss until then." if is_by_time else "."
    tables = {"fleet": rounded(fleet)}
    if run.num_devices > MOST_LINES:
        at = fleet.set_index("point")[keys]
        bands = quantile_bands(whole, ["point"], ["loss"]).join(at, on="point")
        tables["bands"] = rounded(bands)
        last = means.sort_values("point").groupby("device").tail(1).sort_values(["loss", "device"])
        best, worst = (run.device(int(last["device"].iloc[place])) for place in (0, -1))
        caption += (
            f" Bands: the middle half and the middle four fifths of {run.num_devices:,} "
            f"devices, and all of them. Lowest at its own last point: {best}; highest: {worst}."
        )
    else:
        means.insert(1, "name", [run.labels[device] for device in means["device"]])
        tables["devices"] = rounded(means)
    views = [View(label, as_spec(_chart(run, tables, axis))) for label, axis in axes]
    return Figure(
        key="training-loss",
        title="Loss in training",
        caption=caption,
        tables=tables,
        views=views,
        choice="against" if len(views) > 1 else "",
    )


def _axes(run: ReportedRun) -> list[tuple[str, Axis]]:
    """Axes of the views, each with its label."""
    rounds = ("rounds", Axis("round", "rounds"))
    if not run.has_clock:
        return [rounds]
    longest_s = float(run.rounds["virtual_time_s"].max())
    time = ("virtual time", time_axis("virtual_time_s", "virtual time", longest_s))
    return [time] if run.is_free else [rounds, time]


def _means_by_round(run: ReportedRun) -> tuple[Frame, float, str]:
    """Mean losses of equal ranges of rounds, by device; the rounds of a range, and words for it."""
    rounds = run.rounds[run.rounds["loss"].notna()]
    per_point = max(1, int(np.ceil((rounds["round"].max() + 1) / _POINTS)))
    columns = ["round", "loss", *(["virtual_time_s"] if run.has_clock else [])]
    grouped = rounds.groupby(["device", rounds["round"].rename("point") // per_point])
    said = f"of {per_point:,} rounds" if per_point > 1 else ""
    return grouped[columns].mean().reset_index(), per_point, said


def _means_by_time(run: ReportedRun) -> tuple[Frame, float, str]:
    """Mean losses of equal spans of virtual time, by device; seconds of a span, and words for it.

    A span is about as long as a round of half of the devices. A loss lies in its middle.
    """
    rounds = run.by_device[run.by_device["loss"].notna()]
    end_s = float(rounds["virtual_time_s"].max())
    lengths_s = rounds.groupby("device")["virtual_time_s"].diff()
    length_s = float(lengths_s.groupby(rounds["device"]).median().median())  # NaN: single rounds
    wanted = end_s / length_s if length_s > 0 else 1
    num_points = int(np.clip(wanted, 1, _POINTS))
    span_s = end_s / num_points
    point = np.minimum(rounds["virtual_time_s"] // span_s, num_points - 1).astype("int64")
    means = rounds.groupby(["device", point.rename("point")])[["round", "loss"]].mean()
    means = means.reset_index()
    means["virtual_time_s"] = (means["point"] + 0.5) * span_s
    return means, span_s, f"over {duration(span_s)} of virtual time"


def _without_gaps(means: Frame, span_s: float) -> Frame:
    """Means in which a device keeps its last loss in spans without a round, until its last one.

    Else the mean of the fleet would jump with the devices that happen to end a round in a span.
    """
    import pandas as pd

    parts = []
    for device, own in means.groupby("device"):
        by_point = own.set_index("point")
        every = range(by_point.index[0], by_point.index[-1] + 1)
        parts.append(by_point.reindex(every).ffill().assign(device=device).reset_index())
    found = pd.concat(parts, ignore_index=True)
    return found.assign(virtual_time_s=(found["point"] + 0.5) * span_s)


def _chart(run: ReportedRun, tables: dict[str, Frame], axis: Axis) -> Chart:
    import altair as alt

    def base(name: str) -> Chart:
        return alt.Chart(source(name, tables[name])).transform_calculate(
            x=f"datum.{axis.field} / {axis.per_unit!r}"
        )

    x = alt.X("x:Q", title=axis.title, axis=alt.Axis(tickCount=6))

    def y(field: str) -> Chart:
        return alt.Y(f"{field}:Q", title="loss", scale=alt.Scale(zero=False))

    layers = []
    names = run.labels if "devices" in tables and run.num_devices <= _COLORED else []
    domain, colors = [*names, _FLEET], [*COLORS[1 : len(names) + 1], BLUE]
    if len(names) >= len(COLORS):
        colors = [*COLORS[1:], GREY, BLUE]
    scale = alt.Scale(domain=domain, range=colors)
    if "devices" in tables:
        lines = base("devices").mark_line(strokeWidth=1, opacity=0.75)
        layers.append(
            lines.encode(
                **channels(
                    x=x,
                    y=y("loss"),
                    detail="name:N",
                    color=alt.Color("name:N", title=None, scale=scale)
                    if names
                    else alt.value(GREY),
                    tooltip=["name:N", "round:Q", alt.Tooltip("loss:Q", format=".4~g")],
                )
            )
        )
    else:
        for low, high, opacity in BANDS:
            band = base("bands").mark_area(opacity=opacity, color=GREY)
            layers.append(band.encode(**channels(x=x, y=y(low), y2=f"{high}:Q")))
    fleet = base("fleet").transform_calculate(series=repr(_FLEET)).mark_line(strokeWidth=2.4)
    layers.append(
        fleet.encode(
            **channels(
                x=x,
                y=y("loss"),
                color=alt.Color("series:N", title=None, scale=scale),
                tooltip=["round:Q", "devices:Q", alt.Tooltip("loss:Q", format=".4~g")],
            )
        )
    )
    return alt.layer(*layers).properties(width="container", height=_HEIGHT)
