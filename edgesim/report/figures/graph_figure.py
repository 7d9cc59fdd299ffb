"""The graph of a fleet, from the messages that were sent, and how it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from edgesim.report.figures.figure import (
    BLACK,
    GREEN,
    GREY,
    Figure,
    View,
    as_spec,
    channels,
    rounded,
    source,
)
from edgesim.report.figures.layout import Places, even_layout, spring_layout
from edgesim.report.frames import Chart, Frame
from edgesim.report.reported_run import ReportedRun
from edgesim.report.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_STEPS = 40  # positions of the slider
_MOST_ROWS = 12_000  # edges of all steps together
_MOST_EDGES = 3_000  # that are drawn at once
_NAMED = 48  # devices that have their names beside them
_EVEN_LAYOUT = 60  # devices up to which distances of the drawing are those of the graph
_HEIGHT = 420


@dataclass(frozen=True, slots=True)
class _Edges:
    """Edges by step.

    Attributes:
        table: `step`, `sender`, `receiver`, `bytes`, `messages`.
        labels: what each step is called.
        left_out: graphs between these that no step shows.
    """

    table: Frame
    labels: Sequence[str]
    left_out: int = 0


def graph_figure(run: ReportedRun, devices: Frame) -> Figure | None:
    """The graph with device names, coloured by figures of devices; None if nothing was sent.

    Args:
        run: the run.
        devices: its table of `device_table`, with `label_skew` where labels are known.
    """
    if run.messages.empty:
        return None
    edges = _edges(run)
    total = int(edges.table.groupby("step").size().max())
    drawn, caption = edges.table, "The dot on a link is at the end that receives."
    if total > _MOST_EDGES:
        order = drawn.sort_values(["step", "bytes"], ascending=[True, False], kind="stable")
        drawn = order.groupby("step").head(_MOST_EDGES)
        caption += f" Of {total:,} links the {_MOST_EDGES:,} with the most bytes are drawn."
    places = _layout(run, edges.table)
    columns = {
        "accuracy": ("accuracy", "accuracy", 1.0),
        "bytes sent": ("sent_bytes", "sent (MB)", 1e6),
        "label skew": ("label_skew", "label skew", 1.0),
    }
    known = {
        label: entry
        for label, entry in columns.items()
        if entry[0] in devices and devices[entry[0]].notna().any()
    }
    nodes = devices[["device", "name", *(entry[0] for entry in known.values())]].copy()
    nodes.insert(2, "x", places[:, 0])
    nodes.insert(3, "y", places[:, 1])
    table = drawn.assign(
        **{
            f"{end}{axis}": places[drawn[who], place]
            for end, who in (("from_", "sender"), ("to_", "receiver"))
            for place, axis in enumerate("xy")
        }
    )
    names = np.array(run.labels, dtype=object)
    table.insert(1, "graph", [edges.labels[step] for step in table["step"]])
    table.insert(3, "sender_name", names[table["sender"]])
    table.insert(5, "receiver_name", names[table["receiver"]])
    tables = {
        "devices": rounded(nodes.reset_index(drop=True)),
        "links": rounded(table.reset_index(drop=True), 4),
    }
    changes = len(edges.labels) > 1
    if changes:
        what = "virtual time" if run.is_free else "round"
        caption += f" It changes: the slider goes through the run by {what}. A step has the bytes "
        caption += "of the whole time in which its graph held."
        if edges.left_out:
            shown = len(edges.labels)
            caption += f" It has {shown} of {shown + edges.left_out:,} graphs, evenly chosen."
    views = [
        View(label, as_spec(_chart(tables, entry, edges.labels, with_names=len(nodes) <= _NAMED)))
        for label, entry in known.items()
    ]
    return Figure(
        key="graph",
        title="Who sends to whom",
        caption=caption,
        tables=tables,
        views=views,
        choice="devices coloured by",
    )


def _edges(run: ReportedRun) -> _Edges:
    """Edges of each different graph; of one that never changes a single step."""
    messages = run.exchanges
    if run.is_free:
        end_s = float(messages["departure_time_s"].max())
        edges_s = np.linspace(0.0, end_s, _MOST_STEPS // 2 + 1)
        step = np.clip(np.searchsorted(edges_s, messages["departure_time_s"], "right") - 1, 0, None)
        step = np.minimum(step, len(edges_s) - 2)
        times = [duration(time_s) for time_s in edges_s]
        starts, ends = times[:-1], times[1:]
    else:
        if not run.is_finished:
            messages = _of_whole_rounds(messages, run.num_devices)
        rounds = np.unique(messages["round"])
        step = np.searchsorted(rounds, messages["round"])
        starts = ends = [f"{r:,}" for r in rounds]
    table = (
        messages.assign(step=step)
        .groupby(["step", "sender", "receiver"])["bytes"]
        .agg(["sum", "size"])
        .reset_index()
        .set_axis(["step", "sender", "receiver", "bytes", "messages"], axis=1)
    )
    marks = np.random.default_rng(0).integers(2**62, size=run.num_devices**2)
    signature = (
        table.assign(mark=marks[table["sender"] * run.num_devices + table["receiver"]])
        .groupby("step")["mark"]
        .sum()
    )
    if signature.nunique() == 1:
        whole = table.groupby(["sender", "receiver"], as_index=False)[["bytes", "messages"]].sum()
        whole.insert(0, "step", 0)
        return _Edges(whole, ["all rounds"])
    # Steps in a row with the same graph become one.
    graph = signature.ne(signature.shift()).cumsum() - 1
    spans = [(steps[0], steps[-1]) for steps in graph.groupby(graph).groups.values()]
    table = (
        table.assign(step=table["step"].map(graph))
        .groupby(["step", "sender", "receiver"], as_index=False)[["bytes", "messages"]]
        .sum()
    )
    per_step = max(1, int(table.groupby("step").size().median()))
    most = max(2, min(_MOST_STEPS, _MOST_ROWS // per_step))
    shown = np.unique(np.linspace(0, len(spans) - 1, min(most, len(spans))).round().astype(int))
    kept = table[table["step"].isin(shown)]
    kept = kept.assign(step=kept["step"].map({step: place for place, step in enumerate(shown)}))
    labels = [_span(starts[spans[g][0]], ends[spans[g][1]], run.is_free) for g in shown]
    return _Edges(kept, labels, len(spans) - len(shown))


def _span(start: str, end: str, is_free: bool) -> str:
    """When a graph was there: times at free pace, else rounds."""
    if is_free:
        return f"{start} to {end}"
    return f"round {start}" if start == end else f"rounds {start} to {end}"


def _of_whole_rounds(messages: Frame, num_devices: int) -> Frame:
    """The messages of an interrupted run without those of rounds that some devices had begun.

    In lockstep devices are less than so many exchanges apart as there are devices. One that is
    farther behind has left.
    """
    exchange = messages["round"].rank(method="dense")
    last = exchange.groupby(messages["sender"]).max()
    return messages[exchange <= last[last > last.max() - num_devices].min()]


def _layout(run: ReportedRun, edges: Frame) -> Places:
    """Places of devices in the drawing, shape (devices, 2)."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(run.num_devices))
    graph.add_edges_from(zip(edges["sender"].tolist(), edges["receiver"].tolist(), strict=True))
    if run.num_devices <= _EVEN_LAYOUT and nx.is_connected(graph):
        return even_layout(graph)
    return spring_layout(graph)


