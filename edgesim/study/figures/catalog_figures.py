"""Figures of all models of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgesim.hardware.catalog import PROFILES
from edgesim.hardware.profiles import DeviceProfile
from edgesim.study.comparison import PrecisionComparison, Side
from edgesim.study.figures.charts import (
    COLORS,
    PRECISION_COLORS,
    Picture,
    as_picture,
    drawing,
    legend_below,
    write_behind,
)
from edgesim.study.tables.comparison_tables import model_name
from edgesim.study.tables.precision_ratios import precision_ratios
from edgesim.study.tables.units import MIB

# Drawn where the scenario names no devices.
_DEVICES = ("esp32-s3", "gap9", "raspberry-pi-zero-2w", "raspberry-pi-4b")
_MOST_DEVICES = 4
_PRICES = "horowitz_45nm"
_RATIOS = (  # key, label, marker
    ("counted_fp32_weight_gradient", "bit width of the MACs, weight gradient fp32", "v"),
    ("paper", "memory, paper's convention", "s"),
    ("encoded_0_percent", "message, dense", "o"),
)


def catalog_pictures(
    comparisons: Sequence[PrecisionComparison], profiles: Sequence[DeviceProfile] = ()
) -> tuple[Picture, ...]:
    """All figures of the catalog's models.

    Args:
        comparisons: fp32 against 8 bits of each model.
        profiles: devices of the scenario; none where it names none.
    """
    return ratio_picture(comparisons), memory_picture(comparisons, profiles)


# Costs by the scenario's own algorithm and compressor.
_OWN: tuple[tuple[str, str, Callable[[Side], float]], ...] = (
    ("memory held", "D", lambda side: side.memory.total),
    ("message, as compressed", "P", lambda side: side.message.encoded.total),
    (f"energy of an iteration, {_PRICES}", "X", lambda side: side.energy[_PRICES].total_j),
)


def ratio_picture(comparisons: Sequence[PrecisionComparison]) -> Picture:
    """fp32 by 8 bits for every model, by several counts."""
    ratios = [{r.key: r.value for r in precision_ratios(comparison)} for comparison in comparisons]
    rows = range(len(comparisons))
    with drawing(7.2, 4.2) as figure:
        axes = figure.subplots()
        for color, (key, label, marker) in zip(COLORS, _RATIOS, strict=False):
            values = [of_model[key] for of_model in ratios]
            axes.scatter(values, rows, marker=marker, color=color, label=label, s=36)
        own = [comparison.own for comparison in comparisons]
        for color, (label, marker, cost_of) in zip(COLORS[len(_RATIOS) :], _OWN, strict=False):
            values = [cost_of(row.fp32) / cost_of(row.int8) for row in own]
            axes.scatter(values, rows, marker=marker, color=color, s=36, label=label)
        axes.axvline(1, color="#666666", linewidth=0.8)
        axes.set_yticks(rows, [model_name(comparison) for comparison in comparisons])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("fp32 / int8")
        batch = comparisons[0].setting.batch_size
        axes.set_title(f"What 8 bits save, batch {batch}, {own[0].label}")
        legend_below(figure, axes, 2)
        return as_picture(
            figure,
            "models-ratios",
            "How many times less 8 bits take than fp32, for every model of the catalog.",
        )


def memory_picture(
    comparisons: Sequence[PrecisionComparison], profiles: Sequence[DeviceProfile] = ()
) -> Picture:
    """Memory that every model needs, beside the memory that devices have."""
    rows = [comparison.own for comparison in comparisons]
    catalog = [PROFILES[name].profile for name in _DEVICES]
    # Profiles of equal memory and name have one line; of more, the first few.
    there = {(p.name, p.memory_bytes / MIB): None for p in profiles or catalog}
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
        for name, memory_mib in list(there)[:_MOST_DEVICES]:
            axes.axvline(memory_mib, color="#555555", linewidth=0.9, linestyle="--", zorder=0)
            axes.text(
                *(memory_mib, 1.01, name),
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
        axes.set_title(f"Memory held, {rows[0].label}, batch {batch}", pad=18)
        legend_below(figure, axes, 2)
        return as_picture(
            figure,
            "models-memory",
            "Memory at the peak of a round for every model of the catalog. Dashed: what some "
            "devices have for it.",
        )
