"""Loss of each device on its own batches, as training goes on."""

from __future__ import annotations

import numpy as np

from edgesim.report.evaluations import MOST_LINES, quantile_bands
from edgesim.report.figure import (
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
from edgesim.report.runs import ReportedRun
from edgesim.report.units import Axis, time_axis

_POINTS = 200  # of a curve; each is a mean over as many rounds as it takes
_COLORED = 10  # devices that have a colour each
_FLEET = "mean of the fleet"
_HEIGHT = 260


def training_loss_figure(run: ReportedRun) -> Figure:
    """Curves of all devices, or of a large fleet their spread."""
    means, per_point = _means(run)
    axes = [("rounds", Axis("round", "rounds"))]
    if run.has_clock:
        longest_s = float(run.rounds["virtual_time_s"].max())
        axes.append(("virtual time", time_axis("virtual_time_s", "virtual time", longest_s)))
    keys = [axis.field for _, axis in axes]
    fleet = means.groupby("point")[[*keys, "loss"]].mean().reset_index()
    caption = "Mean loss of the batches that a device trained on, before each step."
    if per_point > 1:
        caption += f" A point is the mean of {per_point:,} rounds."
    tables = {"fleet": rounded(fleet)}
    if run.num_devices > MOST_LINES:
        at = fleet.set_index("point")[keys]
        bands = quantile_bands(means, ["point"], ["loss"]).join(at, on="point")
        tables["bands"] = rounded(bands)
        last = means[means["point"] == means["point"].max()].sort_values(["loss", "device"])
        best, worst = (run.device(int(last["device"].iloc[place])) for place in (0, -1))
        caption += (
            f" Bands: the middle half and the middle four fifths of {run.num_devices:,} "
            f"devices, and all of them. Lowest at the end: {best}; highest: {worst}."
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


def _means(run: ReportedRun) -> tuple[Frame, int]:
    """Mean losses of equal ranges of rounds, by device, and the number of rounds in a range."""
    rounds = run.rounds[run.rounds["loss"].notna()]
    per_point = max(1, int(np.ceil((rounds["round"].max() + 1) / _POINTS)))
    columns = ["round", "loss", *(["virtual_time_s"] if run.has_clock else [])]
    grouped = rounds.groupby(["device", rounds["round"].rename("point") // per_point])
    return grouped[columns].mean().reset_index(), per_point


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
        for low, high, opacity in (
            ("lowest", "highest", 0.12),
            ("p10", "p90", 0.2),
            ("p25", "p75", 0.3),
        ):
            band = base("bands").mark_area(opacity=opacity, color=GREY)
            layers.append(band.encode(**channels(x=x, y=y(low), y2=f"{high}:Q")))
    fleet = base("fleet").transform_calculate(series=repr(_FLEET)).mark_line(strokeWidth=2.4)
    layers.append(
        fleet.encode(
            **channels(
                x=x,
                y=y("loss"),
                color=alt.Color("series:N", title=None, scale=scale),
                tooltip=["round:Q", alt.Tooltip("loss:Q", format=".4~g")],
            )
        )
    )
    return alt.layer(*layers).properties(width="container", height=_HEIGHT)