def _chart(
    tables: Mapping[str, Frame],
    colored_by: tuple[str, str, float],
    labels: Sequence[str],
    *,
    with_names: bool,
) -> Chart:
    import altair as alt

    column, title, per_unit = colored_by
    ranges = {axis: alt.Scale(domain=_limits(tables["devices"][axis]), nice=False) for axis in "xy"}

    def position(prefix: str = "", end: str = "") -> dict[str, Chart]:
        return {
            f"{axis}{end}": (
                f"{prefix}{axis}:Q"
                if end
                else channel(f"{prefix}{axis}:Q", axis=None, scale=ranges[axis])
            )
            for axis, channel in (("x", alt.X), ("y", alt.Y))
        }

    links = alt.Chart(source("links", tables["links"]))
    changes = len(labels) > 1
    params = []
    if changes:
        slider = alt.binding_range(min=0, max=len(labels) - 1, step=1, name="graph ")
        step = alt.param(name="step", value=0, bind=slider)
        params.append(step)
        links = links.transform_filter("datum.step == step")
    tooltip = [
        alt.Tooltip("sender_name:N", title="from"),
        alt.Tooltip("receiver_name:N", title="to"),
        "messages:Q",
        alt.Tooltip("bytes:Q", format=",.3~s"),
    ]
    many = len(tables["links"]) / len(labels) > 300
    width = alt.Size("bytes:Q", scale=alt.Scale(range=[0.6, 3.5], zero=True), legend=None)
    lines = links.mark_rule(color=GREY, opacity=0.35 if many else 0.8).encode(
        **channels(**position("from_"), **position("to_", "2"), size=width, tooltip=tooltip)
    )
    layers = [lines]
    if not many:
        layers.append(
            links.transform_calculate(
                end_x="datum.from_x + 0.86 * (datum.to_x - datum.from_x)",
                end_y="datum.from_y + 0.86 * (datum.to_y - datum.from_y)",
            )
            .mark_point(filled=True, size=26, color="#666", opacity=1)
            .encode(**channels(**position("end_"), tooltip=tooltip))
        )
    devices = alt.Chart(source("devices", tables["devices"])).transform_calculate(
        shade=f"datum.{column} / {per_unit!r}"
    )
    unknown = devices.transform_filter(f"!isValid(datum.{column})")
    layers.append(
        unknown.mark_point(size=200 if with_names else 60, stroke="#777", strokeDash=[3, 2]).encode(
            **channels(**position(), tooltip=["name:N"])
        )
    )
    known = devices.transform_filter(f"isValid(datum.{column})")
    layers.append(
        known.mark_point(
            filled=True, size=300 if with_names else 60, stroke="#333", strokeWidth=0.8, opacity=1
        ).encode(
            **channels(
                **position(),
                color=alt.Color(
                    "shade:Q",
                    title=title,
                    scale=alt.Scale(scheme="viridis", reverse=column != "accuracy"),
                    legend=alt.Legend(tickCount=3, gradientLength=200, padding=12),
                ),
                tooltip=["name:N", alt.Tooltip("shade:Q", title=title, format=".4~g")],
            )
        )
    )
    if with_names:
        layers.append(
            devices.mark_text(dy=-17, fontSize=12, color=BLACK, fontWeight="bold").encode(
                **channels(**position(), text="name:N")
            )
        )
    if changes:
        layers.append(
            links.transform_window(place="row_number()")
            .transform_filter("datum.place == 1")
            .mark_text(align="left", fontSize=13, color=GREEN, fontWeight="bold")
            .encode(**channels(x=alt.value(4), y=alt.value(8), text="graph:N"))
        )
    chart = alt.layer(*layers).properties(width="container", height=_HEIGHT)
    return chart.add_params(*params) if params else chart


def _limits(places: Frame) -> list[float]:
    """Ends of an axis, with room for names."""
    low, high = float(places.min()), float(places.max())
    room = 0.12 * (high - low) or 1.0
    return [low - room, high + room]
