"""Figures of what devices hold, compute, send and spend: labels, memory, work, bytes, energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from edgesim.assembly.equipment import device_profiles
from edgesim.assembly.studied_scenario import studied_scenario
from edgesim.costs.round_work import gossip_work
from edgesim.errors import EdgesimError, count
from edgesim.report.figures.figure import (
    BLACK,
    BLUE,
    COLORS,
    GREEN,
    ORANGE,
    PINK,
    ROW_HEIGHT,
    Figure,
    View,
    as_spec,
    channels,
    rounded,
    source,
)
from edgesim.report.figures.time_figures import chosen_caption, device_axis, rows_of
from edgesim.report.frames import Chart, Frame
from edgesim.report.reported_run import ReportedRun
from edgesim.report.units import Axis, bytes_axis, count_axis, energy_axis, listed, percent
from edgesim.scenario.own_parts import own_parts
from edgesim.study.tables.units import with_unit

if TYPE_CHECKING:
    from edgesim.costs.layer_work import StepWork

_MIB = 2**20
_MEMORY = "memory_"
_KINDS = 16  # bars of kinds of devices
_ENERGY = {
    "computing": "energy_compute_j",
    "memory": "energy_memory_j",
    "radio": "energy_radio_j",
    "waiting": "energy_idle_j",
}
_COLOR = {"computing": BLUE, "memory": PINK, "radio": GREEN, "waiting": ORANGE}  # as of activities
_BYTES = {
    "values": "sent_value_bytes",
    "indices": "sent_index_bytes",
    "scales and headers": "sent_overhead_bytes",
    "sent again": "retransmitted_bytes",
}
_WORK = {
    "multiply-accumulates": (("macs_int8", "macs_16bit", "macs_fp32"), "MAC"),
    "other operations": (("elementwise_ops",), "operations"),
    "memory traffic": (("traffic_bytes",), "B"),
}
_WIDTHS = {
    "macs_int8": "8-bit",
    "macs_16bit": "16-bit",
    "macs_fp32": "32-bit",
    "elementwise_ops": "operations",
    "traffic_bytes": "bytes",
}


def label_table(run: ReportedRun) -> Frame | None:
    """Samples of each label on each device; None where devices hold no classes.

    The columns are `device`, `name`, `label`, `samples`.
    """
    import pandas as pd

    devices = run.run.devices
    if devices.empty or not len(devices["label_counts"].iloc[0]):
        return None
    counts = np.array(devices["label_counts"].tolist())
    num_devices, num_labels = counts.shape
    return pd.DataFrame(
        {
            "device": np.repeat(np.arange(num_devices), num_labels),
            "name": np.repeat(np.array(run.labels, dtype=object), num_labels),
            "label": np.tile(np.arange(num_labels), num_devices),
            "samples": counts.reshape(-1),
        }
    )


def label_skew(labels: Frame) -> np.ndarray:
    """How unlike the fleet's each device's labels are: total variation distance, from 0 to 1."""
    counts = labels.pivot_table(index="device", columns="label", values="samples").to_numpy(float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    whole = counts.sum(axis=0) / counts.sum()
    return np.asarray(np.abs(shares - whole).sum(axis=1) / 2)


def label_figure(run: ReportedRun, labels: Frame, devices: Frame) -> Figure:
    """Label distribution per device, after the paper's Fig. 2."""
    import altair as alt

    rows = rows_of(run, devices, ["label_skew"])
    names = [run.labels[device] for device in rows]
    shown = alt.FieldOneOfPredicate(field="name", oneOf=names)
    tall = len(rows) * ROW_HEIGHT
    chart = (
        alt.Chart(source("labels", labels))
        .transform_filter(shown)
        .mark_circle(color=BLUE, opacity=0.85)
        .encode(
            **channels(
                x=alt.X("label:O", title="label", axis=alt.Axis(grid=True, labelAngle=0)),
                y=device_axis(run, rows),
                size=alt.Size(
                    "samples:Q", scale=alt.Scale(range=[0, 320], zero=True), title="samples"
                ),
                tooltip=["name:N", "label:O", "samples:Q"],
            )
        )
        .properties(width="container", height=tall)
    )
    skew = devices["label_skew"]
    return Figure(
        key="labels",
        title="Which labels each device holds",
        caption="The area of a disc is the number of training samples. Label skew, the share of a "
        "device's samples that would have to change for the fleet's mix of labels, is "
        f"{skew.min():.2f} to {skew.max():.2f}."
        + chosen_caption(run, rows, "those with the most and the least label skew"),
        tables={"labels": labels},
        views=[View("", as_spec(chart))],
    )


