"""How figures are drawn and written: plain matplotlib into SVG, the same bytes every time.

No function changes matplotlib's global state. matplotlib is imported when the first figure is
drawn.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# M. Okabe and K. Ito, Color universal design: told apart by colour-blind readers too.
COLORS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"),
    *("#333333", "#8c564b"),
)
PRECISION_COLORS = {"fp32": COLORS[0], "int8": COLORS[1]}

_STYLE: dict[str, object] = {
    "text.parse_math": False,  # names of devices may have dollars
    "svg.fonttype": "none",  # text stays text: small files, and readers can search it
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e0e0e0",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_REFERENCE = re.compile(r'(\bid="|url\(#|href="#)')


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that is drawn.

    Attributes:
        name: of its file, without the ending.
        caption: what the figure shows, and its main result.
        svg: of the figure.
    """

    name: str
    caption: str
    svg: str


@contextmanager
def drawing(width_in: float, height_in: float) -> Iterator[Figure]:
    """A figure to draw on, in the house's style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        yield Figure(figsize=(width_in, height_in))


def as_picture(figure: Figure, name: str, caption: str) -> Picture:
    """Write a figure; call within `drawing`."""
    import matplotlib as mpl

    file = StringIO()
    salted = mpl.rc_context({"svg.hashsalt": name})  # names of clips, otherwise random
    with salted, warnings.catch_warnings():
        # The reader's browser has the glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    # Several figures may stand in one page: their ids must differ.
    return Picture(name, caption, _REFERENCE.sub(rf"\g<1>{name}-", svg[svg.index("<svg") :]))


def stacked_bars(
    axes: Axes, labels: Sequence[str], parts: Sequence[tuple[str, Sequence[float]]]
) -> list[float]:
    """Horizontal bars of parts end to end, first label on top; gives their lengths.

    Args:
        axes: to draw on.
        labels: of the bars.
        parts: name, and length in each bar.
    """
    ends = [0.0] * len(labels)
    for color, (name, lengths) in zip(COLORS, parts, strict=False):
        axes.barh(range(len(labels)), lengths, left=ends, color=color, label=name, height=0.7)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18)  # room for the text behind the bars
    axes.set_xlim(left=0)
    return ends


def write_behind(
    axes: Axes, ends: Sequence[float], texts: Sequence[str], shift: float = 0.0
) -> None:
    """Write text behind the ends of horizontal bars; bar i is at i plus `shift`."""
    for place, (end, text) in enumerate(zip(ends, texts, strict=True)):
        axes.annotate(
            text,
            (end, place + shift),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )


def legend_below(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend under the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)
