"""Figure of two scenarios: how many times more the first one takes."""

from __future__ import annotations

from collections.abc import Sequence

from edgesim.study.figures.charts import COLORS, Picture, as_picture, drawing, write_behind
from edgesim.study.tables.ratio import times
from edgesim.study.tables.side_by_side import Pair

_SHOWN = frozenset(
    {
        *("macs_by_width", "elementwise_ops", "traffic_bytes", "faithful_total", "paper_total"),
        *("encoded", "sent_bytes", "arithmetic_s", "memory_s", "roofline_s", "air_s", "wait_s"),
        *("period_s", "training_s"),
    }
)


def side_by_side_picture(names: tuple[str, str], pairs: Sequence[Pair]) -> Picture:
    """The ratios of all quantities, except those that are parts of others."""
    shown = [
        (pair, pair.ratio)
        for pair in pairs
        if pair.ratio and (pair.key in _SHOWN or pair.key.startswith(("iteration_", "energy_")))
    ]
    ratios = [ratio for _, ratio in shown]
    with drawing(7.2, 1.2 + 0.24 * len(shown)) as figure:
        axes = figure.subplots()
        rows = range(len(shown))
        lengths = [ratio - 1 for ratio in ratios]
        axes.barh(rows, lengths, left=1.0, color=COLORS[4], height=0.7)
        write_behind(axes, [max(1.0, ratio) for ratio in ratios], [times(r) for r in ratios])
        axes.axvline(1, color="#666666", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.margins(x=0.12, y=0.02)
        axes.set_yticks(rows, [f"{pair.topic}: {pair.label}" for pair, _ in shown])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(f"{names[0]} / {names[1]}")
        axes.set_title("Two scenarios side by side")
        return as_picture(
            figure,
            "compare",
            f"How many times more {names[0]} takes than {names[1]}.",
        )
