"""Figures of all models of the catalog."""

from __future__ import annotations

from collections.abc import Sequence

from edgesim.hardware.catalog import PROFILES
from edgesim.study.comparison import Comparison
from edgesim.study.figures.charts import (
    COLORS,
    PRECISION_COLORS,
    Picture,
    as_picture,
    drawing,
    legend_below,
    write_behind,
)
from edgesim.study.precision_ratios import precision_ratios
from edgesim.study.tables.comparison_tables import model_name
from edgesim.study.tables.units import MIB

_DEVICES = ("esp32-s3", "gap9", "raspberry-pi-zero-2w", "raspberry-pi-4b")
_RATIOS = (  # key, label, marker
    ("counted_fp32_weight_gradient", "bit width of the MACs, weight gradient fp32", "v"),
    ("paper", "memory, paper's convention", "s"),
    ("faithful_choco_99_percent", "memory held, choco, top 1 %", "D"),
    ("encoded_0_percent", "message, dense", "o"),
    ("encoded_99_percent", "message, top 1 %", "P"),
    ("iteration_horowitz_45nm_99_percent", "energy of an iteration, horowitz_45nm", "X"),
)


def catalog_pictures(comparisons: Sequence[Comparison]) -> tuple[Picture, ...]:
    """All figures of the catalog's models."""
    return ratio_picture(comparisons), memory_picture(comparisons)


def ratio_picture(comparisons: Sequence[Comparison]) -> Picture:
    """fp32 by 8 bits for every model, by several counts."""
    ratios = [{r.key: r.value for r in precision_ratios(comparison)} for comparison in comparisons]
    rows = range(len(comparisons))
    with drawing(7.2, 4.2) as figure:
        axes = figure.subplots()
        for color, (key, label, marker) in zip(COLORS, _RATIOS, strict=False):
            values = [of_model[key] for of_model in ratios]
            axes.scatter(values, rows, marker=marker, color=color, label=label, s=36)
        axes.axvline(1, color="#666666", linewidth=0.8)
        axes.set_yticks(rows, [model_name(comparison) for comparison in comparisons])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("fp32 / int8")
        axes.set_title(f"What 8 bits save, batch {comparisons[0].setting.batch_size}")
        legend_below(figure, axes, 2)
        return as_picture(
            figure,
            "models-ratios",
            "How many times less 8 bits take than fp32, for every model of the catalog.",
        )


def memory_picture(comparisons: Sequence[Comparison]) -> Picture:
    """Memory that every model needs, beside the memory that devices have."""
    rows = [comparison.row("choco", "99 %") for comparison in comparisons]
    held = {"fp32": [row.fp32 for row in rows], "int8": [row.int8 for row in rows]}
    with drawing(7.2, 4.4) as figure:
        axes = figure.subplots()
        for shift, (precision, sides) in zip((-0.2, 0.2), held.items(), strict=True):
            mebibytes = [side.memory.total / MIB for side in sides]
            places = [place + shift for place in range(len(rows))]
            color = PRECISION_COLORS[precision]
            axes.barh(places, mebibytes, height=0.38, color=color, label=precision)
            write_behind(axes, mebibytes, [f"{mib:,.0f}" for mib in mebibytes], shift)
        axes.set_xscale("log")
        for name in _DEVICES:
            there = PROFILES[name].profile.memory_bytes / MIB
            axes.axvline(there, color="#555555", linewidth=0.9, linestyle="--", zorder=0)
            axes.text(
                *(there, 1.01, name),
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=7.5,
                color="#555555",
            )
        axes.set_yticks(range(len(rows)), [model_name(comparison) for comparison in comparisons])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("MiB")
        batch = comparisons[0].setting.batch_size
        axes.set_title(f"Memory held, choco, top 1 %, batch {batch}", pad=18)
        legend_below(figure, axes, 2)
        return as_picture(
            figure,
            "models-memory",
            "Memory at the peak of a round for every model of the catalog. Dashed: what some "
            "devices have for it.",
        )
