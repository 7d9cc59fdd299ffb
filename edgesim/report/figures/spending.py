"""Figures of what was spent: charge of batteries, energy, bytes."""

from __future__ import annotations

import numpy as np

from edgesim.report.figures.figure import COLORS, Figure, View, as_spec, channels, rounded, source
from edgesim.report.reported_run import ReportedRun
from edgesim.report.units import energy_axis, time_axis

_POINTS = 300  # of a curve


def charge_figure(run: ReportedRun) -> Figure | None:
    """Charge left in batteries over time; None without batteries."""
    import altair as alt

    rounds = run.by_device
    if "charge_left_j" not in rounds or not rounds["charge_left_j"].notna().any():
        return None
    with_battery = rounds[rounds["charge_left_j"].notna()]
    last = with_battery.groupby("device")["charge_left_j"].last().sort_values(kind="stable")
    shown = list(last.index[: len(COLORS)])
    own = with_battery[with_battery["device"].isin(shown)]
    place, size = own.groupby("device").cumcount(), own.groupby("device")["round"].transform("size")
    keep = (place % np.ceil(size / _POINTS) == 0) | (place == size - 1)
    table = own.loc[keep, ["device", "round", "virtual_time_s", "charge_left_j"]].reset_index(
        drop=True
    )
    table.insert(1, "name", [run.labels[device] for device in table["device"]])
    table = rounded(table, 7)
    axis = time_axis("virtual_time_s", "virtual time", rounds["virtual_time_s"].max())
    energies = energy_axis("charge_left_j", "charge left", table["charge_left_j"].max())
    names = [run.labels[device] for device in shown]
    base = alt.Chart(source("charge", table)).transform_calculate(
        x=f"datum.virtual_time_s / {axis.per_unit!r}",
        y=f"datum.charge_left_j / {energies.per_unit!r}",
    )
    limits = [0.0, float(rounds["virtual_time_s"].max()) / axis.per_unit]
    chart = (
        base.mark_line(strokeWidth=2)
        .encode(
            **channels(
                x=alt.X("x:Q", title=axis.title, scale=alt.Scale(domain=limits, nice=False)),
                y=alt.Y("y:Q", title=energies.title, scale=alt.Scale(zero=True)),
                color=alt.Color(
                    "name:N",
                    title=None,
                    sort=names,
                    scale=alt.Scale(domain=names, range=list(COLORS[: len(names)])),
                ),
                tooltip=[
                    "name:N",
                    "round:Q",
                    alt.Tooltip("x:Q", title=axis.title, format=".4~g"),
                    alt.Tooltip("y:Q", title=energies.title, format=".4~g"),
                ],
            )
        )
        .properties(width="container", height=220)
    )
    ends = (
        base.transform_joinaggregate(last="max(round)", groupby=["name"])
        .transform_filter("datum.round == datum.last")
        .mark_point(filled=True, size=60)
        .encode(**channels(x="x:Q", y="y:Q", color=alt.Color("name:N", title=None)))
    )
    more = (
        "" if len(last) == len(shown) else f" Shown are the {len(shown)} emptiest of {len(last)}."
    )
    return Figure(
        key="charge",
        title="Charge of batteries over time",
        caption=f"A curve ends with the last round of its device.{more}",
        tables={"charge": table},
        views=[View("", as_spec(alt.layer(chart, ends).properties(width="container", height=220)))],
    )
