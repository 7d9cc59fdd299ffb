"""Figures of time: what the fleet did when, who waited for whom, how batteries ran down."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from edgesim.report.activity import (
    ABSENT,
    ASLEEP,
    AWAY,
    COMPUTING,
    GONE,
    MOST_SLEEPS,
    SENDING,
    WAITING,
    away_name,
    longest_window_s,
    segments,
    shares_over_time,
    spans_of_rounds,
    windows,
)
from edgesim.report.figures.figure import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    ROW_HEIGHT,
    Figure,
    View,
    as_spec,
    channels,
    rounded,
    source,
)
from edgesim.report.frames import Chart, Frame
from edgesim.report.reported_run import ReportedRun
from edgesim.report.units import duration, listed, time_axis
from edgesim.report.waiting import waits

if TYPE_CHECKING:
    import altair as alt


MOST_ROWS = 32  # devices that have a row each in a figure
_BINS = 120
_SOME_ROUNDS = "Some rounds from what happened."
_SHORT_PARTS = f"Parts of the run, so short that a device sleeps some {MOST_SLEEPS} times at most."
_COLOR = {
    COMPUTING: BLUE,
    WAITING: ORANGE,
    SENDING: GREEN,
    ASLEEP: "#c9c9c9",
    AWAY: "#a0a0a0",
    ABSENT: "#777777",
    GONE: "#ededed",
}


def time_figures(run: ReportedRun, devices: Frame) -> list[Figure]:
    """All figures of a run's virtual time; none where devices have no clock.

    Args:
        run: the run.
        devices: its table of `device_table`.
    """
    if not run.has_clock:
        return []
    spans = spans_of_rounds(run)
    figures = [_time_of_devices(run, devices), _time_of_fleet(run, spans)]
    figures += [_timeline(run, spans, devices)]
    figures += _waits(run)
    return figures


def rows_of(run: ReportedRun, devices: Frame, order: Sequence[str]) -> list[int]:
    """Devices that get a row of their own: all, or of a large fleet those at both ends.

    Args:
        run: the run.
        devices: its table of `device_table`.
        order: columns; devices with the smallest and the largest values of each are chosen.
    """
    if run.num_devices <= MOST_ROWS:
        return list(range(run.num_devices))
    share = MOST_ROWS // (2 * len(order))
    chosen: list[int] = []
    for column in order:
        ranked = devices.dropna(subset=[column]).sort_values([column, "device"])["device"]
        chosen += [*ranked.tail(share)[::-1], *ranked.head(share)]
    return list(dict.fromkeys(map(int, chosen)))


def color_of(names: Sequence[str]) -> alt.Color:
    """Colour of the column `activity` or the like, with a legend of the names that occur."""
    import altair as alt

    shown = [name for name in _COLOR if name in set(names)]
    scale = alt.Scale(domain=shown, range=[_COLOR[name] for name in shown])
    return alt.Color("activity:N", title=None, scale=scale)


def chosen_caption(run: ReportedRun, rows: Sequence[int], why: str) -> str:
    """A sentence that says which devices of a large fleet are shown."""
    if len(rows) == run.num_devices:
        return ""
    return f" Shown are {len(rows)} of {run.num_devices:,} devices: {why}."


def device_axis(run: ReportedRun, rows: Sequence[int]) -> alt.Y:
    """Devices from top to bottom, by name."""
    import altair as alt

    return alt.Y("name:N", title=None, sort=[run.labels[device] for device in rows])


def _time_of_devices(run: ReportedRun, devices: Frame) -> Figure:
    import altair as alt
    import pandas as pd

    away = away_name(run)
    columns = {COMPUTING: "virtual_compute_s", WAITING: "virtual_wait_s", away: "asleep_s"}
    rows = rows_of(run, devices, ["virtual_compute_s", "virtual_wait_s"])
    table = rounded(
        pd.concat(
            [
                pd.DataFrame(
                    {"name": devices["name"], "activity": activity, "seconds": devices[column]}
                ).iloc[rows]
                for activity, column in columns.items()
                if devices[column].any()
            ],
            ignore_index=True,
        )
    )
    axis = time_axis("seconds", "virtual time", devices["virtual_time_s"].max())
    bars = (
        alt.Chart(source("times", table))
        .transform_calculate(amount=f"datum.seconds / {axis.per_unit!r}")
        .mark_bar()
        .encode(
            **channels(
                y=device_axis(run, rows),
                x=alt.X("amount:Q", title=axis.title, stack="zero"),
                color=color_of(list(table["activity"])),
                order=alt.Order("activity:N", sort="ascending"),
                tooltip=[
                    "name:N",
                    "activity:N",
                    alt.Tooltip("amount:Q", title=axis.title, format=".4~g"),
                ],
            )
        )
    )
    layers: list[Any] = [bars]
    tables = {"times": table}
    caption = "How each device spent its virtual time."
    if "radio_busy_s" in devices:
        radio = rounded(
            devices.iloc[rows][["name", "radio_busy_s"]].fillna(0.0).reset_index(drop=True)
        )
        tables["radio"] = radio
        layers.append(
            alt.Chart(source("radio", radio))
            .transform_calculate(amount=f"datum.radio_busy_s / {axis.per_unit!r}")
            .mark_tick(color=BLACK, thickness=2, height=ROW_HEIGHT - 4)
            .encode(
                **channels(
                    y=device_axis(run, rows),
                    x="amount:Q",
                    tooltip=[
                        "name:N",
                        alt.Tooltip("amount:Q", title=f"radio sends, {axis.title}", format=".4~g"),
                    ],
                )
            )
        )
        caption += " The black tick is how long its radio sent, beside all that."
    caption += chosen_caption(run, rows, "those that compute and wait the most and the least")
    chart = alt.layer(*layers).properties(width="container", height=ROW_HEIGHT * len(rows))
    return Figure(
        key="time-of-devices",
        title="Where the time of each device goes",
        caption=caption,
        tables=tables,
        views=[View("", as_spec(chart))],
    )


def _time_of_fleet(run: ReportedRun, spans: Frame) -> Figure:
    import altair as alt

    table = rounded(shares_over_time(run, spans, _BINS))
    axis = time_axis("time_s", "virtual time", spans["end_s"].max())
    chart = (
        alt.Chart(source("shares", table))
        .transform_calculate(x=f"datum.time_s / {axis.per_unit!r}")
        .mark_area(interpolate="step")
        .encode(
            **channels(
                x=alt.X("x:Q", title=axis.title, scale=alt.Scale(nice=False)),
                y=alt.Y(
                    "share:Q",
                    stack="zero",
                    title="share of devices",
                    scale=alt.Scale(domain=[0, 1]),
                    axis=alt.Axis(format="%"),
                ),
                color=color_of(list(table["activity"])),
                tooltip=[
                    "activity:N",
                    alt.Tooltip("x:Q", title=axis.title, format=".4~g"),
                    alt.Tooltip("share:Q", format=".1%"),
                ],
            )
        )
        .properties(width="container", height=180)
    )
    return Figure(
        key="time-of-fleet",
        title="What the fleet does over time",
        caption="Share of the devices' time by activity. A device is gone after its last round.",
        tables={"shares": table},
        views=[View("", as_spec(chart))],
    )


def _timeline(run: ReportedRun, spans: Frame, devices: Frame) -> Figure:
    rows = rows_of(run, devices, ["virtual_compute_s", "virtual_wait_s"])[:MOST_ROWS]
    windows_s = windows(spans, rows, longest_window_s(run, rows))
    parts: list[Frame] = []
    for label, window in windows_s.items():
        part = segments(run, spans, window, rows)
        part.insert(0, "part", label)
        parts.append(part)
    table = _joined(parts)
    table.insert(2, "name", [run.labels[device] for device in table["device"]])
    table["length_s"] = table["end_s"] - table["start_s"]
    table = rounded(table, 9)
    views = [
        View(label, as_spec(_timeline_chart(run, table, label, rows)))
        for label in dict.fromkeys(table["part"])
    ]
    is_whole = windows_s == windows(spans, rows, inf)
    return Figure(
        key="timeline",
        title="Who computes, waits, sends and sleeps when",
        caption=(_SOME_ROUNDS if is_whole else _SHORT_PARTS)
        + " The thick bar is the processor: it computes, or waits for the messages of its round. "
        "The thin bar below is the radio while it sends."
        + _back_caption(run)
        + chosen_caption(run, rows, "those that compute and wait the most and the least"),
        tables={"timeline": table},
        views=views,
        choice="part of the run",
    )


def _back_caption(run: ReportedRun) -> str:
    """What is not to be expected of devices that come back in lockstep."""
    churn = run.settings["fleet"].get("churn") or {}
    if run.is_free or not any(churn.get(key) for key in ("absent", "joins", "random")):
        return ""
    return (
        " The step and the messages of a device that joins or comes back count as done when the "
        "others begin the round: they stand before its absence, which ends with the first message."
    )


def _joined(parts: Sequence[Frame]) -> Frame:
    import pandas as pd

    return pd.concat(parts, ignore_index=True)


def _timeline_chart(run: ReportedRun, table: Frame, part: str, rows: Sequence[int]) -> Chart:
    import altair as alt

    own = table[table["part"] == part]
    first_s, last_s = own["start_s"].min(), own["end_s"].max()
    # Digits of late moments would hide short spans: the unit is that of the window's length.
    axis = time_axis("start_s", "virtual time", last_s - first_s)
    base = (
        alt.Chart(source("timeline", table))
        .transform_filter(f"datum.part == {part!r}")
        .transform_calculate(
            from_x=f"datum.start_s / {axis.per_unit!r}",
            until_x=f"datum.end_s / {axis.per_unit!r}",
            length=f"datum.length_s / {axis.per_unit!r}",
        )
    )
    scale = alt.Scale(domain=[first_s / axis.per_unit, last_s / axis.per_unit], nice=False)
    unit = axis.title[axis.title.index("(") :]
    shared = {
        "y": device_axis(run, rows),
        "x": alt.X("from_x:Q", title=axis.title, scale=scale),
        "x2": "until_x:Q",
        "color": color_of(list(own["activity"])),
        "tooltip": [
            "name:N",
            "activity:N",
            alt.Tooltip("peer:N", title="for or to"),
            "round:N",
            alt.Tooltip("from_x:Q", title=f"from {unit}", format=".6~g"),
            alt.Tooltip("length:Q", title=f"for {unit}", format=".4~g"),
        ],
    }
    processor = base.transform_filter("datum.activity != 'sending'").mark_bar(
        height=12, yOffset=-4, stroke="white", strokeWidth=0.5
    )
    radio = base.transform_filter("datum.activity == 'sending'").mark_bar(
        height=5, yOffset=6, stroke="white", strokeWidth=0.5
    )
    return alt.layer(
        processor.encode(**channels(**shared)), radio.encode(**channels(**shared))
    ).properties(width="container", height=(ROW_HEIGHT + 6) * len(rows))


def _waits(run: ReportedRun) -> list[Figure]:
    """Who waited for whom: a matrix, or of a large fleet those that were waited for the most."""
    table = waits(run)
    if table is None or table.empty:
        return []
    labels = np.array(run.labels, dtype=object)
    table["name"], table["waited_for_name"] = labels[table["device"]], labels[table["waited_for"]]
    table = rounded(table)
    caused = table.groupby("waited_for_name")["waited_s"].sum().sort_values(ascending=False).head(3)
    most = [f"{name} ({duration(seconds)})" for name, seconds in caused.items()]
    caption = f"Others waited longest for {listed(most)}."
    if run.settings.get("topology", {}).get("kind") == "trace" and not run.is_free:
        caption += " Waits until the seconds of a round on the contact trace are over are left out."
    if run.num_devices <= MOST_ROWS:
        return [_wait_matrix(run, table, caption)]
    return [_most_waited_for(table, caption)]


def _wait_matrix(run: ReportedRun, table: Frame, caption: str) -> Figure:
    import altair as alt

    axis = time_axis("waited_s", "waited", table["waited_s"].max())
    base = alt.Chart(source("waits", table)).transform_calculate(
        amount=f"datum.waited_s / {axis.per_unit!r}"
    )
    rows = range(run.num_devices)
    position = {
        "y": device_axis(run, rows).title("who waited"),
        "x": alt.X("waited_for_name:N", title="for whom", sort=run.labels),
    }
    tooltip = [
        alt.Tooltip("name:N", title="who waited"),
        alt.Tooltip("waited_for_name:N", title="for whom"),
        alt.Tooltip("amount:Q", title=axis.title, format=".4~g"),
        alt.Tooltip("times:Q", title="rounds"),
    ]
    shade = alt.Color("amount:Q", title=axis.title, scale=alt.Scale(scheme="oranges", domainMin=0))
    cells = base.mark_rect(stroke="white").encode(
        **channels(**position, color=shade, tooltip=tooltip)
    )
    most = float(table["waited_s"].max()) / axis.per_unit
    texts = base.mark_text(fontSize=11).encode(
        **channels(
            **position,
            text=alt.Text("amount:Q", format=".3~g"),
            color=alt.condition(
                f"datum.amount > {0.6 * most!r}", alt.value("white"), alt.value("#222")
            ),
        )
    )
    layers = [cells, texts] if run.num_devices <= 12 else [cells]
    chart = alt.layer(*layers).properties(width="container", height=(ROW_HEIGHT + 4) * len(rows))
    return Figure(
        key="waits",
        title="Who waits for whom",
        caption=f"{caption} A wait counts for the sender whose message ended it.",
        tables={"waits": table},
        views=[View("", as_spec(chart))],
    )


def _most_waited_for(table: Frame, caption: str) -> Figure:
    import altair as alt

    sums = (
        table.groupby("waited_for_name", as_index=False)
        .agg(waited_s=("waited_s", "sum"), by_devices=("device", "nunique"))
        .sort_values("waited_s", ascending=False, ignore_index=True)
    )
    axis = time_axis("waited_s", "others waited for it", sums["waited_s"].max())
    first = sums.head(MOST_ROWS)
    chart = (
        alt.Chart(source("waits", sums))
        .transform_calculate(amount=f"datum.waited_s / {axis.per_unit!r}")
        .transform_filter(f"datum.waited_s >= {float(first['waited_s'].min())!r}")
        .mark_bar(color=ORANGE)
        .encode(
            **channels(
                y=alt.Y("waited_for_name:N", title=None, sort=list(first["waited_for_name"])),
                x=alt.X("amount:Q", title=axis.title),
                tooltip=[
                    alt.Tooltip("waited_for_name:N", title="device"),
                    alt.Tooltip("amount:Q", title=axis.title, format=".4~g"),
                    alt.Tooltip("by_devices:Q", title="by so many devices"),
                ],
            )
        )
        .properties(width="container", height=ROW_HEIGHT * len(first))
    )
    return Figure(
        key="waits",
        title="Whom others wait for",
        caption=f"{caption} A wait counts for the sender whose message ended it. Shown are the "
        f"{len(first)} that others waited for the most.",
        tables={"waits": sums},
        views=[View("", as_spec(chart))],
    )