def stacked_rows(table: Frame, axis: Axis, order: Sequence[str], parts: Sequence[str]) -> Chart:
    """Horizontal bars of parts end to end, a bar for each name.

    Args:
        table: `name`, `part`, and the column of the axis.
        axis: what the lengths are.
        order: names from top to bottom.
        parts: names of parts in their order.
    """
    import altair as alt

    present = [part for part in parts if part in set(table["part"])]
    colors = [_COLOR.get(p, COLORS[place % len(COLORS)]) for place, p in enumerate(present)]
    ranks = "".join(f"datum.part == {part!r} ? {i} : " for i, part in enumerate(present))
    return (
        alt.Chart(source("parts", table))
        .transform_calculate(
            amount=f"datum.{axis.field} / {axis.per_unit!r}", rank=f"{ranks}{len(present)}"
        )
        .mark_bar()
        .encode(
            **channels(
                y=alt.Y("name:N", title=None, sort=list(order)),
                x=alt.X("amount:Q", title=axis.title, stack="zero", axis=alt.Axis(tickCount=6)),
                color=alt.Color(
                    "part:N", title=None, scale=alt.Scale(domain=present, range=colors)
                ),
                order=alt.Order("rank:Q"),
                tooltip=[
                    "name:N",
                    "part:N",
                    alt.Tooltip("amount:Q", title=axis.title, format=".4~g"),
                ],
            )
        )
        .properties(width="container", height=max(len(order), 2) * ROW_HEIGHT)
    )


def _parts_of_devices(
    run: ReportedRun, sums: Frame, columns: Mapping[str, str], rows: Sequence[int], field: str
) -> Frame:
    """Parts of a sum by device; parts that are nothing everywhere are left out."""
    import pandas as pd

    names = [run.labels[device] for device in rows]
    parts = [
        pd.DataFrame({"name": names, "part": part, field: sums[column].reindex(rows).to_numpy()})
        for part, column in columns.items()
        if column in sums and sums[column].any()
    ]
    return pd.concat(parts, ignore_index=True).fillna(0)


def energy_figure(run: ReportedRun, devices: Frame) -> Figure | None:
    """Energy of each device by what it was spent on; None without a clock, or if none was."""
    if not run.has_clock or not devices["energy_j"].any():
        return None
    rows = rows_of(run, devices, ["energy_j"])
    sums = devices.set_index("device")
    table = rounded(_parts_of_devices(run, sums, _ENERGY, rows, "energy_j"))
    axis = energy_axis("energy_j", "energy", float(sums["energy_j"].max()))
    chart = stacked_rows(table, axis, [run.labels[d] for d in rows], list(_ENERGY))
    return Figure(
        key="energy",
        title="What each device spent its energy on",
        caption=f"Energy of {'the whole run' if run.is_finished else 'all rounds so far'}."
        + chosen_caption(run, rows, "those that spent the most and the least"),
        tables={"parts": table},
        views=[View("", as_spec(chart))],
    )


def bytes_figure(run: ReportedRun, devices: Frame) -> Figure | None:
    """Bytes that each device sent, by what they are; None if nothing was sent."""
    if not devices["sent_bytes"].any():
        return None
    rows = rows_of(run, devices, ["sent_bytes"])
    columns = [column for column in _BYTES.values() if column in run.rounds]
    sums = run.rounds.groupby("device")[columns].sum().reindex(range(run.num_devices)).fillna(0)
    table = _parts_of_devices(run, sums, _BYTES, rows, "bytes")
    table["bytes"] = table["bytes"].astype("int64")
    axis = bytes_axis("bytes", "sent", float(sums.sum(axis=1).max()))
    chart = stacked_rows(table, axis, [run.labels[d] for d in rows], list(_BYTES))
    return Figure(
        key="bytes",
        title="What each device sent",
        caption="Lengths of encoded messages, and of packets that links lost and that were sent "
        "again." + chosen_caption(run, rows, "those that sent the most and the least"),
        tables={"parts": table},
        views=[View("", as_spec(chart))],
    )


