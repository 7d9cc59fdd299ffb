"""Figures of one model in fp32 against 8 bits, the first two after the paper's Fig. 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgesim.assembly.message_costs import MessageCosts
from edgesim.costs.memory_table import MemoryTable
from edgesim.hardware.energy_tables import ENERGY_TABLES, HOROWITZ_45NM
from edgesim.study.comparison import (
    WEIGHT_GRADIENTS,
    GossipRow,
    Precision,
    PrecisionComparison,
    Side,
)
from edgesim.study.energy_costs import silicon_energy
from edgesim.study.figures.charts import (
    PRECISION_COLORS,
    Picture,
    as_picture,
    drawing,
    legend_below,
    stacked_bars,
    write_behind,
)
from edgesim.study.own_gossip import DENSE
from edgesim.study.tables.comparison_tables import subject_line
from edgesim.study.tables.ratio import times
from edgesim.study.tables.units import MIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MILLI = 1e3
_CHOCO_DENSE = f"choco, {DENSE}"
_CONVENTIONS: dict[Precision, str] = {"fp32": "reference", "int8": "paper_8bit"}
_ARITHMETICS = ("fp32", *(f"int8, weight gradient {kind}" for kind in WEIGHT_GRADIENTS))
_CODE_BITS, _WEIGHT_GRADIENT_BITS = (32, 8, 8, 8), (32, 8, 16, 32)


def model_pictures(comparison: PrecisionComparison) -> tuple[Picture, ...]:
    """All figures of one model."""
    return (
        compute_picture(comparison),
        memory_picture(comparison),
        message_picture(comparison),
        energy_picture(comparison),
    )


def compute_picture(comparison: PrecisionComparison) -> Picture:
    """Products of a step by pass, weighted by bit width."""
    models = [comparison.fp32, *(comparison.int8[kind] for kind in WEIGHT_GRADIENTS)]
    works = [model.step_work for model in models]

    def weighted(counts: list[int], bits: tuple[int, ...]) -> list[float]:
        return [count * width / 32e9 for count, width in zip(counts, bits, strict=True)]

    passes = (
        ("forward pass", weighted([work.forward.macs for work in works], _CODE_BITS)),
        ("gradient at inputs", weighted([work.input_gradient.macs for work in works], _CODE_BITS)),
        (
            "gradient at weights",
            weighted([work.weight_gradient.macs for work in works], _WEIGHT_GRADIENT_BITS),
        ),
    )
    with drawing(7.2, 2.6) as figure:
        axes = figure.subplots()
        ends = stacked_bars(axes, _ARITHMETICS, passes)
        write_behind(axes, ends, ["", *(times(ends[0] / end) for end in ends[1:])])
        axes.set_title(f"Computing of an iteration: {subject_line(comparison)}")
        axes.set_xlabel("GMAC, weighted by bit width (fp32 = 1)")
        legend_below(figure, axes, 3)
        return as_picture(
            figure,
            "compute",
            "Multiply-accumulates of a step by pass, an 8-bit one counted as a quarter, a 16-bit "
            "one as half of an fp32 one. Behind the bars: how many times less than fp32.",
        )


def memory_picture(comparison: PrecisionComparison) -> Picture:
    """Memory by component in both conventions."""
    tables = [comparison.fp32_memory, comparison.int8_memory]
    dense, own = comparison.row("choco", "0 %"), comparison.own
    kinds = ["paper's convention"]
    if own.label != _CHOCO_DENSE:
        tables += [dense.fp32.memory, dense.int8.memory]
        kinds.append(f"held, {_CHOCO_DENSE}")
    tables += [own.fp32.memory, own.int8.memory]
    kinds.append(f"held, {own.label}")
    parts = [
        (name.replace("_", " "), [table.by_component[name] / MIB for table in tables])
        for name in MemoryTable().by_component
    ]
    labels = [f"{what}, {precision}" for what in kinds for precision in PRECISION_COLORS]
    with drawing(7.2, 3.6) as figure:
        axes = figure.subplots()
        ends = stacked_bars(axes, labels, parts)
        pairs = zip(ends[::2], ends[1::2], strict=True)
        write_behind(axes, ends, [t for fp32, int8 in pairs for t in ("", times(fp32 / int8))])
        axes.set_title(f"Memory of a device: {subject_line(comparison)}")
        axes.set_xlabel("MiB")
        legend_below(figure, axes, 5)
        return as_picture(
            figure,
            "memory",
            "Memory by component: by the paper's convention, and held at the peak of a round. "
            "Behind the 8-bit bars: how many times less than fp32.",
        )


def message_picture(comparison: PrecisionComparison) -> Picture:
    """Bytes of a message by compression, encoded and by the conventions."""
    rows: list[tuple[str, GossipRow]] = [("dense", comparison.row("choco", "0 %"))]
    if comparison.own.compression != DENSE:
        rows.append((comparison.own.compression, comparison.own))
    else:
        sparse = (("top 10 %", "90 %"), ("top 1 %", "99 %"))
        rows += [(top, comparison.row("choco", compression)) for top, compression in sparse]
    with drawing(7.2, 3.4) as figure:
        axes = figure.subplots()
        _draw_messages(axes, "fp32", [row.fp32.message for _, row in rows], -0.2)
        _draw_messages(axes, "int8", [row.int8.message for _, row in rows], 0.2)
        ticks = []
        for compression, row in rows:
            ratio = row.fp32.message.encoded.total / row.int8.message.encoded.total
            ticks.append(f"{compression}\n{times(ratio)}")
        axes.set_xticks(range(len(rows)), ticks)
        axes.set_yscale("log")
        axes.margins(y=0.12)
        axes.grid(visible=False, axis="x")
        axes.set_title(f"A message: {subject_line(comparison)}")
        axes.set_ylabel("bytes")
        legend_below(figure, axes, 3)
        return as_picture(
            figure,
            "message",
            "Length of an encoded message (bars), and as the conventions of the reference code "
            "(fp32) and of the paper (int8) would count it (lines). Sparse messages are of "
            "Gaussian noise.",
        )


def energy_picture(comparison: PrecisionComparison) -> Picture:
    """Energy of products alone, and of the whole iteration."""
    works = [comparison.fp32.step_work.total]
    works += [comparison.int8[kind].step_work.total for kind in WEIGHT_GRADIENTS]
    of_macs = [silicon_energy(work, HOROWITZ_45NM).mac_j * _MILLI for work in works]
    with drawing(9.6, 3.2) as figure:
        left, right = figure.subplots(1, 2)
        ends = stacked_bars(left, _ARITHMETICS, [("MACs", of_macs)])
        write_behind(left, ends, ["", *(times(ends[0] / end) for end in ends[1:])])
        left.set_title(f"MACs alone, {HOROWITZ_45NM.name}")
        left.set_xlabel("mJ")
        _draw_iterations(right, comparison)
        legend_below(figure, right, 3)
        figure.suptitle(f"Energy: {subject_line(comparison)}", fontsize=10)
        return as_picture(
            figure,
            "energy",
            "Left: what products take, 8-bit ones summed in 8 bits as in the paper. Right: the "
            "whole iteration, with other operations and DRAM traffic. Activations travel between "
            "layers as fp32 in both precisions, so little of the gain is left.",
        )


def _draw_messages(
    axes: Axes, precision: Precision, messages: list[MessageCosts], shift: float
) -> None:
    places = [place + shift for place in range(len(messages))]
    encoded = [message.encoded.total for message in messages]
    convention = _CONVENTIONS[precision]  # not every compressor has it
    counted = [
        (place, message.by_convention[convention])
        for place, message in zip(places, messages, strict=True)
        if convention in message.by_convention
    ]
    color = PRECISION_COLORS[precision]
    axes.bar(places, encoded, width=0.38, color=color, label=f"{precision}, encoded")
    axes.hlines(
        [size for _, size in counted],
        [place - 0.19 for place, _ in counted],
        [place + 0.19 for place, _ in counted],
        color="black",
        linewidth=1.6,
        label="by the conventions" if precision == "fp32" else "",
    )
    for place, size in zip(places, encoded, strict=True):
        axes.annotate(
            f"{size:,}",
            (place, size),
            xytext=(0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8,
            color="white" if precision == "fp32" else "black",
        )


def _draw_iterations(axes: Axes, comparison: PrecisionComparison) -> None:
    """By every table, in both precisions."""
    row = comparison.own
    sides: list[Side] = [row.fp32, row.int8]
    energies = [side.energy[name] for name in ENERGY_TABLES for side in sides]
    labels = [f"{name}, {precision}" for name in ENERGY_TABLES for precision in PRECISION_COLORS]
    ends = stacked_bars(
        axes,
        labels,
        (
            ("MACs", [energy.mac_j * _MILLI for energy in energies]),
            ("other operations", [energy.elementwise_j * _MILLI for energy in energies]),
            ("DRAM traffic", [energy.memory_j * _MILLI for energy in energies]),
        ),
    )
    pairs = zip(ends[::2], ends[1::2], strict=True)
    write_behind(axes, ends, [text for a, b in pairs for text in ("", times(a / b))])
    axes.set_title(f"Whole iteration, {row.label}")
    axes.set_xlabel("mJ")