def memory_figure(run: ReportedRun) -> Figure | None:
    """Memory at the peak of a round by component, a bar for each kind of device."""
    import altair as alt
    import pandas as pd

    devices = run.run.devices
    if devices.empty:
        return None
    columns = [c for c in devices.columns if c.startswith(_MEMORY) and c != "memory_bytes"]
    parts = {c: c.removeprefix(_MEMORY).removesuffix("_bytes").replace("_", " ") for c in columns}
    profiles = device_profiles(run.scenario) if run.scenario else ()
    of_boards = [profile.memory_bytes for profile in profiles] or [0] * run.num_devices
    known = devices.assign(board_bytes=of_boards)
    keys = [*(["profile"] if "profile" in known else []), *columns, "board_bytes"]
    rows, bars, available = [], [], []
    for _, members in list(known.groupby(keys, sort=False))[:_KINDS]:
        first = members.iloc[0]
        bar = listed([run.labels[device] for device in members["device"]], 3)
        bar += f": {first['profile']}" if "profile" in known else ""
        bars.append(bar)
        available.append(int(first["board_bytes"]))
        rows += [(bar, part, int(first[column])) for column, part in parts.items()]
    table = pd.DataFrame(rows, columns=["name", "part", "bytes"])
    table = table[table["bytes"] > 0].reset_index(drop=True)
    axis = Axis("bytes", "memory (MiB)", _MIB)
    chart = stacked_rows(table, axis, bars, list(parts.values()))
    most = float(table.groupby("name")["bytes"].sum().max())
    caption = "Bytes held at the peak of a round, predicted from the model, by component."
    tables = {"parts": table}
    if any(available) and min(available) <= 4 * most:
        boards = pd.DataFrame({"name": bars, "board_bytes": available})
        tables["boards"] = boards
        ticks = (
            alt.Chart(source("boards", boards))
            .transform_filter(f"datum.board_bytes <= {4 * most!r}")
            .transform_calculate(amount=f"datum.board_bytes / {_MIB}")
            .mark_tick(color=BLACK, thickness=3, height=ROW_HEIGHT)
            .encode(**channels(y=alt.Y("name:N", title=None, sort=bars), x="amount:Q"))
        )
        chart = alt.layer(chart, ticks).properties(
            width="container", height=max(len(bars), 2) * ROW_HEIGHT
        )
        caption += " The black mark is the memory of the board."
    elif any(available):
        caption += f" The smallest board has {min(available) / _MIB:,.0f} MiB."
    return Figure(
        key="memory",
        title="What devices hold in memory",
        caption=caption,
        tables=tables,
        views=[View("", as_spec(chart))],
    )


def compute_figure(run: ReportedRun) -> Figure | None:
    """Work of a step and of an exchange, after the paper's Fig. 3; None if it can't be counted.

    Code that a run directory names is not run: it may be somebody else's, or another than the run's
    by now.
    """
    import pandas as pd

    if run.scenario is None or any(own_parts(run.scenario)):
        return None
    try:
        studied = studied_scenario(run.scenario)
    except EdgesimError:  # files of the data or the graph are not here any more
        return None
    step: StepWork = studied.model.step_work
    sent = run.rounds["messages_sent"]
    degree = round(sent[sent > 0].mean()) if sent.any() else 0
    works = {
        "forward pass": step.forward,
        "gradient at inputs": step.input_gradient,
        "gradient at weights": step.weight_gradient,
        "optimizer": studied.optimizer.work(studied.model.num_trainable),
        "gossip": gossip_work(studied.algorithm, degree, degree),
    }
    rows = [
        (name, _WIDTHS[column], kind, amount)
        for name, work in works.items()
        for kind, (columns, _) in _WORK.items()
        for column, amount in work.counts.items()
        if column in columns and amount
    ]
    table = pd.DataFrame(rows, columns=["name", "part", "kind", "amount_of_round"])
    views = []
    for kind, (columns, unit) in _WORK.items():
        own = table[table["kind"] == kind]
        if own.empty:
            continue
        most = float(own.groupby("name")["amount_of_round"].sum().max())
        axis = count_axis("amount_of_round", "a round", unit, most)
        shown = [name for name in works if name in set(own["name"])]
        chart = stacked_rows(table, axis, shown, [_WIDTHS[column] for column in columns])
        views.append(View(kind, as_spec(chart.transform_filter(f"datum.kind == {kind!r}"))))
    shares = [(run.rounds["loss"].notna().mean(), "have a step"), ((sent > 0).mean(), "send")]
    said = " and ".join(f"{percent(share)} {what}" for share, what in shares if share < 1)
    total = float(sum(run.rounds[column].sum() for column in _WORK["multiply-accumulates"][0]))
    return Figure(
        key="compute",
        title="What a round computes",
        caption="Work of a step on a full batch by pass, of the optimizer, and of gossip with "
        f"{count(degree, 'message')} sent and absorbed, counted from the model. "
        + (f"Of all rounds {said}. " if said else "")
        + f"The fleet's {'whole run' if run.is_finished else 'rounds so far'} took "
        f"{with_unit(total, 'MAC')}.",
        tables={"parts": table},
        views=views,
        choice="count",
    )
